"""Random flow programs that fail and are retried, again and again: nothing happens twice.

Every call of a program has an input of its own, so that what it begins is known by that.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

import outlive
from outlive import App
from outlive.flows.events import ChildEnded, Failure, Forked, StepEnded
from outlive.flows.rewinding import fork_history
from outlive.model.instance import HistoryRow, InstanceStatus, NewInstance
from outlive.names import Token
from tests.unit.flows.driving import Driven
from tests.unit.flows.retried import retry
from tests.unit.flows.test_random_flows import KINDS, Program, child, perform

pytestmark = pytest.mark.whitebox

SEEDS = 300

# Times that a program is retried while things fail. After that nothing does; but failures that
# others had hidden come to light one by one.
RETRIES = 4
RETRIES_MAX = 40


class Fragile(Program):
    """Programs that fail easily. No sagas: what is undone is not retried."""

    plain = ("act", "act", "send", "once", "sleep", "child", "signal", "abandon", "await")
    nested = ("gather", "both", "both", "group", "first")
    branching = nested


async def _both(path: str, number: int, inner: list[Any]) -> str:
    """Branches that are waited for to their ends, and then the failures of all."""
    parts = [perform(block, f"{path}b{n}") for n, block in enumerate(inner)]
    done = await asyncio.gather(*parts, return_exceptions=True)
    errors = [each for each in done if isinstance(each, Exception)]
    if errors:
        raise errors[0] if number == 1 else ExceptionGroup("some", errors)
    return str(done)


async def _abandon(path: str, number: int, inner: list[Any]) -> str:
    outlive.start_child(child, path, on_parent_end="abandon")
    return ""


async def _await(path: str, number: int, inner: list[Any]) -> str:
    return await outlive.start_child(child, path, on_parent_end="abandon")


KINDS.update(both=_both, abandon=_abandon, **{"await": _await})


class World:
    """What a flow has set going outside, and whether any of it was set going twice."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.succeeded: set[str] = set()
        self.ids: dict[str, str] = {}
        self.requests: dict[str, NewInstance] = {}
        self.keys: dict[str, bytes] = {}
        self.signals: dict[str, str] = {}
        self.lasting: dict[str, str] = {}
        self.ended: set[str] = set()
        self.seen = 0

    def look(self, driven: Driven) -> None:
        """Hold what was decided since against what there is."""
        for decision in driven.decisions[self.seen :]:
            for task in decision.steps:
                self._begin(f"step {bytes(task.input)!r}")
                key, given = task.key or task.identity, bytes(task.input)
                assert self.keys.setdefault(key, given) == given, f"{key} names two calls"
            for job in decision.jobs:
                self._begin(f"step {job.payload.encode()!r}")
                self._new(job.id, job.payload)
            for start in decision.starts:
                if self.requests.setdefault(start.request, start) == start and (
                    self.ids.get(start.id) == start.input
                ):
                    # What was decided on an end recorded ahead may be asked for again as it was.
                    continue
                self._begin(f"child {start.input}")
                self._new(start.id, start.input)
                if start.outlives or start.parent is None:
                    assert start.input not in self.lasting, f"{start.input} goes on twice"
                    self.lasting[start.input] = start.id
            for send in decision.sends:
                if send.kind == "signal":
                    said = f"{send.name} {send.payload}"
                    assert self.signals.setdefault(said, send.id) == send.id, f"{said} twice"
        self.seen = len(driven.decisions)

    def _begin(self, what: str) -> None:
        assert what not in self.succeeded, f"{what} had succeeded"

    def _new(self, id_: str, what: str) -> None:
        assert id_ not in self.ids, f"{id_} was {self.ids[id_]} before it was {what}"
        self.ids[id_] = what

    def happen(self, driven: Driven, failing: float) -> bool:
        """Let one of the things happen that can; False if none can."""
        run, dice = driven.run, self.dice
        can: list[tuple[str, Any]] = [
            *(("end", name) for name in driven.steps),
            *(("job", job) for job in run.calling.jobs),
            *(("child", id_) for id_ in run.children.ids if id_ not in self.ended),
        ]
        if run.due_at_us is not None:
            can.append(("time", None))
        if not can:
            return False
        kind, what = dice.choice(can)
        failed = dice.random() < failing
        match kind:
            case "end" if dice.random() < 0.2 and not intended(driven):
                self._end_ahead(driven, failing)
            case "end":
                given = bytes(driven.steps[what].input)
                driven.end(what, RuntimeError("broken") if failed else "r")
                self._ends(f"step {given!r}", failed=failed)
            case "job":
                state = {"state": "dead" if failed else "done", "outcome": None if failed else "j"}
                driven.letter("step", "", state, f"job/{what}")
                self._ends(f"step {self.ids[what].encode()!r}", failed=failed)
            case "child":
                error = {"type": "E", "message": "m"}
                driven.letter("child", what, {"error": error} if failed else {"result": "c"})
                self.ended.add(what)
                self._ends(f"child {self.ids[what]}", failed=failed)
                if failed:
                    self.lasting.pop(self.ids[what], None)
            case _:
                driven.elapse(max(0.0, (run.due_at_us - driven.now_us) / 1e6) + 0.001)
        self.tell(driven)
        return True

    def _end_ahead(self, driven: Driven, failing: float) -> None:
        """Some steps end while a commit is under way, and the host dies behind the next."""
        tasks = list(driven.steps.values())
        ended = self.dice.sample(tasks, self.dice.randrange(1, len(tasks) + 1))
        events: list[StepEnded] = []
        for task in ended:
            failed = self.dice.random() < failing
            error = Failure("RuntimeError", "broken") if failed else None
            result = msgspec.Raw(b"null" if failed else b'"r"')
            events.append(
                StepEnded(
                    at=driven.now_us,
                    step=task.identity,
                    input=task.input,
                    result=result,
                    error=error,
                    ahead=True,
                )
            )
            self._ends(f"step {bytes(task.input)!r}", failed=failed)
        driven.write(*events)
        driven.crash()
        self.tell(driven)

    def _ends(self, what: str, *, failed: bool) -> None:
        if not failed:
            self.succeeded.add(what)

    def tell(self, driven: Driven) -> None:
        """As a host does with a retried flow: ends that nobody could be told of."""
        while not driven.run.ended and (wanted := driven.run.children.heed()):
            for id_, identity in wanted.items():
                if id_ in self.ended:
                    raw = msgspec.Raw(b'"c"')
                    driven.feed(ChildEnded(at=driven.now_us, child=identity, result=raw))
                if driven.run.ended:
                    break
        self.look(driven)


def lead(driven: Driven, world: World) -> None:
    """Let things happen, and retry or terminate and retry the flow, until it has completed."""
    world.look(driven)
    for number in range(RETRIES_MAX):
        failing = 0.3 if number < RETRIES else 0.0
        last = world.dice.randrange(4) if number > 0 and world.dice.random() < 0.3 else 400
        for turn in range(400):
            if driven.run.ended or (turn >= last and not intended(driven)):
                # It has ended, or somebody has terminated it.
                break
            assert world.happen(driven, failing), f"it waits for nothing: {driven.told()}"
            if world.dice.random() < 0.1 and not driven.run.ended and not intended(driven):
                driven.crash()
                world.tell(driven)
        if driven.status is InstanceStatus.COMPLETED:
            break
        for id_ in list(world.lasting.values()):
            # Ends that nobody hears of.
            if id_ in world.ids and world.dice.random() < 0.5 and id_ not in world.ended:
                world.ended.add(id_)
        retry(driven, rerun_unknown=True)
        world.look(driven)
        world.tell(driven)
    assert driven.status is InstanceStatus.COMPLETED, driven.told()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_succeeded_happens_once_however_often_a_flow_is_retried(seed):
    block = Fragile(seed).block(3)

    async def code() -> str:
        return await perform(block, "r")

    driven, world = Driven(App("a").flow(name="f")(code)), World(seed)
    lead(driven, world)
    again = Driven(driven.flow, rows=list(driven.rows))
    assert again.run.ended
    # What leaves no event is sent again, under the same id.
    assert again.decisions[-1].events == ()
    copy(driven, world.dice)


def copy(driven: Driven, dice: random.Random) -> None:
    """A copy from any commit on goes the same way so far, and comes to an end by itself."""
    at = dice.choice(driven.rows).version
    mark = Forked(at=driven.now_us, id="f", version=at, edited=False)
    texts = fork_history(driven.rows, mark)
    rows = [HistoryRow(n, Token(1), "w", 0, text) for n, text in enumerate(texts, 1)]
    copied, world = Driven(driven.flow, id="g", rows=rows, now_us=driven.now_us), World(at)
    # A step with once that the other flow had begun is of unknown outcome here.
    copied.run.settle_unknown(copied.now_us)
    copied.commit()
    world.look(copied)
    for _ in range(400):
        if copied.run.ended:
            return
        own = [id_ for id_ in copied.run.children.ids if not id_.startswith("g/")]
        assert own == [], "it waits for children of another flow"
        assert world.happen(copied, 0.0), f"it waits for nothing: {copied.told()}"
    raise AssertionError("it comes to no end")


def intended(driven: Driven) -> bool:
    # A crash in the middle of a step with once is not without consequence.
    return any(call.intended for call in driven.run.calling.steps.values())
