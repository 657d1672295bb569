"""A host that dies at each of its writes, on either side of it: the flow comes to the same end."""

from __future__ import annotations

import asyncio

import pytest

import outlive
from outlive import App, Retry
from outlive.errors import OutcomeUnknown
from outlive.flows.recording import read_rows
from outlive.model.instance import InstanceFilter
from outlive.names import HostId
from outlive.testing import crash_at_every_commit, every_commit
from outlive.testing.every_commit import HOST, CrashPoint
from outlive.testing.world import World
from tests.simulation.oracles.history import History
from tests.simulation.oracles.instance_checker import check_instances
from tests.simulation.oracles.instance_history import Left
from tests.simulation.oracles.recorder import Recorder

app = App("crashing")


@app.step(retry=Retry(max_attempts=3, first=0.1))
async def add(one: int, other: int) -> int:
    return one + other


@app.step
def double(number: int) -> int:
    return 2 * number


@app.step
async def refuse() -> None:
    raise ValueError("sold out")


@app.flow
async def chain(count: int) -> int:
    total = 0
    for number in range(count):
        total = await add(total, number)
    return await double(total)


@app.flow
async def wide(count: int) -> list[int]:
    return list(await asyncio.gather(*(add(number, 1) for number in range(count))))


@app.flow
async def naps(hours: int) -> int:
    for _ in range(hours):
        await asyncio.sleep(3600)
    return await add(hours, 0)


@app.flow
async def approval() -> str:
    try:
        who = await outlive.wait_signal("approved", str, timeout=4 * 3600)
    except TimeoutError:
        return "nobody"
    await add(1, 1)
    return who


@app.flow
async def parent(count: int) -> list[int]:
    return list(await asyncio.gather(*(chain(number) for number in range(1, count + 1))))


@app.flow
async def trip() -> None:
    async with outlive.saga() as saga:
        await add(1, 1)
        saga.add(add, -1, -1)
        await refuse()


@app.flow
async def monitor(left: int) -> str:
    await add(left, 0)
    await asyncio.sleep(60)
    if left:
        outlive.continue_as_new(left - 1)
    return "done"


@app.flow
async def forever() -> None:
    await outlive.wait_signal("never", int)


class JudgedWorld(World):
    """A world that keeps a history of its flows, and has the oracle judge it."""

    def __init__(self, *, interceptor: CrashPoint) -> None:
        self.history = History(0, lambda: self.simulation.now)
        super().__init__(interceptor=Recorder(self.history, interceptor))
        self._point = interceptor

    def run(self, story):
        async def seen_to_its_end(world):
            result = await story(world)
            driver = await self.store.open(HostId("oracle"))
            left = {}
            for record in await driver.instances.list(InstanceFilter(), after=None, limit=1000):
                rows = await read_rows(driver.instances, record.id, after=record.base)
                left[record.id] = Left(record, rows)
            self.history.instances.left = left
            await driver.close()
            return result

        result = super().run(seen_to_its_end)
        found = check_instances(self.history.instances)
        assert found == [], "\n".join((f"{self._point}:", *map(str, found[:5])))
        return result


@pytest.fixture(autouse=True)
def _judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(every_commit, "World", JudgedWorld)


async def approve(handle: outlive.FlowHandle) -> None:
    await asyncio.sleep(3600)
    await handle.signal("approved", "ann", id="the-one")


CASES = {
    "chain": ((3,), None, "completed", "6"),
    "wide": ((4,), None, "completed", "[1,2,3,4]"),
    "naps": ((2,), None, "completed", "2"),
    "approval": ((), approve, "completed", '"ann"'),
    "parent": ((3,), None, "completed", "[0,2,6]"),
    "monitor": ((2,), None, "completed", '"done"'),
}


@pytest.mark.parametrize("name", CASES)
def test_a_crash_at_every_commit_changes_nothing(name):
    args, drive, status, outcome = CASES[name]
    report = crash_at_every_commit(app, app.flows[name], *args, drive=drive)
    assert (report.status, report.outcome) == (status, outcome)
    assert report.writes >= 2


def test_a_saga_is_undone_whenever_its_host_dies():
    report = crash_at_every_commit(app, trip)
    assert report.status == "failed"
    assert "sold out" in (report.outcome or "")


def test_a_retried_flow_goes_on_whenever_its_host_dies():
    """Also while it is retried: nothing that was done is done again, and all of it is there."""
    mine, mended, charged = App("retried"), [False], []

    @mine.step
    async def charge(number: int) -> int:
        charged.append((mended[0], number))
        return number

    @mine.step
    async def ship() -> int:
        if not mended[0]:
            raise ValueError("no truck")
        return 1

    @mine.flow
    async def carrier() -> int:
        if not mended[0]:
            raise ValueError("no carrier")
        return await charge(3)

    @mine.flow
    async def order(kind: str) -> list[int]:
        done = [await charge(1)]
        if kind == "own" and not mended[0]:
            raise ZeroDivisionError
        both = await asyncio.gather(charge(2), carrier() if kind == "child" else ship())
        await asyncio.sleep(60)
        return [*done, *both, await charge(4)]

    async def mend(handle: outlive.FlowHandle) -> None:
        with pytest.raises(outlive.FlowFailed):
            await handle.result()
        mended[0] = True
        await handle.retry()
        await handle.result()
        mended[0] = False

    for kind, outcome in (("own", "[1,2,1,4]"), ("step", "[1,2,1,4]"), ("child", "[1,2,3,4]")):
        report = crash_at_every_commit(mine, order, kind, drive=mend)
        assert (report.status, report.outcome) == ("completed", outcome)
    # Charged before the failure, and never after it.
    assert (True, 1) not in charged


def test_a_flow_that_looks_around_is_found_out():
    """What it returns depends on how often it was run: a crash shows it."""
    mine = App("impure")
    runs: list[int] = []

    @mine.step
    async def pass_through(number: int) -> int:
        return number

    @mine.flow
    async def impure() -> int:
        runs.append(1)
        await pass_through(1)
        return len(runs)

    with pytest.raises(AssertionError, match="with a crash"):
        crash_at_every_commit(mine, impure)


def test_a_crash_that_never_comes_says_so():
    assert "never came" in str(CrashPoint(7))


def test_a_flow_that_waits_for_ever_is_a_timeout():
    with pytest.raises(TimeoutError):
        crash_at_every_commit(app, forever, limit_s=1000.0)


def test_time_skips_by_itself_and_hosts_can_be_crashed():

    async def story(world: World) -> tuple[int, float]:
        await world.serve(app, "one")
        async with await world.connect() as host:
            began = world.now
            handle = await host.flows.start(naps, 12)
            await asyncio.sleep(3600)
            world.crash("one")
            await world.serve(app, "two")
            result = await handle.result()
            return result, (world.now - began).total_seconds()

    result, lasted_s = World().run(story)
    assert result == 12
    assert 12 * 3600 <= lasted_s < 12.1 * 3600


class LostReply(CrashPoint):
    """The chosen write is applied, and its host waits for the answer in vain."""

    async def on_store(self, host, operation, forward, args, kwargs):
        answer = await forward(*args, **kwargs)
        if host.machine == HOST and operation in every_commit.WRITES:
            self.seen += 1
            if self.seen == self.number:
                await asyncio.sleep(5)
                raise OutcomeUnknown("the reply was lost")
        return answer


@pytest.mark.parametrize("number", range(1, 8))
def test_a_new_run_whose_beginning_was_not_heard_of_replays_by_its_time(number):
    app, point = App("a"), LostReply(number)

    @app.step
    async def stamp(at: str) -> str:
        return at

    @app.flow
    async def runs(left: int) -> str:
        at = await stamp(outlive.now().isoformat())
        await asyncio.sleep(60)
        if left:
            outlive.continue_as_new(left - 1)
        return at

    async def story(world: World) -> float:
        await world.serve(app, HOST)
        async with await world.connect() as host:
            began = world.now
            handle = await host.flows.start(runs, 1, id="f")
            await asyncio.sleep(90)
            world.crash(HOST)
            await world.serve(app, "other")
            await handle.result(timeout=300)
            return (world.now - began).total_seconds()

    assert 120 <= World(interceptor=point).run(story) < 150


def test_a_late_answer_to_a_repeat_does_not_set_the_clock_back():
    app = App("a")

    @app.flow
    async def rests() -> None:
        await asyncio.sleep(30)

    async def story(world: World) -> float:
        await world.serve(app, HOST)
        async with await world.connect() as host:
            began = world.now
            await (await host.flows.start(rests)).result()
            return (world.now - began).total_seconds()

    heard, lost = World().run(story), World(interceptor=LostReply(1)).run(story)
    assert abs(heard - lost) < 1
