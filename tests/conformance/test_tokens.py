"""Every backend that serves HTTP keeps bearer tokens the same way."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from outlive.drivers.memory import MemoryFactory
from outlive.drivers.postgres import PostgresFactory
from outlive.drivers.redis import RedisFactory
from outlive.drivers.sqlite import SqliteFactory
from outlive.model.bearer import Act
from outlive.testing import ManualClock
from outlive.testing.conformance import Lab, TokenStoreSuite
from outlive.testing.conformance.tokens import bearer
from tests.services.redis import RedisServer

_numbers = itertools.count(1)


class TestMemoryTokens(TokenStoreSuite):
    @pytest.fixture
    def lab(self) -> Lab:
        return Lab(MemoryFactory(), f"memory://tokens-{next(_numbers)}", ManualClock())


class TestSqliteTokens(TokenStoreSuite):
    @pytest.fixture
    def lab(self, tmp_path: Path) -> Lab:
        return Lab(SqliteFactory(), f"sqlite:///{tmp_path}/store.db", ManualClock())


@pytest.mark.service
class TestPostgresTokens(TokenStoreSuite):
    @pytest.fixture
    def lab(self, postgres_url: str) -> Lab:
        return Lab(PostgresFactory(), postgres_url)


@pytest.mark.service
class TestRedisTokens(TokenStoreSuite):
    @pytest.fixture
    def lab(self, redis_server: RedisServer) -> Lab:
        return Lab(RedisFactory(), redis_server.url, prefix=f"tokens{next(_numbers)}-")


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
async def test_only_the_newest_acts_and_fresh_tokens_are_kept(backend, tmp_path, monkeypatch):
    """Time and numbers that a suite cannot wait for."""
    clock = ManualClock()
    if backend == "sqlite":
        monkeypatch.setattr("outlive.drivers.sqlite.token_store.ACTS_MAX", 5)
        lab = Lab(SqliteFactory(), f"sqlite:///{tmp_path}/store.db", clock)
    else:
        lab = Lab(MemoryFactory(), "memory://forgetful", clock)
    driver = await lab.open()
    tokens = driver.tokens
    assert tokens is not None
    await tokens.create(bearer("old", 60), actor="ann")
    clock.advance(91 * 86_400)
    await tokens.create(bearer("new", 60), actor="ann")
    assert [found.name for found in await tokens.list(limit=10)] == ["new"]
    if backend == "sqlite":
        for number in range(10):
            await tokens.record(Act(actor="ann", action="x", subject=str(number)))
        assert [act.subject for act in await tokens.acts(limit=100)] == ["9", "8", "7", "6", "5"]
    await lab.close()
