"""Steps as flow code meets them: identities, copies, failures, attempts, cancellation."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import attrs
import msgspec
import pydantic
import pytest
from msgspec.structs import replace

import outlive
from outlive import (
    App,
    HistoryTooLong,
    Retry,
    StepFailed,
    UsageError,
)
from outlive.flows import asking
from outlive.flows.events import Failure
from outlive.flows.failures import step_error
from outlive.model.instance import InstanceStatus
from tests.unit.flows.driving import Driven, finished

pytestmark = pytest.mark.whitebox

app = App("steps")


@dataclass
class Order:
    id: str
    amount: int = 1


class Receipt(msgspec.Struct):
    order: Order
    paid: bool


@attrs.define
class Parcel:
    weight: float


class Label(pydantic.BaseModel):
    text: str


class CardDeclined(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code


@app.step
async def charge(order: Order) -> Receipt:
    return Receipt(order, paid=True)


@app.step
def add(first: int, second: int = 10, *, scale: int = 1) -> int:
    return (first + second) * scale


@app.step
def many(*parts: int, **named: str):
    return [list(parts), named]


@app.step(errors=(CardDeclined,))
async def pay(amount: int) -> int:
    raise CardDeclined(51, f"{amount} is too much")


def test_a_step_is_called_with_copies_and_gives_copies():
    seen = []

    @app.flow(name="copies")
    async def flow(order: Order) -> Receipt:
        receipt = await charge(order)
        seen.append((order, receipt))
        receipt.order.amount += 1
        return receipt

    mine = Order("a", 5)
    driven = Driven(flow, (mine,))
    task = driven.steps["charge#0"]
    (given,), _ = task.arguments()
    assert given == mine
    result = Receipt(given, paid=True)
    driven.end("charge#0", result)
    assert seen[0][1].order is not given
    assert isinstance(seen[0][1], Receipt)
    assert driven.status is InstanceStatus.COMPLETED
    assert driven.outcome == {"order": {"id": "a", "amount": 6}, "paid": True}
    assert given.amount == 5


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Order, Order("x", 3)),
        (Receipt, Receipt(Order("x"), paid=False)),
        (Parcel, Parcel(1.5)),
        (Label, Label(text="x")),
        (list[Order], [Order("y")]),
        (dict[str, int], {"a": 1}),
        (int | None, None),
    ],
)
def test_every_supported_type_goes_in_and_comes_out(kind, value):
    def body(given):
        return given

    body.__annotations__ = {"given": kind, "return": kind}
    step = App("a").step(name="body")(body)
    seen = []

    async def code(given):
        seen.append(await step(given))
        return seen[0]

    code.__annotations__ = {"given": kind, "return": kind}
    driven = Driven(App("a").flow(code), (value,)).work()
    assert driven.status is InstanceStatus.COMPLETED
    assert seen == [value]
    assert type(seen[0]) is type(value)


def test_the_same_call_five_times_is_five_executions():
    @App("a").flow
    async def flow() -> list[int]:
        return [await add(1) for _ in range(5)]

    driven = Driven(flow).work()
    assert [event.step for event in driven.history()[:-1]] == [f"add#{n}" for n in range(5)]
    assert driven.outcome == [11] * 5
    # One commit for each step's end, and the last one ends the flow.
    assert len(driven.rows) == 5


def test_arguments_are_recorded_by_name_with_their_defaults():
    @App("a").flow
    async def flow():
        await asyncio.gather(add(1), add(first=2, scale=3), many(1, 2, a="b"), many())

    driven = Driven(flow)
    inputs = {name: bytes(task.input) for name, task in driven.steps.items()}
    assert inputs == {
        "add#0": b'{"first":1,"scale":1,"second":10}',
        "add#1": b'{"first":2,"scale":3,"second":10}',
        "many#0": b'{"named":{"a":"b"},"parts":[1,2]}',
        "many#1": b'{"named":{},"parts":[]}',
    }
    assert driven.steps["many#0"].arguments() == ((1, 2), {"a": "b"})
    assert driven.steps["add#1"].arguments() == ((2, 10), {"scale": 3})


def test_outside_of_a_flow_a_step_is_its_function():
    assert add(1, 2) == 3
    assert finished(charge(Order("a"))) == Receipt(Order("a"), paid=True)

    async def inside_a_step() -> int:
        return add(1)

    assert asyncio.run(inside_a_step()) == 11


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (add, "missing a required argument"),
        (lambda: add(1, 2, 3), "too many positional"),
        (lambda: add(object()), "cannot be stored as JSON"),
        (lambda: many("x" * 1024 * 1024), "at most 1048576 are allowed"),
    ],
)
def test_a_wrong_call_is_refused_where_it_is_made(call, words):
    @App("a").flow
    async def flow() -> str:
        try:
            await call()
        except UsageError as error:
            return str(error)
        return "went through"

    driven = Driven(flow)
    assert words in driven.outcome
    assert driven.steps == {}


def test_a_failure_is_seen_by_type_and_text():
    @App("a").flow
    async def flow() -> list[str]:
        try:
            await add(1)
        except StepFailed as error:
            return [error.type, error.message, error.step, str(type(error.cause).__name__)]
        return []

    driven = Driven(flow)
    broken = ValueError("no such thing")
    broken.__cause__ = KeyError("inner")
    driven.end("add#0", broken)
    assert driven.outcome == ["ValueError", "no such thing", "add#0", "StepFailed"]
    again = Driven(flow, rows=driven.rows[:-1])
    assert again.run.ended is False


def test_an_error_that_the_step_names_comes_through_as_it_was():
    @App("a").flow
    async def flow() -> list:
        try:
            await pay(7)
        except CardDeclined as error:
            return [error.code, error.args[1]]
        return []

    driven = Driven(flow).work()
    assert driven.outcome == [51, "7 is too much"]
    assert Driven(flow, rows=driven.rows).run.ended


@pytest.mark.parametrize("module", ["__main__", "shop.cards"])
def test_an_error_comes_through_whatever_its_module_was_called(module):
    @App("a").flow
    async def flow() -> int:
        try:
            await pay(7)
        except CardDeclined as error:
            return error.code
        return 0

    driven = Driven(flow).work()
    name = f"{CardDeclined.__module__}.{CardDeclined.__qualname__}"
    rows = [
        replace(row, events=row.events.replace(name, f"{module}.CardDeclined"))
        for row in driven.rows
    ]
    assert rows != driven.rows
    again = Driven(flow, rows=rows)
    assert again.run.ended
    assert driven.outcome == 51


def test_of_two_classes_of_one_name_none_is_taken_for_that_of_another_module():
    failure = Failure("old.Twin", "x", details=msgspec.Raw(b'{"args":[1]}'))
    twins = [type("Twin", (Exception,), {"__module__": module}) for module in ("a", "b")]
    assert type(step_error("s#0", failure, errors=twins)) is StepFailed
    assert type(step_error("s#0", failure, errors=twins[:1])) is twins[0]
    assert type(step_error("s#0", replace(failure, type="b.Twin"), errors=twins)) is twins[1]


def test_a_named_error_that_cannot_be_rebuilt_is_told():
    @App("a").flow
    async def flow() -> str:
        try:
            await pay(7)
        except StepFailed as error:
            return error.type
        return ""

    driven = Driven(flow)
    broken = CardDeclined(1, "x")
    broken.args = (object(),)
    driven.end("pay#0", broken)
    assert driven.outcome.endswith("CardDeclined")


def test_an_error_that_nobody_handles_fails_the_flow():
    @App("a").flow
    async def flow() -> int:
        return await add(1)

    driven = Driven(flow)
    driven.end("add#0", RuntimeError("broken"))
    assert driven.status is InstanceStatus.FAILED
    assert driven.outcome["type"] == "outlive.errors.StepFailed"
    assert "broken" in driven.outcome["message"]
    assert "traceback" in driven.outcome["details"]


def test_a_result_that_does_not_fit_its_type_fails_the_step():
    @App("a").flow
    async def flow() -> str:
        try:
            return str(await add(1))
        except StepFailed as error:
            return error.type

    driven = Driven(flow)
    driven.end("add#0", "eleven")
    assert driven.outcome == "outlive.errors.InvalidPayload"
    assert driven.history()[0].error is not None
    assert Driven(flow, rows=driven.rows).run.ended


def test_too_many_calls_at_once_are_refused(monkeypatch):
    monkeypatch.setattr(asking, "FAN_OUT_MAX", 20)

    @App("a").flow
    async def flow(count: int) -> int:
        for _ in range(3):
            await asyncio.gather(*(add(n) for n in range(count)))
        return count

    assert Driven(flow, (20,)).work().outcome == 20
    refused = Driven(flow, (21,))
    assert refused.status is InstanceStatus.FAILED
    assert "more than 20 calls without waiting" in refused.outcome["message"]


def test_a_history_that_is_too_long_fails_the_flow_and_names_the_way_out(monkeypatch, caplog):
    monkeypatch.setattr(asking, "EVENTS_MAX", 30)
    monkeypatch.setattr(asking, "EVENTS_WARNED", 10)

    @App("a").flow
    async def flow() -> None:
        async with outlive.saga() as saga:
            saga.add(add, 1)
            while True:
                await add(1)

    driven = Driven(flow).work()
    assert driven.outcome["type"] == f"{HistoryTooLong.__module__}.HistoryTooLong"
    assert "continue_as_new" in driven.outcome["message"]
    assert len([text for text in caplog.messages if "more than 10 events" in text]) == 1
    # What it did was undone all the same.
    assert len(driven.history()) == 32
    assert Driven(flow, rows=driven.rows).run.ended


def test_a_history_of_timers_alone_ends_as_well(monkeypatch):
    monkeypatch.setattr(asking, "EVENTS_MAX", 30)
    monkeypatch.setattr(asking, "EVENTS_WARNED", 20)
    monkeypatch.setattr(asking, "UNDOING_MAX", 10)

    @App("a").flow
    async def flow() -> None:
        for _ in range(100):
            await asyncio.sleep(1)

    driven = Driven(flow)
    driven.elapse(200)
    assert driven.outcome["type"] == f"{HistoryTooLong.__module__}.HistoryTooLong"
    assert driven.run.due_at_us is None
    assert Driven(flow, rows=driven.rows).run.ended


def test_definitions_are_checked():
    local = App("checked")

    @local.step
    def once_more(): ...

    with pytest.raises(UsageError, match="defined twice"):
        local.step(name="once_more")(lambda: None)
    with pytest.raises(UsageError, match="async def"):
        local.flow(lambda: None)
    with pytest.raises(UsageError, match=r"a lambda has no name: write app\.step\(name="):
        local.step(lambda: None)
    with pytest.raises(UsageError, match="not contain '#'"):
        local.step(name="a#b")(lambda: None)
    with pytest.raises(UsageError, match="never runs twice"):
        local.step(once=True, retry=Retry(max_attempts=2))
    with pytest.raises(UsageError, match="transactional"):
        local.step(transactional=True, queue="x")
    with pytest.raises(UsageError, match="drop once"):
        local.step(once=True, queue="x")
    with pytest.raises(UsageError, match="exception classes"):
        local.step(errors=(int,))
    with pytest.raises(UsageError, match="has no option 'colour'"):
        local.step(colour="red")
