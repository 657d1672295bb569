"""When a host says that wake-ups do not reach it, and when it is the database that is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import asyncpg
import pytest

from holdfast.drivers.postgres.driver import PostgresDriver
from holdfast.errors import StoreUnavailable
from holdfast.ports.wakeups import MISSED
from tests.unit.drivers.postgres.jobs import open_host

_END_LISTENERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND query ILIKE '%NOTIFY%' AND pid <> pg_backend_pid()
"""


@pytest.fixture
async def driver(postgres_url: str) -> AsyncIterator[PostgresDriver]:
    opened = await open_host(postgres_url)
    yield opened
    await opened.close()


async def test_a_connection_that_was_lost_is_no_pooler(
    driver: PostgresDriver, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    again = asyncio.Event()
    driver.wakeups.subscribe(lambda wakeup: again.set() if wakeup == MISSED else None)
    other = await asyncpg.connect(postgres_url)
    assert await other.fetch(_END_LISTENERS)
    await other.close()
    await asyncio.wait_for(again.wait(), 10)
    assert "pooler" not in caplog.text


@pytest.mark.parametrize("answers", [True, False])
async def test_a_pooler_is_suspected_only_if_the_database_answers(
    driver: PostgresDriver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    answers: bool,
) -> None:
    async def away(*_args: object, **_options: object) -> list[object]:
        raise StoreUnavailable("cannot connect")

    caplog.set_level(logging.WARNING, logger="holdfast")
    if not answers:
        monkeypatch.setattr(driver.wakeups._connections, "fetch", away)
    await driver.wakeups._warn("a notification to oneself did not arrive")
    assert ("behind a pooler" in caplog.text) is answers
