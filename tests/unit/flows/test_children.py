"""Child flows: awaited, cancelled with their parent, or abandoned by it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import outlive
from outlive import App
from outlive.flows.failures import decode_failure, flow_error
from outlive.model.instance import InstanceStatus
from tests.unit.flows.driving import Driven

pytestmark = pytest.mark.whitebox

app = App("endings")


@app.step
def add(number: int) -> int:
    return number + 1


@app.flow
async def child(number: int) -> int:
    return await add(number)


def flow(function):
    return App("a").flow(name="f")(function)


def test_calling_a_flow_starts_a_child_and_awaits_it():
    async def code() -> list[int]:
        return list(await asyncio.gather(child(1), child(2)))

    driven = Driven(flow(code), id="p")
    first, second = driven.decisions[-1].starts
    assert (first.id, first.name, first.input) == ("p/child#0", "child", '{"number":1}')
    assert (first.parent, first.kind) == ("p", "flow")
    assert first.request != second.request
    driven.crash()
    assert driven.decisions[-1].starts == ()
    driven.letter("child", "p/child#1", {"result": 20})
    driven.letter("child", "p/child#1", {"result": 21})
    driven.letter("child", "p/child#0", {"result": 10})
    assert driven.outcome == [10, 20]


def test_a_child_may_have_an_id_of_its_own_and_outlive_its_parent():
    seen = []

    async def code() -> None:
        mine = outlive.start_child(child, 1, id="mine")
        seen.append((mine.id, outlive.start_child(child, 2, on_parent_end="abandon").id))
        await mine

    driven = Driven(flow(code), id="p")
    assert seen == [("mine", "p/child#1")]
    mine, left = driven.decisions[-1].starts
    assert (mine.outlives, left.outlives) == (False, True)
    driven.cancel()
    assert [message.to for message in driven.decisions[-1].sends] == ["mine"]


def test_a_child_whose_id_is_taken_is_told_as_failed():
    async def code() -> str:
        try:
            await outlive.start_child(child, 1, id="taken")
        except outlive.FlowFailed as error:
            return error.type
        return ""

    driven = Driven(flow(code), id="p")
    driven.run.children_taken([driven.decisions[-1].starts[0].id], driven.now_us)
    driven.commit()
    assert driven.outcome == "outlive.errors.FlowExists"


def test_giving_up_a_child_cancels_it_unless_it_is_abandoned():
    async def code(how: str) -> str:
        waited = outlive.start_child(child, 1, on_parent_end=how)
        try:
            async with asyncio.timeout(5):
                await waited
        except TimeoutError:
            await add(1)
        return how

    for how, told in (("cancel", ["p/child#0"]), ("abandon", [])):
        driven = Driven(flow(code), (how,), id="p")
        (decision,) = driven.elapse(5)
        assert [message.to for message in decision.sends] == told
        driven.crash()
        # Sent again under the same id, which changes nothing.
        assert [message.to for message in driven.decisions[-1].sends] == told
        driven.crash()
        assert driven.decisions[-1].sends == ()
        driven.work()
        assert driven.outcome == how


def test_children_of_children_have_short_ids_however_deep_they_are():
    async def code() -> None:
        await asyncio.gather(child(1), child(2))

    ids, parent = [], "näher/" * 6
    for _ in range(200):
        driven = Driven(flow(code), id=parent)
        first, second = (start.id for start in driven.decisions[-1].starts)
        driven.crash()
        driven.letter("child", first, {"result": 1})
        driven.letter("child", second, {"result": 1})
        assert driven.outcome is None
        ids += [first, second]
        parent = second
    assert len(set(ids)) == 400
    assert max(len(each.encode()) for each in ids) <= 256
    # Those that are not deep keep their whole path, the others the beginning of it.
    assert ids[1] == "näher/" * 6 + "/child#1"
    assert all(each.startswith("näher/" * 6) for each in ids)


STOPPED = [
    ("FlowCancelled", "flow 'p/child#0' was cancelled: enough"),
    ("FlowTerminated", "flow 'p/child#0' was terminated: enough"),
]


async def told() -> list[str]:
    try:
        await child(1)
    except outlive.FlowError as error:
        cause = error.__cause__
        return [type(error).__name__, str(error), type(cause).__name__, str(cause)]
    return []


async def careless() -> int:
    return await child(1)


@pytest.mark.parametrize(("kind", "said"), STOPPED)
def test_a_flow_whose_child_was_stopped_has_failed_and_tells_its_parent_so(kind, said):
    middle = Driven(flow(careless), id="p", parent="top")
    stopped = {"error": {"type": f"outlive.errors.{kind}", "message": "enough"}}
    decision = middle.letter("child", "p/child#0", stopped)
    assert decision.ended is InstanceStatus.FAILED
    error = flow_error("p", decode_failure(decision.outcome))
    assert isinstance(error, outlive.FlowFailed)
    assert (error.message, str(error.cause)) == (said, said)
    assert type(error.cause) is getattr(outlive, kind)
    assert error.cause.id == "p/child#0"

    top = Driven(flow(told), id="top")
    (letter,) = decision.sends
    top.letter("child", "top/child#0", msgspec.json.decode(letter.payload))
    failed = f"flow 'top/child#0' failed: outlive.errors.FlowFailed: {said}"
    assert top.outcome == ["FlowFailed", failed, kind, said]
