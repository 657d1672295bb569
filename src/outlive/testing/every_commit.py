"""``crash_at_every_commit``: a flow's host dies at each write it makes, and nothing may change.

Owns the points at which a flow's host can die with something to lose, the runs, and their
comparison. On a store in memory and in virtual time: a flow that sleeps for an hour is run dozens
of times in a second.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from outlive.app import App
from outlive.errors import UsageError
from outlive.flows.attributes import STUCK
from outlive.flows.events import Retried, StepEnded, decode_events
from outlive.flows.flow import Flow
from outlive.flows.handle import FlowHandle
from outlive.flows.recording import read_rows
from outlive.model.instance import FINAL, HistoryRow, InstanceFilter, InstanceRecord
from outlive.model.job import LIVE, JobFilter
from outlive.names import HostId
from outlive.ports.driver import Driver
from outlive.serialization import decode_json
from outlive.testing.fault_proxy import Forward, Interceptor
from outlive.testing.simulation import SimHost
from outlive.testing.world import World

Drive = Callable[[FlowHandle[Any]], Awaitable[None]]
"""What somebody does to the flow from outside, once it is there: signals, updates."""

_Side = tuple[int, bool]
"""A write, and whether it is applied when its host dies."""

_Left = Sequence[tuple[InstanceRecord, Sequence[HistoryRow]]]
"""Each flow at the end of a run, with the history of its current run."""

HOST = "host"
"""The machine that dies."""

WRITES = frozenset(f"instances.{write}" for write in ("start", "commit", "transact", "release"))
"""What advances an instance."""

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


class CrashPoint(Interceptor):
    """Which write of the host kills it, and on which side of it; ``None`` only counts them.

    ``stuck`` is why a flow of the host could not go on at a time, also where it could the next.
    """

    def __init__(self, number: int | None = None, *, applied: bool = False) -> None:
        self.number = number
        self.applied = applied
        self.seen = 0
        self.died: str | None = None
        self.stuck: str | None = None

    def __str__(self) -> str:
        if self.number is None:
            return "without a crash"
        side = "after" if self.applied else "before"
        return f"with a crash {side} write {self.number} ({self.died or 'which never came'})"

    async def on_store(
        self,
        host: SimHost,
        operation: str,
        forward: Forward,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Apply a write, and kill its host on the chosen side of the chosen one."""
        if host.machine != HOST or operation not in WRITES:
            return await forward(*args, **kwargs)
        if operation == "instances.commit":
            for commit in args[0]:
                if commit.attributes is not None and STUCK in commit.attributes:
                    self.stuck = str(decode_json(commit.attributes)[STUCK])
        self.seen += 1
        if self.seen != self.number:
            return await forward(*args, **kwargs)
        self.died = operation
        if not self.applied:
            host.crash()
            # The request was lost with its host: nobody waits for an answer.
            await asyncio.get_running_loop().create_future()
        result = await forward(*args, **kwargs)
        host.crash()
        return result


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

    Every run must come to the same status, result or error, do what its history says, record no
    step twice and leave no gap in its history. Another host takes over after each crash.
    ``drive`` is called once in each run, from a host that never dies. Steps run at least once, so
    count effects by their idempotency key. A step with ``once=True`` is one that a crash changes
    by design, and a result that tells the time differs as well: test those by hand.

    A flow of many writes takes a run for each side of each: ``sample`` tries that many of them,
    spread evenly over the run and drawn by ``seed``.

    Raises:
        UsageError: It is no flow of ``app``, or the arguments are not its own.
        AssertionError: A run came to something else, did not do what its history says, or left a
            history that is broken; it says where the host died.
        TimeoutError: The flow made no end within ``limit_s`` of its own time, or waits, after
            ``drive`` has returned, for what nobody is left to send.
    """
    if not isinstance(flow, Flow):  # pyright: ignore[reportUnnecessaryIsInstance]
        name = getattr(flow, "__name__", repr(flow))
        raise UsageError(f"{name!r} is no flow: define it with @app.flow")
    if flow.name not in app.flows:
        raise UsageError(f"{app!r} has no flow {flow.name!r}, so no host would run it")
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


def _broken_in(record: InstanceRecord, rows: Sequence[HistoryRow]) -> Iterator[str]:
    """What no crash may do to a history."""
    versions = [row.version for row in rows]
    if versions != list(range(record.base + 1, record.version + 1)):
        yield f"{record.id!r} has the commits {versions}, not {record.base + 1}..{record.version}"
    ended: set[str] = set()
    for row in rows:
        for event in decode_events(row.events):
            if isinstance(event, Retried):
                # What is behind the cut may be done once more.
                ended.clear()
            elif isinstance(event, StepEnded):
                if event.step in ended:
                    yield f"{record.id!r} has two records of the step {event.step}"
                ended.add(event.step)


@dataclass(frozen=True, slots=True)
class _Story:
    app: App
    flow: Flow[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    drive: Drive | None
    limit_s: float

    def run(self, point: CrashPoint) -> InstanceRecord:
        left = World(interceptor=point).run(self._tell)
        if point.stuck is not None:
            raise AssertionError(
                f"flow {self.flow.name!r} {point} was replayed, and did not do what its history "
                "says, so it depends on randomness, on time or on state in memory: "
                f"{point.stuck}"
            )
        broken = [text for record, rows in left for text in _broken_in(record, rows)]
        if broken:
            raise AssertionError("\n".join((f"flow {self.flow.name!r} {point}:", *broken[:5])))
        return next(record for record, _ in left if record.id == _ID)

    async def _tell(self, world: World) -> _Left:
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

    async def _watch(self, world: World, started: asyncio.Event) -> _Left:
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

    async def _end(self, world: World) -> _Left:
        """Wait until everything has ended."""
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
                    f"flow {self.flow.name!r} waits for a message that is never sent: let drive= "
                    "send its signals and updates, under the names that the flow waits for"
                )
            before = records
            await asyncio.sleep(look_s)
            look_s *= 1.5
        left = [
            (record, await read_rows(store, record.id, after=record.base)) for record in records
        ]
        await driver.close()
        return left

    async def _stays(self, driver: Driver, records: Sequence[InstanceRecord]) -> bool:
        """Whether nothing is left that could wake a flow: no timer, no job, no role of the app."""
        if self.app.leaders or self.app.periodics or self.app.crons:
            return False
        live = [record for record in records if record.status not in FINAL]
        if any(record.owner is not None or record.due_at is not None for record in live):
            return False
        assert driver.jobs is not None
        return not await driver.jobs.list(JobFilter(states=LIVE), after=None, limit=1)
