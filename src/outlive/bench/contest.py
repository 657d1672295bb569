"""The contest: every strategy, with every number of workers, run after run.

Owns the order of things: items are laid out, all workers start at one instant, and what they
recorded is judged when all are done. A store that is not there is skipped by name.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlive.bench.arena import Arena, Site
from outlive.bench.judging import Record, Tally, judge
from outlive.bench.strategies import Strategy, open_arena
from outlive.errors import ConfigurationError, StoreError, UnsupportedByDriver
from outlive.runtime.runtime import Runtime
from outlive.telemetry import plural

# From the moment the start is told until it: every worker must have heard of it by then.
_LEAD_S = 0.02

# Beyond these a contest shows nothing new and takes all day.
WORKERS_MAX = 32
ITEMS_MAX = 10_000
RUNS_MAX = 10_000

# Runs are counted from one: this one has no items.
_NO_RUN = 0

Tell = Callable[[str], None]

# Ten processes that start at once on two cores need some seconds; who is silent for longer than
# this is stuck.
_ANSWER_S = 60.0

# Who has not ended after its input was closed is killed.
_END_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured. ``folder`` of ``None`` keeps SQLite where temporary files go."""

    strategies: tuple[Strategy, ...]
    workers: tuple[int, ...] = (2, 10)
    items: int = 10
    runs: int = 50
    folder: Path | None = None
    urls: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@dataclass(slots=True)
class Outcome:
    """What came of it: tallies, what could not be measured, and how durable each store was."""

    tallies: list[Tally] = field(default_factory=list[Tally])
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    stores: dict[str, str] = field(default_factory=dict[str, str])


async def hold(plan: Plan, runtime: Runtime, tell: Tell) -> Outcome:
    """Measure all of ``plan``, telling what is under way.

    Raises:
        StoreError: A store failed in the middle of a contest.
    """
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="outlive-bench-", dir=plan.folder) as folder:
        site = Site(folder=Path(folder), tag=runtime.new_id(), urls=dict(plan.urls))
        async with crew(max(plan.workers)) as hands:
            for strategy in plan.strategies:
                await _hold_one(plan, strategy, site, hands, runtime, outcome, tell)
    return outcome


async def _hold_one(
    plan: Plan,
    strategy: Strategy,
    site: Site,
    hands: Sequence[Hand],
    runtime: Runtime,
    outcome: Outcome,
    tell: Tell,
) -> None:
    if strategy.store in outcome.skipped:
        return
    if strategy.store != "sqlite" and strategy.store not in site.urls:
        outcome.skipped[strategy.store] = f"no --{strategy.store} URL was given"
        return
    try:
        arena = open_arena(site, strategy, runtime)
        outcome.stores[strategy.store] = await arena.build()
    except UnsupportedByDriver as error:
        outcome.skipped[strategy.label] = str(error)
        return
    except (ConfigurationError, StoreError) as error:
        outcome.skipped[strategy.store] = str(error)
        return
    try:
        contest = _Contest(plan, strategy, arena, runtime)
        for workers in plan.workers:
            size = (plural(workers, "worker"), plural(plan.items, "item"), plural(plan.runs, "run"))
            tell(f"{strategy.label}: {' x '.join(size)}")
            outcome.tallies.append(await contest.run(site, hands[:workers]))
    finally:
        await arena.demolish()
        await arena.close()


class _Contest:
    """One strategy."""

    def __init__(self, plan: Plan, strategy: Strategy, arena: Arena, runtime: Runtime) -> None:
        self._plan = plan
        self._strategy = strategy
        self._arena = arena
        self._clock = runtime.clock
        self._number = 0

    async def run(self, site: Site, hands: Sequence[Hand]) -> Tally:
        """All runs with these workers."""
        plan, strategy = self._plan, self._strategy
        enter = {
            "do": "enter",
            "folder": str(site.folder),
            "tag": site.tag,
            "urls": site.urls,
            "store": strategy.store,
            "strategy": strategy.name,
            "warm_up": _NO_RUN,
        }
        await _answers(hands, enter)
        runs = [await self._run_once(hands) for _ in range(plan.runs)]
        await _answers(hands, {"do": "leave"})
        return judge(
            runs,
            store=strategy.store,
            strategy=strategy.name,
            sound=strategy.sound,
            items=plan.items,
        )

    async def _run_once(self, hands: Sequence[Hand]) -> list[Record]:
        self._number += 1
        await self._arena.lay_out(self._number, self._plan.items)
        start = self._clock.monotonic() + _LEAD_S
        answers = await _answers(hands, {"do": "run", "run": self._number, "start": start})
        return [_record(hand, answer) for hand, answer in zip(hands, answers, strict=True)]


async def _answers(hands: Sequence[Hand], order: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give all the same order and wait for all of them, also where one fails."""
    for hand in hands:
        hand.tell(order)
    heard = await asyncio.gather(*(hand.hear() for hand in hands), return_exceptions=True)
    answers: list[dict[str, Any]] = []
    for answer in heard:
        if isinstance(answer, BaseException):
            raise answer
        answers.append(answer)
    return answers


def _record(hand: Hand, answer: Mapping[str, Any]) -> Record:
    claims = tuple((int(item), float(seconds)) for item, seconds in answer["claims"])
    return Record(worker=hand.name, attempts=int(answer["attempts"]), claims=claims)


class Hand:
    """One worker process."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process

    def tell(self, order: Mapping[str, Any]) -> None:
        """Give an order."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")

    async def hear(self) -> dict[str, Any]:
        """The answer to the oldest order that was not answered yet.

        Raises:
            StoreError: The store failed the worker, or the worker has ended or is stuck.
        """
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_ANSWER_S):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise StoreError(f"worker {self.name} did not answer within {_ANSWER_S:g} s") from None
        if not line:
            raise StoreError(f"worker {self.name} ended; its error is printed above")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise StoreError(answer["error"])
        return answer

    async def end(self) -> None:
        """Close its input, which ends it; kill it if it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(_END_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        except asyncio.CancelledError:
            self._process.kill()
            raise


@asynccontextmanager
async def crew(count: int) -> AsyncGenerator[list[Hand], None]:
    """``count`` workers that have started, until the block ends.

    URLs go over their stdin: others can see a command line.
    """
    hands: list[Hand] = []
    try:
        for number in range(1, count + 1):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "outlive.bench.worker", f"worker-{number}"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            hands.append(Hand(f"worker-{number}", process))
        for hand in hands:
            await hand.hear()
        yield hands
    finally:
        await asyncio.gather(*(hand.end() for hand in hands))
