"""What a type checker must say about starting flows: their arguments, and no more than those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

import outlive
from outlive import blocking

app = outlive.App("typed")


@dataclass
class Order:
    id: str


@app.flow
async def tidy() -> None: ...


@app.flow
async def ship(order: Order) -> int:
    return len(order.id)


@app.flow
async def pack(order: Order, boxes: int = 1, note: str = "") -> str:
    return note * boxes


@app.flow
async def weigh(kilograms: list[float], *more: float) -> float:
    return sum(kilograms) + sum(more)


@app.flow
async def hurry(order: Order, *, fast: bool) -> bool:
    return fast


@app.flow
async def long(a: int, b: int, c: int, d: int, e: str) -> str:
    return e


async def accepted(flows: outlive.Flows, anything: outlive.Flow[..., int]) -> None:
    order = Order("o-1")
    assert_type(await flows.start(tidy), outlive.FlowHandle[None])
    assert_type(await flows.start(ship, order, id="x", delay=5), outlive.FlowHandle[int])
    assert_type(await flows.start(pack, order), outlive.FlowHandle[str])
    assert_type(await flows.start(pack, order, 2), outlive.FlowHandle[str])
    assert_type(await flows.start(pack, order, 2, "glass"), outlive.FlowHandle[str])
    assert_type(await flows.start(weigh, [1.0], 2, 3), outlive.FlowHandle[float])
    assert_type(
        await flows.start(hurry, order, kwargs={"fast": True}, id="x"), outlive.FlowHandle[bool]
    )
    assert_type(await flows.start(long, 1, 2, 3, 4, "e"), outlive.FlowHandle[str])
    assert_type(await flows.start("ship", {"order": {"id": "x"}}), outlive.FlowHandle[Any])
    assert_type(await flows.start(anything, 1, "two", at=None), outlive.FlowHandle[int])
    assert_type(await flows.start_many(ship, [order], ids=["a"]), list[outlive.FlowHandle[int]])
    assert_type(await flows.start_many(ship, (order for _ in "ab")), list[outlive.FlowHandle[int]])
    assert_type(await flows.start_many(pack, [order]), list[outlive.FlowHandle[str]])
    assert_type(await flows.start_many(pack, [(order, 2)]), list[outlive.FlowHandle[str]])
    assert_type(await flows.start_many(tidy, [()]), list[outlive.FlowHandle[None]])
    assert_type(await flows.start_many("ship", [{}], delay=1), list[outlive.FlowHandle[Any]])
    assert_type(
        await flows.schedule("nightly", pack, order, 2, cron="0 3 * * *", tz="UTC"),
        outlive.ScheduleInfo,
    )
    await flows.schedule("hourly", hurry, order, kwargs={"fast": True}, every=3600)
    await flows.schedule("by-name", "ship", {"order": {"id": "x"}}, every=3600)


def accepted_without_await(flows: blocking.Flows) -> None:
    order = Order("o-1")
    assert_type(flows.start(tidy), blocking.FlowHandle[None])
    assert_type(flows.start(pack, order, 2, id="x"), blocking.FlowHandle[str])
    assert_type(flows.start(hurry, order, kwargs={"fast": True}), blocking.FlowHandle[bool])
    assert_type(flows.start_many(pack, [(order, 2)]), list[blocking.FlowHandle[str]])
    assert_type(flows.schedule("n", ship, order, every=5), outlive.ScheduleInfo)


async def refused(flows: outlive.Flows, blocked: blocking.Flows) -> None:
    order = Order("o-1")
    await flows.start(ship)  # pyright: ignore[reportCallIssue, reportArgumentType]
    await flows.start(ship, 42)  # pyright: ignore[reportCallIssue, reportArgumentType]
    await flows.start(ship, order, 2)  # pyright: ignore[reportCallIssue, reportArgumentType]
    await flows.start(pack, order, "2")  # pyright: ignore[reportCallIssue, reportArgumentType]
    await flows.start(hurry, order)  # pyright: ignore[reportCallIssue, reportArgumentType]
    await flows.start(ship, order, colour=1)  # pyright: ignore[reportCallIssue]
    await flows.start_many(ship, [1, 2])  # pyright: ignore[reportCallIssue, reportArgumentType]
    plan = flows.schedule
    await plan("n", ship, 1, every=5)  # pyright: ignore[reportCallIssue, reportArgumentType]
    await plan("n", ship, order, clock="* * * * *")  # pyright: ignore[reportCallIssue]
    blocked.start(ship, 42)  # pyright: ignore[reportCallIssue, reportArgumentType]
    blocked.start_many(ship, [1, 2])  # pyright: ignore[reportCallIssue, reportArgumentType]


def children() -> None:
    order = Order("o-1")
    child = outlive.start_child(hurry, order, kwargs={"fast": True})
    assert_type(child, outlive.ChildCall[bool])
    left = outlive.start_child(hurry, order, on_parent_end="abandon", kwargs={"fast": True})
    assert_type(left, outlive.ChildCall[bool])
