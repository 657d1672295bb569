"""Random flow programs, with random things happening: replay decides the same at every prefix."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

import outlive
from outlive import App, StepFailed
from outlive.flows.decision import Decision
from outlive.flows.events import encode_events
from tests.unit.flows.driving import Driven

pytestmark = pytest.mark.whitebox

app = App("random")

SEEDS = 150


@app.step
def act(tag: str) -> str:
    return tag


@app.step(queue="elsewhere")
def send(tag: str) -> str:
    return tag


@app.step(once=True)
def once(tag: str) -> str:
    return tag


@app.flow
async def child(tag: str) -> str:
    return tag


class Program:
    """Flow code made from a seed: a tree of what flow code can do."""

    plain = ("act", "act", "send", "once", "sleep", "child", "signal", "wait", "patch", "status")
    nested = ("gather", "group", "timeout", "first", "saga", "as_completed", "shield")
    branching = ("gather", "group", "first", "as_completed", "shield")

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def block(self, depth: int) -> list[Any]:
        kinds = (*self.plain, *self.nested) if depth else self.plain
        return [
            (kind := self.dice.choice(kinds), self.dice.randrange(1, 4), self.inner(kind, depth))
            for _ in range(self.dice.randrange(1, 4))
        ]

    def inner(self, kind: str, depth: int) -> list[Any]:
        if kind in self.branching:
            return [self.block(depth - 1) for _ in range(self.dice.randrange(2, 4))]
        return [self.block(depth - 1)] if kind in ("timeout", "saga") else []


async def perform(block: list[Any], path: str) -> str:
    told = ""
    for place, (kind, number, inner) in enumerate(block):
        told += str(await KINDS[kind](f"{path}.{place}", number, inner))
    return told[-50:]


async def _gather(path: str, number: int, inner: list[Any]) -> str:
    parts = (perform(block, f"{path}g{n}") for n, block in enumerate(inner))
    return str(await asyncio.gather(*parts, return_exceptions=True))


async def _group(path: str, number: int, inner: list[Any]) -> str:
    try:
        async with asyncio.TaskGroup() as tasks:
            for n, block in enumerate(inner):
                tasks.create_task(perform(block, f"{path}t{n}"))
    except ExceptionGroup as group:
        return f"failed {len(group.exceptions)}"
    return "ok"


async def _timeout(path: str, number: int, inner: list[Any]) -> str:
    try:
        async with asyncio.timeout(number * 3):
            return await perform(inner[0], f"{path}o")
    except TimeoutError:
        return str(await act(f"{path} late"))


async def _first(path: str, number: int, inner: list[Any]) -> str:
    tasks = [
        asyncio.create_task(perform(block, f"{path}f{n}"), name=f"{n}")
        for n, block in enumerate(inner)
    ]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return " ".join(task.get_name() for task in done if task.exception() is None)


async def _as_completed(path: str, number: int, inner: list[Any]) -> str:
    told = ""
    for call in asyncio.as_completed([act(f"{path}c{n}") for n in range(number + 1)]):
        try:
            told += await call
        except StepFailed as error:
            told += error.type
        await act(f"{path} after")
    return told


async def _shield(path: str, number: int, inner: list[Any]) -> str:
    task = asyncio.create_task(perform(inner[0], f"{path}h"))
    try:
        return await asyncio.wait_for(asyncio.shield(task), number)
    except TimeoutError:
        return str(await asyncio.gather(task, return_exceptions=True))


async def _saga(path: str, number: int, inner: list[Any]) -> str:
    async with outlive.saga() as saga:
        saga.add(act, f"{path} undone")
        return await perform(inner[0], f"{path}s")


async def _sleep(path: str, number: int, inner: list[Any]) -> str:
    await asyncio.sleep(number + outlive.random().random())
    return outlive.now().isoformat()


async def _wait(path: str, number: int, inner: list[Any]) -> str:
    try:
        return str(await outlive.wait_signal(f"s{number}", timeout=5 * number))
    except TimeoutError:
        return "none"


async def _signal(path: str, number: int, inner: list[Any]) -> str:
    outlive.signal("other", f"s{number}", path)
    return outlive.uuid().hex[:4]


async def _patch(path: str, number: int, inner: list[Any]) -> str:
    return str(outlive.patched(f"p{number}"))


async def _status(path: str, number: int, inner: list[Any]) -> str:
    outlive.set_status(path)
    return ""


def _called(callee: Any) -> Any:
    async def call(path: str, number: int, inner: list[Any]) -> str:
        return await callee(path)

    return call


KINDS: dict[str, Any] = {
    "act": _called(act),
    "send": _called(send),
    "once": _called(once),
    "child": _called(child),
    "sleep": _sleep,
    "signal": _signal,
    "wait": _wait,
    "patch": _patch,
    "status": _status,
    "gather": _gather,
    "group": _group,
    "timeout": _timeout,
    "first": _first,
    "saga": _saga,
    "as_completed": _as_completed,
    "shield": _shield,
}


def happen(driven: Driven, dice: random.Random) -> bool:
    """Let one of the things happen that can; False if none can."""
    run = driven.run
    steps = [("end", name) for name in driven.steps]
    jobs = [("job", job) for job in run.calling.jobs]
    children = [("child", id_) for id_ in run.children.ids]
    can: list[tuple[str, Any]] = [*steps, *jobs, *children]
    if run.due_at_us is not None:
        can.append(("time", None))
    if not can:
        return False
    can.append(("signal", f"s{dice.randrange(1, 4)}"))
    if dice.random() < 0.02:
        can.append(("cancel", None))
    kind, what = dice.choice(can)
    failed = dice.random() < 0.15
    match kind:
        case "end":
            driven.end(what, RuntimeError("broken") if failed else f"r{dice.randrange(9)}")
        case "job":
            state = {"state": "dead" if failed else "done", "outcome": None if failed else "j"}
            driven.letter("step", "", state, f"job/{what}")
        case "child":
            error = {"type": "E", "message": "m"}
            driven.letter("child", what, {"error": error} if failed else {"result": "c"})
        case "time":
            driven.elapse(max(0.0, (run.due_at_us - driven.now_us) / 1e6) + 0.001)
        case "signal":
            driven.signal(what, dice.randrange(100))
        case _:
            driven.cancel()
    return True


def shown(decision: Decision) -> tuple[Any, ...]:
    """What counts of a decision."""
    return (
        encode_events(decision.events),
        [(task.identity, bytes(task.input), task.attempt) for task in decision.steps],
        decision.jobs,
        decision.starts,
        decision.sends,
        decision.custom,
        (decision.ended, decision.outcome, decision.durable),
    )


@pytest.mark.parametrize("seed", range(SEEDS))
def test_replay_at_every_prefix_goes_on_as_the_run_itself_did(seed):
    dice = random.Random(seed)
    block = Program(seed).block(3)

    async def code() -> str:
        return await perform(block, "r")

    flow = App("a").flow(name="f")(code)
    driven = Driven(flow)
    for _ in range(400):
        if driven.run.ended or not happen(driven, dice):
            break
    states = [(open_calls(driven), driven.run.ended)]
    for length in range(len(driven.rows) + 1):
        rows = driven.rows[:length]
        again = Driven(flow, rows=list(rows), now_us=driven.now_us)
        # Nothing that the history holds is decided a second time.
        for event in again.decisions[0].events:
            assert length == 0 or type(event).__name__ == "Patched", (seed, length, event)
        if length == len(driven.rows):
            states.append((open_calls(again), again.run.ended))
            assert again.run.due_at_us == driven.run.due_at_us
        again.run.close()
    assert states[0] == states[1]


def open_calls(driven: Driven) -> tuple[Any, ...]:
    calling = driven.run.calling
    return (
        {name: bytes(call.input) for name, call in calling.steps.items()},
        calling.jobs,
        driven.run.children.ids,
        driven.run.inbox.carried(),
        driven.run.custom,
    )


@pytest.mark.parametrize("seed", range(SEEDS, SEEDS + 60))
def test_a_crash_at_every_commit_changes_nothing_of_the_history(seed):
    def history(crashing: bool) -> list[Any]:
        dice = random.Random(seed)
        block = Program(seed).block(2)

        async def code() -> str:
            return await perform(block, "r")

        driven = Driven(App("a").flow(name="f")(code))
        for _ in range(200):
            if driven.run.ended or not happen(driven, dice):
                break
            if crashing and not driven.run.ended and not intended(driven):
                driven.crash()
        # What leaves no event is sent again after a crash, under the same id.
        return [row.events for row in driven.rows if row.events != "[]"]

    def intended(driven: Driven) -> bool:
        # A crash in the middle of a step with once is not without consequence.
        return any(call.intended for call in driven.run.calling.steps.values())

    assert history(crashing=True) == history(crashing=False)
