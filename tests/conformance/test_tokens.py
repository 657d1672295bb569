"""Every backend that serves HTTP keeps bearer tokens the same way."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from holdfast.drivers.memory import MemoryFactory
from holdfast.drivers.postgres import PostgresFactory
from holdfast.drivers.redis import RedisFactory
from holdfast.drivers.sqlite import SqliteFactory
from holdfast.testing import ManualClock
from holdfast.testing.conformance import Lab, TokenStoreSuite
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
