"""What tests of jobs on PostgreSQL share: drivers with a session, and short words for the port."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from outlive.clock import SystemClock
from outlive.drivers.postgres import PostgresFactory
from outlive.drivers.postgres.driver import PostgresDriver
from outlive.model.job import ClaimRequest, NewJob, Want
from outlive.model.location import parse_url
from outlive.model.session import HostSession
from outlive.names import HostId, JobId
from outlive.ports.driver import DriverContext

_numbers = itertools.count(1)

# No session of a test may end before the test does.
_TTL_US = 600_000_000


async def open_host(url: str, host: str = "h", **options: object) -> PostgresDriver:
    """A driver whose session is open; whoever asks closes it."""
    context = DriverContext(
        clock=SystemClock(),
        random=random.Random(host),
        namespace="n",
        host=HostId(host),
        options=options,
    )
    driver = await PostgresFactory().open(parse_url(url), context)
    await driver.hosts.open(
        HostSession(
            id=HostId(host),
            name=host,
            ttl_us=_TTL_US,
            metadata="{}",
            started_at=datetime.now(UTC),
            remaining_s=1.0,
            alive=True,
        )
    )
    return driver


@asynccontextmanager
async def hosts(url: str, *names: str, **options: object) -> AsyncGenerator[list[PostgresDriver]]:
    """Several drivers, closed at the end."""
    async with AsyncExitStack() as stack:
        opened = [await open_host(url, name, **options) for name in names]
        for driver in opened:
            stack.push_async_callback(driver.close)
        yield opened


def job(queue: str = "q", **more: object) -> NewJob:
    """A new job with an id of its own."""
    number = next(_numbers)
    return NewJob(**{"id": JobId(f"j{number}"), "queue": queue, "payload": f"{number}", **more})


def jobs(count: int, queue: str = "q", **more: object) -> list[NewJob]:
    """Several new jobs."""
    return [job(queue, **more) for _ in range(count)]


def wish(limit: int = 1, *queues: str, host: str = "h", **more: object) -> ClaimRequest:
    """A claim of a host that nobody made before."""
    wants = tuple(Want(queue, limit) for queue in queues or ("q",))
    fields = {"request": f"r{next(_numbers)}", "wants": wants, **more}
    return ClaimRequest(session=HostId(host), worker=host, limit=limit, **fields)


def watch(
    driver: PostgresDriver, monkeypatch: pytest.MonkeyPatch, names: Mapping[str, str]
) -> Callable[[], list[str]]:
    """Which statements of these were sent since it was asked last, each by its name."""
    tables = driver.jobs._tables
    known = {tables.text(template): name for template, name in names.items()}
    sent: list[str] = []
    fetch = tables.fetch

    async def watched(text: str, *args: Any, write: bool = True) -> list[Any]:
        sent.extend([known[text]] if text in known else [])
        return await fetch(text, *args, write=write)

    monkeypatch.setattr(tables, "fetch", watched)

    def asked() -> list[str]:
        found, sent[:] = list(sent), []
        return found

    return asked


async def until_blocked(watching: asyncpg.Connection, count: int) -> None:
    """Wait until so many sessions of the database wait for a lock."""
    blocked = """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'
    """
    async with asyncio.timeout(10):
        while await watching.fetchval(blocked) < count:  # noqa: ASYNC110 - a server has no events
            await asyncio.sleep(0.01)
