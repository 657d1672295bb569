"""Steps that begin in the turn in which their flow asks for them, and what may come of that."""

from __future__ import annotations

import asyncio
import math
import sys

import pytest

import outlive
from outlive import App, Retry
from outlive.drivers.sqlite import writer
from outlive.errors import (
    Fenced,
    FlowFailed,
    FlowNotFound,
    OutcomeUnknown,
    StoreUnavailable,
    UsageError,
)
from outlive.flows.household import Household
from tests.unit.work.conftest import until

pytestmark = pytest.mark.whitebox


async def run_alone(fleet, store_url, app):
    """A host on which nothing else goes on, and that has seen lone writes."""
    fleet.url = store_url
    host, _ = await fleet.run(app)
    return host


def quick(app):
    @app.step
    async def echo(n: int) -> int:
        return n

    @app.flow
    async def flow(n: int, steps: int = 1) -> int:
        for _ in range(steps):
            n = await echo(n)
        return n

    return flow


async def test_flows_one_after_the_other_all_end(store_url, fleet):
    app = App("a")
    flow = quick(app)
    host = await run_alone(fleet, store_url, app)
    for number in range(40):
        handle = await host.flows.start(flow, number, 1 + number % 3)
        assert await handle.result(timeout=10) == number
        assert len(await handle.history()) == 1 + number % 3


async def test_one_who_runs_flow_after_flow_lets_others_run(store_url, fleet):
    app = App("a")
    flow = quick(app)
    host = await run_alone(fleet, store_url, app)
    turns = 0

    async def beside() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(beside())
    for number in range(30):
        assert await (await host.flows.start(flow, number)).result(timeout=10) == number
    other.cancel()
    assert turns >= 30


async def test_one_who_runs_flow_after_flow_gives_the_loop_its_turns(store_url, fleet):
    app = App("a")
    flow = quick(app)
    host = await run_alone(fleet, store_url, app)
    loop, turns = asyncio.get_running_loop(), 0
    run_once = loop._run_once

    def counted() -> None:
        nonlocal turns
        turns += 1
        run_once()

    loop._run_once = counted
    for number in range(70):
        await (await host.flows.start(flow, number)).result(timeout=10)
    # Timers and sockets are looked at once in a turn: they wait for no more than four flows.
    assert turns >= 70 // 4


async def test_a_flow_does_not_rest_before_the_end_of_its_step_is_written(
    store_url, fleet, monkeypatch
):
    app, resting = App("a"), []

    @app.step
    async def echo(n: int) -> int:
        return n

    @app.flow
    async def waits(n: int) -> int:
        n = await echo(n)
        return n + await outlive.wait_signal("go", int, timeout=60)

    rested = Household.rested

    def noted(home, live):
        resting.append((live.committing, live.row.version))
        rested(home, live)

    monkeypatch.setattr(Household, "rested", noted)
    host = await run_alone(fleet, store_url, app)
    for number in range(5):
        handle = await host.flows.start(waits, number)
        await until(lambda number=number: len(resting) > number)
        await handle.signal("go", 1)
        assert await handle.result(timeout=10) == number + 1
    assert resting == [(False, 1)] * 5


async def test_a_step_is_a_task_of_its_own_and_its_caller_is_himself_again(store_url, fleet):
    app, seen = App("a"), []

    @app.step
    async def looks() -> None:
        seen.append(asyncio.current_task())
        async with asyncio.timeout(30):  # noqa: ASYNC100 - it asks which task it is in
            pass

    @app.flow
    async def flow() -> None:
        await looks()

    host = await run_alone(fleet, store_url, app)
    me = asyncio.current_task()
    for _ in range(5):
        handle = await host.flows.start(flow)
        assert asyncio.current_task() is me
        await handle.result(timeout=10)
    assert len(seen) == 5
    assert me not in seen


async def test_flows_that_steps_start_do_not_nest(store_url, fleet):
    app, depths = App("a"), []

    @app.step
    async def goes_on(left: int) -> None:
        depths.append(left)
        if left:
            await host.flows.start(chain, left - 1, id=f"chain-{left - 1}")

    @app.flow
    async def chain(left: int) -> None:
        await goes_on(left)

    host = await run_alone(fleet, store_url, app)
    await host.flows.start(chain, 300, id="chain-300")
    await until(lambda: 0 in depths, timeout=30)
    assert await host.flows.get("chain-0").result(timeout=30) is None
    assert depths == list(range(300, -1, -1))


async def test_a_step_that_fails_at_once_is_tried_again_and_fails_its_flow(store_url, fleet):
    app, attempts = App("a"), []

    @app.step(retry=Retry(max_attempts=3, first=0.001))
    async def breaks() -> None:
        attempts.append(len(attempts))
        raise OSError("again")

    @app.flow
    async def flow() -> None:
        await breaks()

    host = await run_alone(fleet, store_url, app)
    handle = await host.flows.start(flow)
    with pytest.raises(FlowFailed, match="again"):
        await handle.result(timeout=10)
    assert attempts == [0, 1, 2]


async def test_steps_side_by_side_are_begun_before_any_end_is_fed(store_url, fleet):
    app, order = App("a"), []

    @app.step
    async def note(n: int) -> int:
        order.append(n)
        return n

    @app.flow
    async def both() -> list[int]:
        return await asyncio.gather(*(note(n) for n in range(5)))

    host = await run_alone(fleet, store_url, app)
    handle = await host.flows.start(both)
    assert await handle.result(timeout=10) == list(range(5))
    assert order == list(range(5))


async def test_a_step_in_whose_first_turn_its_flow_is_lost_changes_nothing(store_url, fleet):
    app, ran = App("a"), []

    @app.step
    async def loses(n: int) -> int:
        ran.append(n)
        if len(ran) == 1:
            # As a host does that learns of the end of its session.
            home = host._desk.host.home
            live = home.lives["f"]
            home.forfeit(live)
            home.give_up(live, due=True)
        return n

    @app.flow
    async def flow() -> int:
        return await loses(7)

    host = await run_alone(fleet, store_url, app)
    handle = await host.flows.start(flow, id="f")
    assert await handle.result(timeout=20) == 7
    # What it returned when it was nobody's was not recorded, so that it ran once more.
    assert ran == [7, 7]
    assert len(await handle.history()) == 1


async def test_a_host_that_is_stopped_by_a_step_hands_the_flow_back(store_url, fleet):
    app, ran = App("a"), []

    @app.step
    async def stops(n: int) -> int:
        ran.append(n)
        if n == 0:
            host._desk.host.home.lives["f"].leave(now=False)
        return n

    @app.flow
    async def flow() -> int:
        return await stops(0) + await stops(1)

    host = await run_alone(fleet, store_url, app)
    handle = await host.flows.start(flow, id="f")
    await until(lambda: "f" not in host._desk.host.home.lives or ran == [0, 1])
    assert await handle.result(timeout=20) == 1
    # The end of the first was recorded before it was handed back.
    assert ran == [0, 1]


async def test_a_step_that_somebody_else_comes_before_begins_behind_him(store_url, fleet):
    app, order = App("a"), []

    @app.step
    async def note(n: int) -> int:
        order.append(n)
        return n

    @app.flow
    async def flow(n: int) -> int:
        return await note(n) + await note(n)

    host = await run_alone(fleet, store_url, app)
    loop = asyncio.get_running_loop()
    make = loop.create_task

    def interrupted(*args, **kwargs):
        made = make(*args, **kwargs)
        # As another thread does, or a signal handler, between any two instructions.
        loop.call_soon_threadsafe(order.append, "other")
        return made

    loop.create_task = interrupted
    try:
        handles = [await host.flows.start(flow, number) for number in range(10)]
        await host.flows.start_many(flow, range(10, 20), ids=[f"f{n}" for n in range(10, 20)])
    finally:
        loop.create_task = make
    results = [await handle.result(timeout=10) for handle in handles]
    results += [await host.flows.get(f"f{n}").result(timeout=10) for n in range(10, 20)]
    assert results == [2 * number for number in range(20)]
    assert sorted(each for each in order if each != "other") == sorted([*range(20)] * 2)


async def test_a_step_has_nothing_of_an_error_that_its_caller_handles(store_url, fleet):
    app, seen = App("a"), []

    @app.step
    async def breaks() -> None:
        seen.append(sys.exception())
        raise OSError("the bank is down")

    @app.flow
    async def flow() -> None:
        await breaks()

    host = await run_alone(fleet, store_url, app)
    for _ in range(5):
        try:
            raise PermissionError("a secret of the caller")
        except PermissionError:
            handle = await host.flows.start(flow)
            with pytest.raises(FlowFailed, match="the bank is down"):
                await handle.result(timeout=10)
        assert "secret" not in str(await handle.history())
    assert seen == [None] * 5


@pytest.fixture
def quick_disk(monkeypatch):
    """A disk that is never too slow for a write on the loop's thread."""
    monkeypatch.setattr(writer, "_INLINE_COMMIT_MAX_S", math.inf)


async def at_once(fleet, tmp_path, app):
    """A host on SQLite that has seen lone writes, and its household."""
    fleet.url = f"sqlite:///{tmp_path / 'flows.db'}"
    host, _ = await fleet.run(app)
    for number in range(2):
        await (await host.flows.start("flow", {"n": number})).result(timeout=10)
    return host, host._desk.host.home


async def test_a_start_at_once_of_which_nothing_is_known_is_asked_for_again(
    fleet, tmp_path, quick_disk
):
    app = App("a")
    flow = quick(app)
    host, home = await at_once(fleet, tmp_path, app)
    start, asked = home.start_at_once, []

    def lost(new):
        asked.append(start(new))
        raise OutcomeUnknown("the disk did not answer")

    home.start_at_once = lost
    for number in range(5):
        handle = await host.flows.start(flow, number, id=f"f{number}")
        # It was there when it was asked for again, but by the same request.
        assert handle.entry == "created"
        assert await handle.result(timeout=10) == number
        assert len(await handle.history()) == 1
    assert any(asked)


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("applied", [True, False])
async def test_a_start_that_is_refused_after_it_was_unknown_is_asked_for_again(
    fleet, tmp_path, applied
):
    app = App("a")
    flow = quick(app)
    host, home = await at_once(fleet, tmp_path, app)
    start, store, refusals = home.start_at_once, host._desk.store, []

    def lost(new):
        if applied:
            assert start(new) is not None
        home.start_at_once = start
        raise OutcomeUnknown("the disk did not answer")

    class Sick:
        """A store that takes nothing at first."""

        async def start(self, news):
            if not refusals:
                refusals.append(news)
                raise StoreUnavailable("the disk refuses")
            return await store.start(news)

        def __getattr__(self, name):
            return getattr(store, name)

    home.start_at_once, host._desk.store = lost, Sick()
    handle = await host.flows.start(flow, 7, id="f")
    assert await handle.result(timeout=10) == 7
    assert len(refusals) == 1
    assert len(await handle.history()) == 1


async def test_a_start_at_once_that_is_refused_to_its_session_is_anybodys(
    fleet, tmp_path, quick_disk
):
    app = App("a")
    flow = quick(app)
    host, home = await at_once(fleet, tmp_path, app)

    def refused(new):
        raise Fenced(new.session, message="the session was reaped")

    home.start_at_once = refused
    handle = await host.flows.start(flow, 7)
    assert await handle.result(timeout=30) == 7


@pytest.mark.usefixtures("quick_disk")
async def test_a_start_at_once_that_cannot_be_written_is_told(fleet, tmp_path):
    app = App("a")
    flow = quick(app)
    host, home = await at_once(fleet, tmp_path, app)

    def full(_new):
        raise StoreUnavailable("the disk is full")

    home.start_at_once = full
    with pytest.raises(StoreUnavailable, match="full"):
        await host.flows.start(flow, 7, id="f")
    with pytest.raises(FlowNotFound):
        await host.flows.get("f").status()
    assert not host._desk.waiters._waiting


@pytest.mark.usefixtures("quick_disk")
async def test_flow_code_that_kept_a_connection_starts_nothing_at_once(fleet, tmp_path):
    app, kept = App("a"), []
    flow = quick(app)

    @app.flow
    async def starts_another() -> str:
        try:
            await kept[0].start(flow, 1, id="never")
        except UsageError as error:
            return str(error)
        return "started"

    host, _ = await at_once(fleet, tmp_path, app)
    kept.append(host.flows)
    handle = await host.flows.start(starts_another)
    assert "flow code cannot use" in await handle.result(timeout=10)
    with pytest.raises(FlowNotFound):
        await host.flows.get("never").status()
