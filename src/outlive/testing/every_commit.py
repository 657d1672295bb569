"""``crash_at_every_commit``: a flow's host dies at each write it makes, and nothing may change.

Owns the runs and their comparison. On a store in memory and in virtual time: a flow that sleeps
for an hour is run dozens of times in a second.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from outlive.app import App
from outlive.errors import UsageError
from outlive.flows.attributes import STUCK
from outlive.flows.flow import Flow
from outlive.flows.handle import FlowHandle
from outlive.model.instance import FINAL, InstanceFilter, InstanceRecord
from outlive.model.job import LIVE, JobFilter
from outlive.names import HostId, InstanceId
from outlive.ports.driver import Driver
from outlive.serialization import decode_json
from outlive.testing.crashing import HOST, CrashPoint
from outlive.testing.instance_checker import check_instances
from outlive.testing.instance_history import Left
from outlive.testing.simulation import SimHost
from outlive.testing.world import World

Drive = Callable[[FlowHandle[Any]], Awaitable[None]]
"""What somebody does to the flow from outside, once it is there: signals, updates."""

_Side = tuple[int, bool]
"""A write, and whether it is applied when its host dies."""

# A flow that has made no end by then waits for somebody: give it a ``drive``.
LIMIT_S = 400 * 86_400.0

# More writes than this are a benchmark, not a test: each of them is a run of its own, twice.
WRITES_MAX = 1_000

_ID = "crashed"
_PAGE = 1000

# How soon a story looks whether everything has ended, and then more and more rarely.
_LOOK_S = 1.0

# Flows that did nothing between two looks so far apart, and have nothing to wait for that comes by
# itself, stay as they are: whatever a host does without being told, it does within an hour.
_STILL_S = 2 * 3600.0


@dataclass(frozen=True, slots=True)
class CrashReport:
    """What was tried: ``writes`` that a host could die at, and what the flow always came to.

    ``crashes`` is at how many of their sides it died.
    """

    writes: int
    status: str
    outcome: str | None
    crashes: int = 0


def crash_at_every_commit(
    app: App,
    flow: Flow[..., Any],
    *args: Any,
    drive: Drive | None = None,
    limit_s: float = LIMIT_S,
    sample: int | None = None,
    seed: int = 0,
    **kwargs: Any,
) -> CrashReport:
    """Run ``flow`` once in peace, then with a crash on each side of each write of its host.

    Every run must come to the same status, result or error, and keep every invariant: one record
    for each step, no timer early, one owner at a time. Another host takes over after each crash.
    ``drive`` is called once in each run, from a host that never dies. Steps run at least once, so
    count effects by their idempotency key. A step with ``once=True`` is one that a crash changes
    by design, and a result that tells the time differs as well: test those by hand.

    A flow of many writes takes a run for each side of each: ``sample`` tries that many of them,
    spread evenly over the run and drawn by ``seed``.

    Raises:
        UsageError: It is no flow of ``app``, or the arguments are not its own.
        AssertionError: A run came to something else, did not do what its history says, or broke
            an invariant; it says where the host died.
        TimeoutError: The flow made no end within ``limit_s`` of its own time, or waits, after
            ``drive`` has returned, for what nobody is left to send.
    """
    if not isinstance(flow, Flow):  # pyright: ignore[reportUnnecessaryIsInstance]
        name = getattr(flow, "__name__", repr(flow))
        raise UsageError(f"{name!r} is no flow: define it with @app.flow")
    if flow.name not in app.flows:
        raise UsageError(f"{app!r} has no flow {flow.name!r}, so that nobody would run it")
    story = _Story(app, flow, args, kwargs, drive, limit_s)
    peace = CrashPoint()
    record = story.run(peace)
    sides = [(number, applied) for number in range(1, peace.seen + 1) for applied in (False, True)]
    if sample is not None:
        draw = random.Random(seed)  # noqa: S311 - a run is to be repeated, not to be secret
        sides = _spread(sides, sample, draw)
    elif peace.seen > WRITES_MAX:
        raise AssertionError(f"{peace.seen} writes; more than {WRITES_MAX} need sample=")
    for number, applied in sides:
        point = CrashPoint(number, applied=applied)
        found = story.run(point)
        if (found.status, found.outcome) != (record.status, record.outcome):
            raise AssertionError(
                f"flow {flow.name!r} came to {found.status} {found.outcome} {point}, "
                f"and to {record.status} {record.outcome} without"
            )
    return CrashReport(peace.seen, record.status.value, record.outcome, len(sides))


def _spread(sides: list[_Side], count: int, draw: random.Random) -> list[_Side]:
    """One side of each of ``count`` equal parts of the run."""
    if count < 1:
        raise UsageError(f"sample is at least 1, not {count!r}")
    count = min(count, len(sides))
    edges = [part * len(sides) // count for part in range(count + 1)]
    return [sides[draw.randrange(a, b)] for a, b in itertools.pairwise(edges)]


def _stuck_in(world: World) -> str | None:
    """Why a flow could not go on at a time, also where it could the next."""
    for served in world.history.instances.served:
        attributes = getattr(served.asked, "attributes", None)
        if served.op == "commit" and attributes is not None and STUCK in attributes:
            return str(decode_json(attributes)[STUCK])
    return None


@dataclass(frozen=True, slots=True)
class _Story:
    app: App
    flow: Flow[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    drive: Drive | None
    limit_s: float

    def run(self, point: CrashPoint) -> InstanceRecord:
        world = World(crash=point)
        record = world.run(self._tell)
        stuck = _stuck_in(world)
        if stuck is not None:
            raise AssertionError(
                f"flow {self.flow.name!r} {point} was run again, and did not do what its history "
                f"says, so that it depends on chance, on time or on what it remembers: {stuck}"
            )
        broken = check_instances(world.history.instances)
        if broken:
            said = "\n".join(str(violation) for violation in broken[:5])
            raise AssertionError(f"flow {self.flow.name!r} {point}:\n{said}")
        return record

    async def _tell(self, world: World) -> InstanceRecord:
        started = asyncio.Event()
        supervising = asyncio.ensure_future(self._supervise(world, started))
        watching = asyncio.ensure_future(self._watch(world, started))
        both = supervising, watching
        try:
            # The host is supervised without end: that it ends is its failure.
            done, _ = await asyncio.wait(
                both, timeout=self.limit_s, return_when=asyncio.FIRST_COMPLETED
            )
            if supervising in done:
                supervising.result()
            if not done:
                raise TimeoutError(
                    f"flow {self.flow.name!r} made no end within {self.limit_s:g} s of its time"
                )
            return watching.result()
        finally:
            for task in both:
                task.cancel()
            await asyncio.wait(both)

    async def _watch(self, world: World, started: asyncio.Event) -> InstanceRecord:
        async with await world.connect() as user:
            await started.wait()
            if self.drive is not None:
                await self.drive(user.flows.get(_ID))
            return await self._end(world)

    async def _supervise(self, world: World, started: asyncio.Event) -> None:
        """Start the host, and start it again whenever it has died."""
        burying: list[asyncio.Future[None]] = []
        while True:
            host = world.simulation.start_host(HOST)
            task = host.spawn(self._serve(world, host, started), name="serve")
            if await host.join(task):
                task.result()
            else:
                burying.append(asyncio.ensure_future(world.bury(host)))

    async def _serve(self, world: World, host: SimHost, started: asyncio.Event) -> None:
        async with await world.connect_on(host, self.app) as connected:
            running = asyncio.ensure_future(connected.run())
            await asyncio.sleep(0)
            # The same id each time: what is there already is not started again.
            await connected.flows.start(self.flow, *self.args, id=_ID, **self.kwargs)
            started.set()
            await running

    async def _end(self, world: World) -> InstanceRecord:
        """Wait until everything has ended, and show it to the checker."""
        driver = await world.store.open(HostId("witness"))
        assert driver.instances is not None
        store = driver.instances
        look_s = _LOOK_S
        before: Sequence[InstanceRecord] = ()
        while True:
            records = await store.list(InstanceFilter(), after=None, limit=_PAGE)
            if all(record.status in FINAL for record in records):
                break
            if look_s > _STILL_S and records == before and await self._stays(driver, records):
                raise TimeoutError(
                    f"flow {self.flow.name!r} waits for what nobody sends: let drive= send its "
                    "signals and updates, under the names that the flow waits for"
                )
            before = records
            await asyncio.sleep(look_s)
            look_s *= 1.5
        world.history.instances.left = {
            record.id: Left(record, await store.history(record.id, after=record.base, limit=_PAGE))
            for record in records
        }
        await driver.close()
        return next(record for record in records if record.id == InstanceId(_ID))

    async def _stays(self, driver: Driver, records: Sequence[InstanceRecord]) -> bool:
        """Whether nothing is left that could wake a flow: no timer, no job, no role of the app."""
        if self.app.leaders or self.app.periodics or self.app.crons:
            return False
        live = [record for record in records if record.status not in FINAL]
        if any(record.owner is not None or record.due_at is not None for record in live):
            return False
        assert driver.jobs is not None
        return not await driver.jobs.list(JobFilter(states=LIVE), after=None, limit=1)
