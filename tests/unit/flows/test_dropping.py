"""Flows that are dropped though their code will not have it: their host must go on."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys

import pytest

import outlive
from outlive import App
from outlive.flows import asking
from outlive.model.instance import InstanceStatus
from tests.unit.flows.driving import Driven

pytestmark = pytest.mark.whitebox

app = App("dropping")


@app.step
def add(number: int) -> int:
    return number + 1


@app.step(queue="q")
def add_elsewhere(number: int) -> int:
    return number + 1


@app.flow
async def child(number: int) -> int:
    return await add(number)


def flow(function):
    return App("a").flow(name="f")(function)


async def _signals() -> None:
    await outlive.wait_signal("x")


async def _steps() -> None:
    await asyncio.gather(add(1), add_elsewhere(2), child(3))


async def _sleeps() -> None:
    await asyncio.sleep(3600)


async def _sleeps_until() -> None:
    await outlive.sleep_until(outlive.now().replace(year=9000))


async def _limited() -> None:
    async with asyncio.timeout(3600):
        await outlive.wait_signal("x", timeout=60)


async def _waited_for() -> None:
    await asyncio.wait_for(add(1), 3600)


async def _grouped() -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_stubborn(_signals))
        tasks.create_task(_stubborn(_sleeps))


async def _tells_on_the_way() -> None:
    outlive.set_status("on the way")
    outlive.set_attributes({"a": 1})
    outlive.signal("other", "x")
    outlive.uuid()
    outlive.random()
    outlive.logger().info("on the way")
    outlive.patched("x")
    outlive.start_child(child, 1, on_parent_end="abandon")
    await asyncio.sleep(3600)


async def _saved() -> None:
    async with outlive.saga() as saga:
        saga.add(add, 1)
        try:
            await asyncio.sleep(3600)
        except BaseException as error:
            raise ValueError("something else") from error


async def _cleans_up() -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        await asyncio.create_task(_stubborn(_signals))


async def _managed() -> None:
    class Stubborn:
        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *args: object) -> bool:
            await add(9)
            return True

    async with Stubborn():
        await outlive.wait_signal("x")


async def _nested() -> None:
    await _stubborn(_signals)


async def _stubborn(inner) -> None:
    while True:
        try:
            await inner()
        except BaseException:
            continue


EVERYTHING = (
    *(_signals, _steps, _sleeps, _sleeps_until, _limited, _waited_for, _grouped),
    *(_tells_on_the_way, _saved, _cleans_up, _managed, _nested),
)


@pytest.fixture
def unraisable(monkeypatch):
    """What Python could only tell on its error output."""
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    return told


@pytest.mark.parametrize("inner", EVERYTHING)
def test_code_that_swallows_everything_is_left_behind_and_named(inner, caplog, unraisable):
    async def code() -> None:
        await _stubborn(inner)

    driven = Driven(flow(code), id="greedy")
    before = len(driven.rows)
    with caplog.at_level(logging.WARNING, "outlive.flows"):
        driven.run.close()
    assert "'greedy' (f) was unloaded" in caplog.text
    assert not driven.run.take().durable
    assert len(driven.rows) == before
    del driven
    gc.collect()
    assert unraisable == []


def test_code_that_cleans_up_in_order_is_not_told_of(caplog):
    cleaned: list[str] = []

    async def code() -> None:
        try:
            async with asyncio.timeout(60):
                await outlive.wait_signal("x")
        finally:
            try:
                await add(1)
            finally:
                # As in any other place of its code.
                cleaned.append(asyncio.current_task().get_name())

    Driven(flow(code)).run.close()
    assert cleaned == ["main"]
    assert caplog.text == ""


def test_a_history_that_is_full_ends_code_that_swallows_it(monkeypatch):
    monkeypatch.setattr(asking, "EVENTS_MAX", 5)

    async def code() -> None:
        while True:
            try:
                await add_elsewhere(1)
                outlive.set_status("added")
            except Exception:
                continue

    driven = Driven(flow(code))
    while driven.status is None:
        driven.end(f"add_elsewhere#{len(driven.rows) - 1}", 2)
    assert driven.status is InstanceStatus.FAILED
    assert driven.outcome["type"] == "outlive.errors.HistoryTooLong"
    # What it asked for behind its end is neither recorded nor sent.
    assert driven.told() == [*["StepSent", "StepEnded"] * 3, "Ended"]
    assert [job.step for each in driven.decisions for job in each.jobs] == [
        f"add_elsewhere#{number}" for number in range(3)
    ]


def test_calling_too_much_at_once_ends_code_that_swallows_it(monkeypatch):
    monkeypatch.setattr(asking, "FAN_OUT_MAX", 5)

    async def code() -> None:
        calls = []
        while len(calls) < 10:
            try:
                calls.append(add(1))
            except Exception:
                continue
        await asyncio.wait(calls)

    driven = Driven(flow(code))
    assert driven.status is InstanceStatus.FAILED
    assert "more than 5 calls without waiting" in driven.outcome["message"]
    assert driven.decisions[-1].steps == ()
