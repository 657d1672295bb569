"""Schedules as programs use them: kept by name, paused, run now, and defined by an app."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

import outlive
from outlive import App, CronTick, InvalidName, Retry, ScheduleNotFound, UsageError
from outlive.errors import ConfigurationError, DuplicateJob, UnsupportedByDriver


@pytest.fixture
async def host():
    async with outlive.connect("memory://", name="a") as host:
        yield host


async def test_a_schedule_is_kept_and_shown(host):
    made = await host.schedules.create(
        "nightly", "reports", {"kind": "sales"}, cron="0 3 * * *", tz="Europe/Berlin", priority=5
    )
    assert (made.cron, made.every_s, made.tz) == ("0 3 * * *", None, "Europe/Berlin")
    assert (made.queue, made.payload, made.priority) == ("reports", {"kind": "sales"}, 5)
    local = made.next_at.astimezone(ZoneInfo("Europe/Berlin"))
    assert (local.hour, local.minute) == (3, 0)
    assert datetime.now(UTC) < made.next_at <= datetime.now(UTC) + timedelta(days=1, hours=1)
    assert await host.schedules.get("nightly") == made
    await host.schedules.create("hourly", "reports", every=3600)
    assert [each.name for each in await host.schedules.list()] == ["hourly", "nightly"]
    assert [each.name for each in await host.schedules.list(after="hourly")] == ["nightly"]


async def test_the_same_call_changes_nothing_and_another_one_takes_over(host):
    made = await host.schedules.create("s", "q", cron="0 3 * * *", headers={"a": "1"})
    assert await host.schedules.create("s", "q", cron=" 0  3 * * * ", headers={"a": "1"}) == made
    changed = await host.schedules.create("s", "q", cron="0 4 * * *", headers={"a": "1"})
    assert changed.cron == "0 4 * * *"
    assert changed.next_at != made.next_at


async def test_pausing_resuming_running_now_and_deleting(host):
    await host.schedules.create("s", "q", cron="@daily", headers={"a": "1"})
    assert (await host.schedules.pause("s")).paused
    job = await host.schedules.run_now("s")
    info = await job.status()
    assert info.payload["schedule"] == "s"
    assert info.headers["a"] == "1"
    assert info.headers["outlive-schedule"] == "s"
    resumed = await host.schedules.resume("s")
    assert not resumed.paused
    assert resumed.fired == 0
    await host.schedules.delete("s")
    for act in (
        host.schedules.get,
        host.schedules.pause,
        host.schedules.resume,
        host.schedules.delete,
    ):
        with pytest.raises(ScheduleNotFound):
            await act("s")
    with pytest.raises(ScheduleNotFound):
        await host.schedules.run_now("s")
    assert (await host.work.get(job.id)).id == job.id


async def test_running_now_respects_the_unique_key_of_its_jobs(host):
    await host.schedules.create("s", "q", every=60, unique_key="one")
    first = await host.schedules.run_now("s")
    with pytest.raises(DuplicateJob) as refused:
        await host.schedules.run_now("s")
    assert refused.value.existing == first.id


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"cron": "0 3 * * *", "every": 60},
        {"cron": "0 25 * * *"},
        {"cron": "0 0 30 2 *"},
        {"cron": 5},
        {"every": 0},
        {"every": 0.01},
        {"every": 60, "catch_up": "some"},
        {"every": 60, "catch_up_limit": 0},
        {"every": 60, "catch_up_limit": 10_001},
        {"every": 60, "tz": "Mars/Olympus"},
        {"every": 60, "tz": "../etc/passwd"},
        {"every": 60, "tz": None},
        {"every": 60, "id": "x"},
        {"every": 60, "delay": 5},
        {"every": 60, "at": datetime.now(UTC)},
        {"every": 60, "colour": "red"},
        {"every": 60, "priority": "high"},
    ],
)
async def test_what_cannot_be_a_schedule_is_refused(host, arguments):
    with pytest.raises(UsageError):
        await host.schedules.create("s", "q", **arguments)
    assert await host.schedules.list() == []


async def test_names_and_pages_are_checked(host):
    with pytest.raises(InvalidName):
        await host.schedules.create("x" * 257, "q", every=60)
    with pytest.raises(UsageError):
        await host.schedules.list(limit=0)


async def test_a_payload_must_fit_the_handler_it_is_for(host):
    app = App("shop")

    @app.handler("mails")
    async def send(copies: int) -> None:
        del copies

    with pytest.raises(UsageError):
        await host.schedules.create("s", send, "many", every=60)
    with pytest.raises(UsageError):
        await host.schedules.create("s", send, every=60)
    assert (await host.schedules.create("s", send, 3, every=60)).queue == "mails"


async def test_a_backend_without_schedules_says_so(tmp_path):
    app = App("shop")

    @app.cron("0 3 * * *")
    async def nightly() -> None: ...

    async with outlive.connect("memory://", name="a", app=app) as host:
        host._driver.schedules = None
        with pytest.raises(UnsupportedByDriver):
            _ = host.schedules
        with pytest.raises(UnsupportedByDriver):
            await host.run()


def test_functions_of_an_app_become_handlers_of_queues_of_their_own():
    app = App("shop")

    @app.cron("0 3 * * *", tz="Europe/Berlin", retry=Retry(max_attempts=3), timeout=60)
    async def nightly() -> str:
        return "done"

    @app.cron("*/5 * * * *", key="often", overlap=False, catch_up="all")
    def sometimes(tick: CronTick) -> CronTick:
        return tick

    assert set(app.crons) == {"nightly", "often"}
    assert set(app.handlers) == {"cron/nightly", "cron/often"}
    assert app.crons["nightly"].job.max_attempts == 3
    assert app.crons["often"].job.unique_key == "cron/often"
    tick = CronTick("often", datetime.now(UTC))
    assert app.handlers["cron/often"](tick) == tick
    assert asyncio.run(app.handlers["cron/nightly"](tick)) == "done"
    assert nightly.__name__ == "nightly"
    # The text that is kept is the same at every start, or each start would be a change.
    assert app.crons["nightly"].to_json() == (
        '{"job":{"queue":"cron/nightly","max_attempts":3},"cron":"0 3 * * *","tz":"Europe/Berlin"}'
    )


def test_what_cannot_run_by_a_timetable_is_refused_where_it_is_written():
    app = App("shop")

    @app.cron("0 3 * * *", key="k")
    def once() -> None: ...

    def two(a, b): ...

    def keyword(*, tick): ...

    for arguments, function in (
        (("0 3 * * *", "k"), once),
        (("never", "a"), once),
        (("0 3 * * *", ""), once),
        (("0 3 * * *", "b"), two),
        (("0 3 * * *", "c"), keyword),
    ):
        with pytest.raises(UsageError):
            app.cron(arguments[0], key=arguments[1])(function)
    with pytest.raises(ConfigurationError):
        app.cron("0 3 * * *", key="d", tz="Nowhere/Land")(once)
    assert set(app.crons) == {"k"}
