"""The pytest plugin and what it is made of: a store for each test, time that skips, replay."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import re
from contextlib import closing

import pytest
from msgspec.structs import replace

import outlive
from outlive.errors import NonDeterminism, UsageError
from outlive.flows.recording import read_rows, recording_of
from outlive.names import HostId
from outlive.testing import World, check_replay, crash_at_every_commit, every_commit
from outlive.testing.loop import Deadlock, StepLimit

pytest_plugins = ["outlive.testing.flows"]


def make_app(first: str = "greet") -> outlive.App:
    app = outlive.App("plugin")

    @app.step(name=first)
    async def greet(name: str) -> str:
        return f"hello {name}"

    @app.flow
    async def reminder(name: str) -> str:
        said = await greet(name)
        await asyncio.sleep(3600)
        return said

    return app


async def run_reminder(world: World) -> tuple[object, object]:
    app = make_app()
    await world.serve(app)
    async with await world.connect() as host:
        handle = await host.flows.start(app.flows["reminder"], "ann", id="one")
        assert await handle.result() == "hello ann"
    driver = await world.store.open(HostId("witness"))
    assert driver.instances is not None
    record = await driver.instances.get("one")
    rows = await driver.instances.history("one", after=0, limit=100)
    await driver.close()
    return record, rows


def test_an_hour_passes_by_itself(outlive_world):
    record, _ = outlive_world.run(run_reminder)
    assert (record.ended_at - record.created_at).total_seconds() >= 3600


def test_each_test_has_an_empty_store_of_its_own(outlive_url):
    async def count() -> int:
        async with outlive.connect(outlive_url) as host:
            return len(await host.flows.list())

    assert outlive_url.startswith("sqlite:///")
    with closing(asyncio.new_event_loop()) as loop:
        assert loop.run_until_complete(count()) == 0


def test_code_that_still_fits_replays_to_its_end(outlive_world):
    record, rows = outlive_world.run(run_reminder)
    assert check_replay(make_app(), record, rows)
    assert not check_replay(make_app(), record, rows[:1])


def test_what_the_command_line_printed_of_a_history_replays(outlive_world):
    record, rows = outlive_world.run(run_reminder)
    document = recording_of(record, rows).document()
    printed = json.dumps(document, indent=2, default=str)
    for recorded in (printed, printed.encode(), json.loads(printed)):
        assert check_replay(make_app(), recorded)
        with pytest.raises(NonDeterminism, match="welcome#0"):
            check_replay(make_app("welcome"), recorded)
    with pytest.raises(UsageError, match="no flow"):
        check_replay(outlive.App("empty"), printed)
    for wrong in ("", "{}", printed[:-9], {"id": "one"}):
        with pytest.raises(UsageError, match="not a history of a flow"):
            check_replay(make_app(), wrong)


def test_code_that_does_something_else_is_told_of(outlive_world):
    record, rows = outlive_world.run(run_reminder)
    with pytest.raises(NonDeterminism, match="welcome#0"):
        check_replay(make_app("welcome"), record, rows)
    with pytest.raises(UsageError, match="no flow"):
        check_replay(outlive.App("empty"), record, rows)


def test_only_the_code_of_a_story_connects(outlive_world):
    with pytest.raises(RuntimeError, match="call it inside"):
        asyncio.run(outlive_world.connect())


@pytest.mark.parametrize(
    ("arguments", "said"), [((), "missing a required argument"), ((1, 2), "too many")]
)
def test_wrong_arguments_of_a_flow_are_told_before_it_is_crashed(arguments, said):
    app = make_app()
    with pytest.raises(UsageError, match=said):
        crash_at_every_commit(app, app.flows["reminder"], *arguments)


def test_what_no_host_would_run_is_not_crashed():
    app = make_app()
    with pytest.raises(UsageError, match="'make_app' is no flow"):
        crash_at_every_commit(app, make_app)
    with pytest.raises(UsageError, match="has no flow 'reminder'"):
        crash_at_every_commit(outlive.App("empty"), app.flows["reminder"], "ann")


def waiting_app() -> outlive.App:
    app = outlive.App("waiting")

    @app.step(queue="slow")
    async def slow() -> None:
        await asyncio.sleep(4 * 3600)

    @app.flow
    async def waits(sleeps: float) -> str:
        await slow()
        await asyncio.sleep(sleeps)
        return await outlive.wait_signal("go", str)

    return app


def test_a_flow_that_waits_for_what_nobody_sends_is_told_of():
    app = waiting_app()
    with pytest.raises(
        TimeoutError, match="'waits' waits for a message that is never sent: let drive="
    ):
        crash_at_every_commit(app, app.flows["waits"], 3 * 3600)


def test_a_flow_that_is_too_slow_is_told_of():
    app = make_app()
    with pytest.raises(TimeoutError, match="'reminder' made no end within 60 s"):
        crash_at_every_commit(app, app.flows["reminder"], "ann", limit_s=60)


@pytest.mark.parametrize(
    ("serves", "said"), [(False, "await world.serve"), (True, "give result.. a timeout")]
)
def test_a_story_that_does_not_end_says_what_may_be_missing(outlive_world, serves, said):
    app = waiting_app()

    async def story(world: World) -> None:
        if serves:
            await world.serve(app)
        async with await world.connect() as host:
            await (await host.flows.start("waits", {"sleeps": 1})).result()

    outlive_world.simulation.loop.steps_max = 10_000
    with pytest.raises(StepLimit) as caught:
        outlive_world.run(story)
    assert re.search(said, *caught.value.__notes__)


async def start_and_wait(world: World, app: outlive.App, *, serves: bool, timeout=None) -> str:
    if serves:
        await world.serve(app)
    async with await world.connect() as host:
        handle = await host.flows.start("waits", {"sleeps": 86_400}, id="f")
        return await handle.result(timeout)


@pytest.mark.parametrize(
    ("serves", "said"),
    [
        (True, "'f' of 'waits' waits for signal 'go'\nlet the story send"),
        (False, "'f' of 'waits' is taken by no host\nno host has an app.*await world.serve"),
    ],
)
def test_a_story_that_stands_still_says_who_waits_for_what(serves, said):
    world = World(limit=86_400)
    with pytest.raises(Deadlock, match=f"nothing happened for 1 days.*\n  flow {said}"):
        world.run(lambda world: start_and_wait(world, waiting_app(), serves=serves))


def test_what_goes_on_at_a_time_of_its_own_does_not_stand_still():
    async def story(world: World) -> str:
        app = waiting_app()
        await world.serve(app)
        async with await world.connect() as host:
            # The flow is in a step for hours and then sleeps for a day, and the story comes before
            # the limit is over.
            handle = await host.flows.start("waits", {"sleeps": 86_400})
            await asyncio.sleep(86_400 + 5 * 3600)
            await handle.signal("go", "on")
            return await handle.result()

    assert World(limit=7200).run(story) == "on"


def test_a_day_of_sleep_costs_little_also_where_a_host_works_on_a_queue(outlive_world):
    async def story(world: World) -> None:
        with pytest.raises(TimeoutError):
            await start_and_wait(world, waiting_app(), serves=True, timeout=86_400)

    outlive_world.run(story)
    # What looks after the store once a minute is most of it; polls every few seconds made 450,000.
    assert outlive_world.simulation.loop.steps < 70_000


def test_a_story_is_given_as_a_function(outlive_world):
    for story in (run_reminder(outlive_world), None):
        with pytest.raises(UsageError, match="takes the function of a story"):
            outlive_world.run(story)


def test_a_crash_that_was_asked_for_makes_no_noise(caplog):
    app = outlive.App("quiet")

    @app.leader("ledger")
    async def lead(lease: outlive.Lease) -> None:
        await asyncio.sleep(1e6)

    @app.step
    async def slow() -> None:
        await asyncio.sleep(60)

    @app.flow
    async def flow() -> str:
        await asyncio.gather(slow(), outlive.wait_signal("go"))
        return "done"

    async def story(world: World) -> None:
        user = await world.connect()
        await world.serve(app, "victim")
        await user.flows.start("flow", {}, id="f")
        await asyncio.sleep(5)
        assert await user.leases.get("ledger") is not None
        world.crash("victim")
        await user.close()

    caplog.set_level(logging.WARNING)
    World().run(story)
    crash_at_every_commit(app, flow, drive=lambda handle: handle.signal("go", id="go"))
    gc.collect()
    assert [record.getMessage() for record in caplog.records] == []


def test_a_flow_that_depends_on_what_no_history_holds_is_told_of():
    app, calls = outlive.App("chance"), []

    @app.step
    async def say(name: str) -> str:
        return name

    @app.step
    async def shout(name: str) -> str:
        return name

    @app.flow
    async def fickle(name: str) -> str:
        calls.append(name)
        # Another one each time that it is run.
        said = await (say if len(calls) % 2 else shout)(name)
        await asyncio.sleep(3600)
        return said

    with pytest.raises(AssertionError, match=r"NonDeterminism.*(say|shout)#0, which has run"):
        crash_at_every_commit(app, fickle, "ann")


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda rows: rows[1:], r"'crashed' has the commits \[2\], not 1..2"),
        (lambda rows: [rows[0], replace(rows[0], version=2)], "two records of the step"),
    ],
)
def test_a_broken_history_is_told_of(monkeypatch, broken, said):
    async def read(*args, **how):
        return broken(await read_rows(*args, **how))

    app = make_app()
    monkeypatch.setattr(every_commit, "read_rows", read)
    with pytest.raises(AssertionError, match=rf"without a crash:\n.*{said}"):
        crash_at_every_commit(app, app.flows["reminder"], "ann")


def test_only_hosts_that_serve_crash(outlive_world):
    async def story(world: World) -> None:
        await world.serve(make_app(), "web-1")
        world.crash("web-9")

    with pytest.raises(UsageError, match="no host 'web-9' serves in this world; there is 'web-1'"):
        outlive_world.run(story)
