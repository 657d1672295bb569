"""What a type checker must say about flows and steps: typed from the call to the result."""

from __future__ import annotations

import asyncio
import random
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import assert_type

import outlive
from outlive.names import InstanceId

app = outlive.App("typed")


@dataclass
class Order:
    id: str


@dataclass
class Receipt:
    order: str


@app.step
async def charge(order: Order, *, retries: int = 0) -> Receipt:
    return Receipt(order.id)


@app.step(retry=outlive.Retry(max_attempts=5), timeout=30, queue="gpu", errors=(ValueError,))
def render(frame: int) -> str:
    return str(frame)


@app.step(once=True)
async def wire(amount: int) -> None: ...


@app.flow
async def ship(order: Order) -> int:
    return len(order.id)


@app.flow(name="shop.checkout", retention=86_400)
async def checkout(order: Order) -> Receipt:
    receipt = await charge(order, retries=3)
    assert_type(receipt, Receipt)
    assert_type(await render(1), str)
    await wire(5)
    assert_type(charge(order), outlive.StepCall[Receipt])
    assert_type(await ship(order), int)
    assert_type(ship(order).id, InstanceId)
    return receipt


async def together(order: Order) -> None:
    first, second = await asyncio.gather(charge(order), render(1))
    assert_type(first, Receipt)
    assert_type(second, str)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(charge(order))
    assert_type(task.result(), Receipt)
    made = asyncio.create_task(render(2))
    assert_type(await made, str)
    done, pending = await asyncio.wait([charge(order), charge(order)], timeout=5)
    assert_type(done.pop().result(), Receipt)
    del pending
    assert_type(await asyncio.wait_for(render(1), 5), str)
    for each in asyncio.as_completed([render(1), render(2)]):
        assert_type(await each, str)


async def asked(order: Order) -> None:
    assert_type(await outlive.wait_signal("ok", Receipt, timeout=5), Receipt)
    child = outlive.start_child(ship, order, id="x", on_parent_end="abandon")
    assert_type(child, outlive.ChildCall[int])
    assert_type(await child, int)
    assert_type(outlive.now(), datetime)
    assert_type(outlive.uuid(), uuid.UUID)
    assert_type(outlive.random(), random.Random)
    assert_type(outlive.patched("x"), bool)
    async with outlive.saga() as saga:
        saga.add(charge, order, retries=1)
        saga.add(charge, 5)  # pyright: ignore[reportArgumentType]

    @outlive.on_query
    def total() -> int:
        return 1

    def positive(amount: int) -> None: ...

    @outlive.on_update("name", validator=positive)
    async def update(amount: int) -> str:
        return str(amount)

    assert_type(total(), int)
    assert_type(await update(1), str)


def told(error: outlive.StepFailed, failed: outlive.FlowFailed) -> None:
    assert_type(error.type, str)
    assert_type(error.cause, Exception | None)
    assert_type(failed.id, str)
    known: list[type[outlive.FlowError]] = [
        outlive.StepFailed,
        outlive.FlowFailed,
        outlive.NonDeterminism,
        outlive.HistoryTooLong,
        outlive.HistoryTooNew,
        outlive.MailboxFull,
    ]
    del known
