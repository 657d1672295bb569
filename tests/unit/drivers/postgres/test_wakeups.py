"""When a host says that wake-ups do not reach it, and when it is the database that is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import asyncpg
import pytest

from outlive.drivers.postgres.driver import PostgresDriver
from outlive.errors import StoreUnavailable
from outlive.ports.wakeups import MISSED
from tests.unit.drivers.postgres.jobs import open_host

pytestmark = [pytest.mark.service, pytest.mark.whitebox]

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


async def away(*_args: object, **_options: object) -> list[object]:
    raise StoreUnavailable("cannot connect")


async def never(*_args: object, **_options: object) -> list[object]:
    await asyncio.Event().wait()
    return []


@pytest.mark.parametrize("answers", [True, False])
async def test_a_pooler_is_suspected_only_if_the_database_answers(
    driver: PostgresDriver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    answers: bool,
) -> None:
    caplog.set_level(logging.WARNING, logger="outlive")
    if not answers:
        monkeypatch.setattr(driver.wakeups._connections, "fetch", away)
    await driver.wakeups._warn("a notification to oneself did not arrive", certain=True)
    assert ("behind a pooler" in caplog.text) is answers


async def test_one_failure_is_a_restart_and_the_second_in_a_row_is_told(
    driver: PostgresDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="outlive")
    wakeups = driver.wakeups
    await wakeups._warn("OSError")
    wakeups._now_hearing()
    await wakeups._warn("OSError")
    with monkeypatch.context() as patch:
        patch.setattr(wakeups._connections, "fetch", away)
        await wakeups._warn("OSError")
    await wakeups._warn("OSError")
    assert caplog.text == ""
    for _ in range(3):
        await wakeups._warn("OSError")
    assert caplog.text.count("behind a pooler") == 1


async def test_a_pool_that_is_busy_holds_up_no_listening(
    driver: PostgresDriver,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("outlive.drivers.postgres.wakeups._PROBE_WITHIN_S", 0.05)
    connections, failed, again = driver.wakeups._connections, asyncio.Event(), asyncio.Event()
    connect = connections.connect

    async def failing_once(dsn: str) -> object:
        if not failed.is_set():
            failed.set()
            raise OSError("refused")
        return await connect(dsn)

    def hears(wakeup: object) -> None:
        if wakeup == MISSED and not driver.wakeups.deaf:
            again.set()

    monkeypatch.setattr(connections, "connect", failing_once)
    monkeypatch.setattr(connections, "fetch", never)
    driver.wakeups.subscribe(hears)
    other = await asyncpg.connect(postgres_url)
    assert await other.fetch(_END_LISTENERS)
    await other.close()
    await asyncio.wait_for(again.wait(), 10)
    assert failed.is_set()
    assert "pooler" not in caplog.text
