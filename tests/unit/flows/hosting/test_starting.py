"""Starting flows: what is given is checked before anything is sent, and an id is one flow."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import outlive
from outlive import App
from outlive.errors import FlowExists, FlowFailed, FlowNotFound, UsageError


@dataclass
class Order:
    id: str
    amount: int


def shop() -> App:
    app = App("shop")

    @app.flow
    async def checkout(order: Order, boxes: int = 1) -> int:
        return order.amount * boxes

    @app.flow
    async def hurry(n: int, *, fast: bool, **more: int) -> list[Any]:
        return [n, fast, more]

    @app.flow
    async def parent(n: int) -> list[Any]:
        return await outlive.start_child(hurry, n, kwargs={"fast": True}, id="child")

    @app.flow
    async def rounds(n: int) -> int:
        if n == 0:
            outlive.continue_as_new("one")
        return n

    return app


async def test_what_is_no_option_is_told_how_arguments_are_given_by_name(fleet):
    app = shop()
    host, spy = await fleet.spied(app)
    for flow in (app.flows["hurry"], "hurry"):
        with pytest.raises(UsageError, match=r"'n', 'fast' .* by name as kwargs=\{'n': …, 'fast'"):
            await host.flows.start(flow, n=1, fast=True)
    assert spy.calls["start"] == 0


async def test_arguments_of_a_wrong_type_are_refused_before_anything_is_sent(fleet):
    app = shop()
    host, spy = await fleet.spied(app)
    checkout = app.flows["checkout"]
    with pytest.raises(UsageError, match="flow checkout, argument order: Expected"):
        await host.flows.start(checkout, 42)
    with pytest.raises(UsageError, match="argument boxes: Expected `int`, got `str`"):
        await host.flows.start(checkout, Order("a", 1), "two")
    with pytest.raises(UsageError, match="argument order: Expected `int`"):
        await host.flows.start(checkout, Order("a", "much"))
    with pytest.raises(UsageError, match="argument order"):
        await host.flows.start("checkout", {"order": 42})
    with pytest.raises(UsageError, match="the argument order is missing"):
        await host.flows.start("checkout", {"boxes": 2})
    with pytest.raises(UsageError, match="argument order"):
        await host.flows.start_many(checkout, [Order("a", 1), 42])
    with pytest.raises(UsageError, match="argument order"):
        await host.flows.schedule("s", checkout, 42, every=5)
    assert spy.calls["start"] == 0
    handle = await host.flows.start(checkout, Order("a", 5), id="o")
    assert await handle.result(timeout=5) == 5
    with pytest.raises(UsageError, match="argument boxes"):
        await handle.fork(at=0, input=[Order("a", 1), "two"])
    with pytest.raises(UsageError, match="argument boxes"):
        await handle.fork(at=0, input={"order": {"id": "a", "amount": 1}, "boxes": "two"})


async def test_a_misspelt_parameter_is_named(fleet):
    host, spy = await fleet.spied(shop())
    order = {"id": "a", "amount": 1}
    with pytest.raises(UsageError, match="no parameter 'ordr'; did you mean 'order'\\?"):
        await host.flows.start("checkout", {"ordr": order})
    with pytest.raises(UsageError, match=r"field `amount` .*'order', because .* parameter 'id'\)"):
        await host.flows.start("checkout", {"id": "a"})
    assert spy.calls["start"] == 0
    # What fits as the one argument is that.
    handle = await host.flows.start("checkout", order)
    assert await handle.result(timeout=5) == 1


async def test_an_object_that_names_some_arguments_is_not_one_itself(fleet):
    app = App("a")

    @app.flow
    async def loose(order: Any, amount: int = 1) -> list[Any]:
        return [order, amount]

    @app.flow
    async def alone(order: Any) -> Any:
        return order

    host, spy = await fleet.spied(app)
    with pytest.raises(UsageError, match=r"no parameter 'amuont'; did you mean 'amount'\? \(to "):
        await host.flows.start("loose", {"order": 7, "amuont": 2})
    with pytest.raises(
        UsageError, match=r"no parameter 'x' \(to pass the whole object as 'order', put"
    ):
        await host.flows.start("loose", {"order": 7, "x": 2})
    assert spy.calls["start"] == 0
    whole = {"order": 7, "amuont": 2}
    for flow, given, returned in (
        ("loose", [whole], [whole, 1]),
        ("loose", {"x": 2}, [{"x": 2}, 1]),
        ("alone", whole, whole),
    ):
        assert await (await host.flows.start(flow, given)).result(timeout=5) == returned


async def test_what_json_can_say_is_taken_as_its_type(fleet):
    app = shop()
    host, _ = await fleet.run(app)
    started = await host.flows.start(app.flows["checkout"], {"id": "a", "amount": 3}, 2)
    assert await started.result(timeout=5) == 6


async def test_parameters_behind_a_star_are_given_by_name(fleet):
    app = shop()
    host, _ = await fleet.run(app)
    hurry = app.flows["hurry"]
    handle = await host.flows.start(hurry, 1, kwargs={"fast": True, "id": 5}, id="h")
    assert handle.id == "h"
    assert await handle.result(timeout=5) == [1, True, {"id": 5}]
    assert await (await host.flows.start(app.flows["parent"], 2)).result(timeout=5) == [2, True, {}]
    with pytest.raises(UsageError, match=r"missing a required .*argument: 'fast'"):
        await host.flows.start(hurry, 1)
    with pytest.raises(UsageError, match="argument fast"):
        await host.flows.start(hurry, 1, kwargs={"fast": "very"})
    with pytest.raises(UsageError, match="one JSON value"):
        await host.flows.start("hurry", kwargs={"n": 1, "fast": True})


async def test_beginning_anew_checks_its_arguments(fleet):
    app = shop()
    host, _ = await fleet.run(app)
    with pytest.raises(FlowFailed, match="argument n") as caught:
        await (await host.flows.start(app.flows["rounds"], 0)).result(timeout=5)
    assert caught.value.type == "outlive.errors.UsageError"


async def test_an_id_of_another_flow_is_told_to_who_starts_many(fleet):
    app = shop()
    host, _ = await fleet.run(app)
    checkout = app.flows["checkout"]
    await (await host.flows.start(app.flows["rounds"], 1, id="taken")).result(timeout=5)
    with pytest.raises(FlowExists) as caught:
        await host.flows.start_many(checkout, [Order("a", 1), Order("b", 2)], ids=["taken", "free"])
    assert caught.value.id == "taken"
    # The others of the call were started, as it says.
    assert await host.flows.get("free").result(timeout=5) == 2
    orders, ids = [Order("b", 2), Order("c", 3)], ["free", "new"]
    again = await host.flows.start_many(checkout, orders, ids=ids)
    assert [await handle.result(timeout=5) for handle in again] == [2, 3]
    assert [(each.id, each.entry) for each in again] == [("free", "existing"), ("new", "created")]


async def test_an_id_is_given_once_in_a_call(fleet):
    app = shop()
    host, spy = await fleet.spied(app)
    checkout = app.flows["checkout"]
    with pytest.raises(UsageError, match="'a' is used for two flows"):
        await host.flows.start_many(checkout, [Order("a", 1), Order("a", 2)], ids=["a", "a"])
    assert spy.calls["start"] == 0
    with pytest.raises(FlowNotFound):
        await host.flows.get("a").status()
    same = await host.flows.start_many(checkout, [Order("a", 1), Order("a", 1)], ids=["a", "a"])
    assert [await handle.result(timeout=5) for handle in same] == [1, 1]


async def test_many_are_started_by_name_and_later(fleet):
    app = shop()
    host, _ = await fleet.run(app)
    inputs = [{"order": {"id": "a", "amount": n}} for n in range(3)]
    handles = await host.flows.start_many("checkout", inputs, delay=0.05)
    assert [await handle.result(timeout=5) for handle in handles] == [0, 1, 2]
    (late,) = await host.flows.start_many(
        "checkout", inputs[:1], at=datetime.now(UTC) + timedelta(hours=1)
    )
    assert (await late.status()).status == "pending"


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"a": 1}, {"a": 1}),
        ({}, {}),
        (None, None),
        ("text", "text"),
        ({"document": 5}, 5),
        ([{"document": 5}], {"document": 5}),
        ([[1, 2]], [1, 2]),
        ({"document": {}}, {}),
    ],
)
async def test_a_flow_that_is_registered_by_name_takes_and_gives_json(fleet, given, taken):
    app = App("raw")

    async def run(document):
        return await app.steps["echo"](document)

    app.step(name="echo")(lambda document: document)
    app.flow(name="anything")(run)
    host, _ = await fleet.run(app)
    handle = await host.flows.start("anything", given)
    assert await handle.result(timeout=5) == taken


async def test_which_name_is_wrong_is_told(fleet):
    app = shop()

    @app.flow
    async def waits(what: str) -> str:
        try:
            if what == "signal":
                await outlive.wait_signal(5)
            elif what == "flow":
                outlive.signal(5, "go")
            else:
                outlive.on_query(5)(len)
        except UsageError as error:
            return str(error)
        return ""

    host, _ = await fleet.run(app)
    for what, said in (
        ("signal", "the name of a signal"),
        ("flow", "the id of a flow"),
        ("query", "the name of a query"),
    ):
        handle = await host.flows.start(waits, what)
        assert await handle.result(timeout=5) == f"{said} must be a str, not int"
    with pytest.raises(UsageError, match=r"^the id of a flow must be a str, not int$"):
        await host.flows.start(waits, "signal", id=5)
    with pytest.raises(UsageError, match=r"^the id of a flow must not be empty$"):
        host.flows.get("")
    with pytest.raises(
        UsageError, match=r"^the id of a flow 'a\\nb' contains a control character "
    ):
        host.flows.get("a\nb")
    with pytest.raises(UsageError, match=r"^the id of a flow 'x{40}'… is 513 bytes long; "):
        host.flows.get("x" * 513)
    with pytest.raises(UsageError, match=r"^the id of a flow must not be empty$"):
        await host.flows.list(after="")
    with pytest.raises(UsageError, match=r"^the id of a parent must not be empty$"):
        await host.flows.list(parent="")
    with pytest.raises(UsageError, match=r"^the name of a signal must be a str, not int$"):
        await handle.signal(5)
    with pytest.raises(UsageError, match=r"^the name of an update must be a str, not int$"):
        await handle.update(5)
