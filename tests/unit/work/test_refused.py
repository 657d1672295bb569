"""Calls of ``host.work`` that are wrong: refused with a reason, and nothing is sent."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import outlive
from outlive import App, InvalidName, Retry, UsageError
from outlive.errors import UnsupportedByDriver

app = App("shop")


@pytest.fixture
async def host():
    async with outlive.connect("memory://", name="a") as host:
        yield host


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 1 << 20},
        {"priority": True},
        {"delay": -1},
        {"at": datetime(2030, 1, 1)},  # noqa: DTZ001
        {"at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 1},
        {"on_duplicate": "ignore"},
        {"max_attempts": 0},
        {"retry": 3},
        {"expires": 0},
        {"retention": -1},
        {"headers": {"a": 1}},
        {"headers": {"a": "x" * 9000}},
        {"colour": "red"},
        {"unique_key": ""},
        {"id": "a\nb"},
        {"delay": 1e12},
    ],
)
async def test_wrong_options_are_refused_before_anything_is_sent(host, options):
    with pytest.raises((UsageError, InvalidName)):
        await host.work.enqueue("q", 1, **options)
    assert await host.work.queues() == []


async def test_wrong_calls_are_refused(host):
    for wrong in (
        host.work.claim([]),
        host.work.claim("q", limit=0),
        host.work.claim("q", wait=-1),
        host.work.claim(""),
        host.work.claim(None),
        host.work.claim(5),
        host.work.list(limit=1001),
        host.work.list(state="broken"),
        host.work.cancel(),
        host.work.cancel("a", queue="q"),
        host.work.retry(),
        host.work.purge(),
        host.work.enqueue_many("q", [1, 2], id="one"),
        host.work.enqueue_many("q", range(10_001)),
        host.work.enqueue_many("q", "abc"),
        host.work.enqueue_many("q", b"abc"),
        host.work.enqueue("q", 1, headers=[1]),
        host.work.enqueue("q", 1, headers="ab"),
        host.work.limit("q", concurrency=0),
        host.work.limit("q", rate=1, per=0),
        host.work.limit("q", rate=1, per=1e13),
        host.work.enqueue("q", 1, at=datetime.max.replace(tzinfo=UTC)),
        host.work.enqueue("q", 1, at=datetime.min.replace(tzinfo=UTC)),
        host.work.enqueue("q", object()),
        host.work.enqueue("q", float("nan")),
        host.work.enqueue("q", "x" * (1 << 20)),
    ):
        with pytest.raises(UsageError):
            await wrong


async def test_no_states_are_not_all_states(host):
    await host.work.enqueue("q", 1)
    work = host.work
    for call in (work.cancel, work.retry, work.purge, work.count, work.list):
        with pytest.raises(UsageError, match="state= is empty: name at least one state"):
            await call(queue="q", state=[])
    assert await work.count(queue="q", state=(state for state in ("ready", "dead"))) == 1


async def test_a_pause_that_ends_beyond_the_calendar_is_refused(host):
    await host.work.enqueue("q", 1)
    (claim,) = await host.work.claim("q")
    with pytest.raises(UsageError, match="at most"):
        await claim.fail("no", retry_in=1e13)
    with pytest.raises(UsageError, match="at most"):
        await claim.release(delay=1e13)
    await claim.complete()


async def test_a_tool_without_a_session_cannot_claim():
    async with outlive.connect("memory://", session=False) as host:
        await host.work.enqueue("q", 1)
        with pytest.raises(UsageError, match="session"):
            await host.work.claim("q")


async def test_a_backend_without_jobs_says_so(host, monkeypatch):
    monkeypatch.setattr(host, "_work", None)
    with pytest.raises(UnsupportedByDriver, match="does not support jobs"):
        _ = host.work


async def test_times_beyond_the_calendar_are_refused(host):
    await host.work.enqueue("q", 1)
    (claim,) = await host.work.claim("q")
    with pytest.raises(UsageError, match="retry_in must be at most"):
        await claim.fail("x", retry_in=1e15)
    with pytest.raises(UsageError, match="delay must be at most"):
        await claim.release(delay=1e15)
    with pytest.raises(UsageError, match=r"Retry\.longest must be at most"):
        Retry(longest=1e15)
    with pytest.raises(UsageError, match="before June 2255"):
        await host.work.enqueue("q", 1, at=datetime.max.replace(tzinfo=UTC))
    assert len(await host.work.list()) == 1


async def test_a_function_in_place_of_a_queue_is_told_how_handlers_are_written(host):
    async def unregistered(payload: int) -> None: ...

    with pytest.raises(UsageError, match=r'write @app\.handler\("queue"\)'):
        app.handler(unregistered)
    for wrong in (
        host.work.enqueue(unregistered, 1),
        host.work.enqueue_many(unregistered, [1]),
        host.work.claim([unregistered]),
    ):
        with pytest.raises(
            UsageError, match="'unregistered' is not a handler: define it with @app"
        ):
            await wrong
