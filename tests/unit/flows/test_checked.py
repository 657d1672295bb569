"""Flows that reach out of themselves are refused where they are defined, unless told otherwise."""

from __future__ import annotations

import functools
import inspect
import random
import threading
import time
import uuid
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive import App
from outlive.errors import UsageError
from outlive.flows.recording import Recording, replayed
from outlive.model.instance import InstanceStatus
from outlive.names import InstanceId
from tests.unit.flows.driving import Driven


def test_the_error_names_the_flow_the_place_and_the_fix():
    app = App("a")

    async def stamp() -> float:
        return time.time()

    line = inspect.getsourcelines(stamp)[1] + 1
    with pytest.raises(UsageError) as caught:
        app.flow(name="shop.stamp")(stamp)
    text = str(caught.value)
    assert "'shop.stamp' would read a clock: time.time in " in text
    assert f"(test_checked.py, line {line})" in text
    assert "outlive.now()" in text
    assert "checked=False" in text
    assert app.flows == {}


@pytest.mark.parametrize(
    ("reach", "fix"),
    [
        (random.random, "outlive.random()"),
        (uuid.uuid4, "outlive.uuid()"),
        (lambda: time.sleep(1), "asyncio.sleep"),
        (threading.Thread, "@app.step"),
        (open, "@app.step"),
        (input, "wait_signal"),
    ],
)
def test_each_error_names_its_own_fix(reach, fix):
    async def flow() -> object:
        return reach()

    with pytest.raises(UsageError, match=fix):
        App("a").flow(flow)


def test_what_comes_from_outlive_is_welcome():
    app = App("a")

    @app.flow
    async def flow() -> list[str]:
        return [str(outlive.now()), str(outlive.uuid()), str(outlive.random().random())]

    assert len(Driven(flow).outcome) == 3


def test_steps_may_do_all_of_it():
    app = App("a")

    @app.step
    def look() -> float:
        return time.time() + random.random()

    @app.flow
    async def flow() -> float:
        return await look()

    assert list(app.flows.values()) == [flow]


def test_who_knows_better_says_so():
    app = App("a")

    @app.flow(checked=False)
    async def flow() -> bool:
        return time.time() > 0

    assert Driven(flow).outcome is True


@outlive.unchecked
def age(born: date, today: date | None = None) -> int:
    today = today or date.today()  # noqa: DTZ011 - the point of it
    return today.year - born.year


def test_the_code_of_an_unchecked_helper_is_not_read():
    app = App("a")

    @app.flow
    async def flow() -> int:
        return age(date(2000, 1, 1), date(2020, 5, 5))

    assert Driven(flow).outcome == 20


def test_an_unchecked_helper_is_guarded_while_it_runs():
    @outlive.unchecked
    def read() -> str:
        with Path(__file__).open() as file:
            return file.read()

    async def flow() -> str:
        return read()

    driven = Driven(App("a").flow(flow))
    assert driven.status is InstanceStatus.FAILED
    assert "flow code cannot use a file" in driven.outcome["message"]


def test_the_mark_stays_with_the_function_that_has_it():
    @functools.wraps(age)
    def timed(*args: Any) -> float:
        return time.time() + age(*args)

    async def flow() -> float:
        return timed(date(2000, 1, 1))

    with pytest.raises(UsageError, match=r"time\.time in"):
        App("a").flow(flow)


def test_only_a_plain_function_is_marked():
    with pytest.raises(UsageError, match="right above the def"):
        outlive.unchecked(functools.partial(age, date(2000, 1, 1)))


def later_defined(app: App):
    @app.flow
    async def flow() -> float:
        return read()

    def read() -> float:
        return time.time()

    return flow


def test_a_function_defined_below_the_flow_is_found_before_a_replay():
    flow = later_defined(App("a"))
    recording = Recording(
        id=InstanceId("f"),
        name=flow.name,
        status=InstanceStatus.RUNNING,
        base=0,
        input="{}",
        began_at_us=0,
    )
    with (
        pytest.raises(UsageError, match=r"time\.time in later_defined\.<locals>\.read"),
        replayed(flow, recording),
    ):
        pass


async def test_a_function_defined_below_the_flow_is_found_when_a_host_begins():
    app = App("a")
    later_defined(app)
    host = await outlive.connect("memory://below", app=app)
    try:
        with pytest.raises(UsageError, match=r"time\.time in later_defined\.<locals>\.read"):
            await host.run()
    finally:
        await host.close()
