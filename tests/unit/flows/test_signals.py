"""Signals, updates and queries: what others say to a flow, and ask it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec
import pytest

import outlive
from outlive import App, InvalidPayload, UpdateRejected, UsageError
from outlive.flows import inbox
from outlive.flows.letters import read_told
from outlive.model.instance import InstanceStatus, Letter
from tests.unit.flows.driving import Driven

pytestmark = pytest.mark.whitebox

app = App("signals")


@app.step
def add(number: int) -> int:
    return number + 1


@dataclass
class Approval:
    by: str


def flow(function):
    return App("a").flow(name="f")(function)


def test_signals_are_read_in_order_also_those_that_came_before():
    async def code() -> list[int]:
        await add(1)
        return [await outlive.wait_signal("n", int) for _ in range(4)]

    driven = Driven(flow(code))
    for number in range(3):
        driven.signal("n", number)
    driven.work()
    driven.crash()
    assert driven.status is None
    driven.signal("other", 9)
    driven.signal("n", 3)
    assert driven.outcome == [0, 1, 2, 3]
    assert Driven(flow(code), rows=driven.rows).run.ended


def test_a_signal_is_of_the_type_that_is_asked_for():
    async def code() -> str:
        try:
            await outlive.wait_signal("ok", Approval)
        except InvalidPayload:
            plain = await outlive.wait_signal("ok")
            return (await outlive.wait_signal("ok", Approval)).by + plain["by"]
        return ""

    driven = Driven(flow(code))
    driven.signal("ok", {"with": "x"})
    driven.signal("ok", {"by": "b"})
    driven.signal("ok", {"by": "a"})
    assert driven.outcome == "ab"


def test_a_wait_ends_by_a_durable_timer():
    async def code() -> str:
        try:
            return await outlive.wait_signal("ok", str, timeout=60)
        except TimeoutError:
            return "late"

    late = Driven(flow(code))
    assert late.told() == ["TimerSet"]
    late.crash()
    late.elapse(61)
    assert late.outcome == "late"

    early = Driven(flow(code))
    early.signal("ok", "yes")
    assert early.outcome == "yes"
    assert early.run.due_at_us is None


def test_a_wait_that_was_given_up_leaves_the_signal_to_the_next():
    async def code() -> list[str]:
        first = outlive.wait_signal("ok", str, timeout=600)
        second = outlive.wait_signal("ok", str)
        await asyncio.wait([first, second], timeout=5)
        first.cancel()
        got = await second
        return [got, await outlive.wait_signal("ok", str)]

    driven = Driven(flow(code))
    driven.elapse(5)
    driven.signal("ok", "a")
    driven.signal("ok", "b")
    assert driven.outcome == ["a", "b"]


def test_first_of_two_signals_and_a_timer():
    async def code() -> str:
        waits = {name: outlive.wait_signal(name) for name in ("yes", "no")}
        done, pending = await asyncio.wait(
            waits.values(), timeout=10, return_when=asyncio.FIRST_COMPLETED
        )
        for wait in pending:
            wait.cancel()
        return next((name for name, wait in waits.items() if wait in done), "neither")

    yes = Driven(flow(code))
    yes.signal("no")
    assert yes.outcome == "no"
    neither = Driven(flow(code))
    neither.elapse(10)
    assert neither.outcome == "neither"


def test_a_flow_signals_another_once():
    async def code() -> None:
        outlive.signal("other", "hello", {"n": 1})
        outlive.signal("other", "hello", {"n": 2})
        await add(1)

    driven = Driven(flow(code), id="me")
    first, second = driven.decisions[-1].sends
    assert (first.to, first.kind, first.name, first.payload) == (
        *("other", "signal", "hello"),
        '{"n":1}',
    )
    assert first.id != second.id
    driven.crash()
    assert driven.decisions[-1].sends == ()
    again = Driven(flow(code), id="me")
    assert again.decisions[-1].sends == (first, second)


def test_a_flow_that_never_asks_says_when_it_is_full(monkeypatch):
    assert inbox.SIGNALS_MAX == 10_000
    monkeypatch.setattr(inbox, "SIGNALS_MAX", 3)

    async def code() -> None:
        await add(1)
        await outlive.wait_signal("n")
        await add(2)

    driven = Driven(flow(code))
    for number in range(3):
        assert not driven.run.inbox.full
        driven.signal("n", number)
    assert driven.run.inbox.full
    driven.work()
    assert not driven.run.inbox.full


def test_a_letter_that_makes_no_sense_is_dropped():
    async def code() -> None:
        await add(1)

    driven = Driven(flow(code))
    assert driven.letter("child", "nobody", {"result": 1}).events == ()
    assert driven.letter("child", "nobody", "x").events == ()
    assert driven.letter("step", "add#0", {"state": "done"}, "job/unknown").events == ()
    assert driven.letter("cancel", "", [1]).events == ()
    assert driven.letter("gossip", "x").events == ()
    for broken in ("", "{", '{"a":1}]', "nul"):
        assert driven.run.read(Letter(9, "m", "signal", "n", broken, 0), 0) is None


# -- updates and queries --------------------------------------------------------------------------


async def account(balance: int) -> int:
    state = {"balance": balance, "seen": 0}

    @outlive.on_query
    def total() -> int:
        return state["balance"]

    @outlive.on_query("plus")
    def added(more: int) -> int:
        return state["balance"] + more

    def positive(amount: int, note: str = "") -> None:
        if amount <= 0:
            raise ValueError("deposit something")

    @outlive.on_update(validator=positive)
    async def deposit(amount: int, note: str = "") -> int:
        state["balance"] += await add(amount)
        return state["balance"]

    @outlive.on_update("fail")
    def failing() -> None:
        raise RuntimeError("always")

    await outlive.wait_signal("close")
    return state["balance"]


def replies(driven: Driven) -> dict[str, object]:
    found = {}
    for decision in driven.decisions:
        for reply in decision.replies:
            told = read_told(reply.payload)
            found[reply.message] = (
                msgspec.json.decode(told.result) if told.error is None else told.error.type
            )
    return found


def test_a_query_looks_and_changes_nothing():
    driven = Driven(flow(account), (5,))
    assert driven.run.answering.query("total") == 5
    assert driven.run.answering.query("plus", 2) == 7
    with pytest.raises(UsageError, match="no query 'gone'; known queries: plus, total"):
        driven.run.answering.query("gone")
    assert driven.run.take().events == ()


def test_what_a_query_cannot_be_asked_is_told_with_the_flow_and_the_query():
    async def code() -> None:
        @outlive.on_query
        def price(item: str, count: int = 1) -> int:
            return item * count

        @outlive.on_query
        def broken(item: str) -> str:
            raise TypeError(f"of its own: {item}")

        await outlive.wait_signal("close")

    driven = Driven(flow(code))
    for args, said in (
        ((), r"flow 'f': query price: missing a required argument: 'item'"),
        (("pen", 1, 2), r"flow 'f': query price: too many positional arguments"),
        (("pen", "two"), r"flow 'f': query price, argument count: Expected `int`, got `str`"),
        ((print,), r"flow 'f': query price .*"),
        (("pen",), r"flow 'f': the answer to query 'price' does not fit its type: Expected `int`"),
    ):
        with pytest.raises(UsageError, match=said):
            driven.run.answering.query("price", *args)
    with pytest.raises(TypeError, match="of its own: pen"):
        driven.run.answering.query("broken", "pen")


def test_a_query_cannot_decide_anything():
    async def code() -> None:
        outlive.on_query("sneaky")(lambda: add(1))
        outlive.on_query("time")(lambda: outlive.now().year)

        with pytest.raises(UsageError, match="plain `def`"):

            @outlive.on_query
            async def slow() -> None: ...

        await add(1)

    driven = Driven(flow(code))
    with pytest.raises(UsageError, match="is read-only"):
        driven.run.answering.query("sneaky")
    assert driven.run.answering.query("time") == 2023


def test_an_update_is_checked_recorded_handled_and_replied_to():
    driven = Driven(flow(account), (5,))
    driven.run.answering.accept("deposit", "[3]")
    assert driven.letter("update", "deposit", [3], "u1").replies == ()
    assert list(driven.steps) == ["add#0"]
    driven.crash()
    assert list(driven.steps) == ["add#0"]
    driven.work()
    assert replies(driven) == {"u1": 9}
    assert driven.run.answering.query("total") == 9
    driven.letter("update", "fail", [], "u2")
    assert replies(driven)["u2"] == "RuntimeError"
    driven.letter("update", "deposit", {"amount": 1, "note": "x"}, "u3")
    driven.work()
    assert replies(driven)["u3"] == 11
    driven.signal("close")
    assert driven.outcome == 11
    assert Driven(flow(account), (5,), rows=driven.rows).run.ended


@pytest.mark.parametrize(
    ("name", "payload", "kind"),
    [
        ("deposit", "[0]", ValueError),
        ("deposit", '["x"]', UpdateRejected),
        ("deposit", "[1, 2, 3]", UsageError),
        ("gone", "[]", UpdateRejected),
    ],
)
def test_an_update_that_is_not_accepted_records_nothing(name, payload, kind):
    driven = Driven(flow(account), (5,))
    with pytest.raises(kind):
        driven.run.answering.accept(name, payload)
    assert driven.run.take().events == ()


def test_an_update_that_nobody_takes_is_replied_to():
    driven = Driven(flow(account), (5,))
    decision = driven.letter("update", "gone", [], "u1")
    assert decision.events == ()
    assert replies(driven)["u1"] == "outlive.errors.UpdateRejected"


@pytest.mark.parametrize("awaited", [False, True])
def test_a_wait_that_nobody_awaited_is_told_when_the_flow_returns(awaited):
    async def code() -> str:
        approved = outlive.wait_signal("approved")
        if awaited:
            await asyncio.wait([approved], timeout=1)
        return "approved!" if approved else "never"

    driven = Driven(flow(code))
    driven.elapse(1)
    assert driven.outcome == "approved!"
    said = [error["message"] for error in driven.errors]
    words = "the flow returned without awaiting signal 'approved': await each call, or cancel it"
    assert said == ([] if awaited else [words])


def test_an_update_whose_handler_hears_of_a_cancel_is_replied_to():
    async def code() -> None:
        work = asyncio.ensure_future(add(1))

        @outlive.on_update
        async def outcome() -> int:
            return await work

        await outlive.wait_signal("stop")
        work.cancel()
        await outlive.wait_signal("never")

    driven = Driven(flow(code))
    driven.letter("update", "outcome", [], of="u1")
    driven.signal("stop")
    assert not driven.run.ended
    (answer,) = [reply for decision in driven.decisions for reply in decision.replies]
    assert answer.message == "u1"
    assert "CancelledError" in answer.payload


def test_an_update_that_the_flow_does_not_finish_has_failed():
    driven = Driven(flow(account), (5,))
    driven.letter("update", "deposit", [3], "u1")
    driven.signal("close")
    assert driven.status is InstanceStatus.COMPLETED
    assert replies(driven)["u1"] == "outlive.errors.UpdateFailed"
    assert driven.stopped == ["add#0"]


def test_status_and_attributes_are_written_when_they_change():
    async def code() -> None:
        outlive.set_status({"phase": 1})
        outlive.set_attributes({"tenant": "a", "size": 3})
        await add(1)
        outlive.set_status("done")
        outlive.set_attributes({"size": None, "big": True})
        await add(2)

    driven = Driven(flow(code))
    assert driven.decisions[-1].durable
    assert (driven.custom, driven.attributes) == ('{"phase":1}', '{"size":3,"tenant":"a"}')
    driven.work(1)
    assert (driven.custom, driven.attributes) == ('"done"', '{"big":true,"tenant":"a"}')
    driven.crash()
    assert driven.decisions[-1].custom is None
    assert driven.decisions[-1].attributes is None


@pytest.mark.parametrize(
    "ask",
    [
        lambda: outlive.set_attributes({"a": [1]}),
        lambda: outlive.set_attributes({"": 1}),
        lambda: outlive.set_attributes({str(n): n for n in range(100)}),
        lambda: outlive.set_status("x" * 100_000),
        lambda: outlive.set_status(object()),
        lambda: outlive.signal("to", "name", object()),
        lambda: outlive.start_child(lambda: None),
    ],
)
def test_what_cannot_be_kept_is_refused(ask):
    async def code() -> None:
        with pytest.raises(UsageError):
            ask()

    assert Driven(flow(code)).status is InstanceStatus.COMPLETED


@pytest.mark.parametrize(
    "ask",
    [
        outlive.now,
        outlive.uuid,
        outlive.random,
        outlive.logger,
        outlive.saga,
        outlive.flow_id,
        outlive.continue_as_new,
        lambda: outlive.wait_signal("x"),
        lambda: outlive.patched("x"),
        lambda: outlive.set_status(1),
    ],
)
def test_outside_of_a_flow_there_is_nobody_to_ask(ask):
    with pytest.raises(UsageError, match="only in the code of a flow"):
        ask()
