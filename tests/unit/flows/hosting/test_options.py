"""Every option of a step with every way to run one: it takes effect, or the definition is refused.

A cell of the matrix that says neither fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time

import pytest

import outlive
from outlive import App, Retry
from outlive.errors import StepFailed, UsageError

# How a step is run: what is given to make it so.
KINDS = {
    "local": {},
    "thread": {},
    "once": {"once": True},
    "queue": {"queue": "q"},
    "queue thread": {"queue": "q"},
    "transaction": {"transactional": True},
}
SYNCHRONOUS = ("thread", "queue thread", "transaction")

AGAIN = Retry(max_attempts=1000, first=0.02, factor=1, jitter=0)

# An option, and what of it can be given alone.
OPTIONS = {
    "retry": {"retry": AGAIN},
    "retry_for": {"retry": AGAIN, "retry_for": 0.2},
    "timeout": {"timeout": 0.05},
    "heartbeat": {"heartbeat": 0.1},
    "concurrency": {"concurrency": 1},
    "errors": {},
    "middleware": {},
}

REFUSED = {
    ("once", "retry"): "drop retry=",
    ("once", "retry_for"): "drop retry=",
    ("once", "concurrency"): "asyncio.Semaphore",
    ("transaction", "heartbeat"): "give it timeout= instead",
    ("transaction", "concurrency"): "drop concurrency=",
}


class Declined(Exception):
    """What a step lets through as it was raised."""


class Probe:
    """A step of one kind, what it does, and what was seen of it."""

    def __init__(self, kind: str, option: str) -> None:
        self.app = App("a")
        self.kind, self.option = kind, option
        self.attempts = itertools.count(1)
        self.at_once = self.peak = 0
        self.seen: list[str] = []
        self._lock = threading.Lock()
        given = {**KINDS[kind], **OPTIONS[option]}
        if option == "errors":
            given["errors"] = (Declined,)
        function = self._sync if kind in SYNCHRONOUS else self._async
        self.step = self.app.step(name="step", **given)(function)
        if option == "middleware":
            self.app.middleware(self._around)

    async def _around(self, current, call):
        self.seen.append(f"around {current.step}")
        return f"{await call()}!"

    async def _async(self) -> str:
        with self._counted():
            if self._begin():
                await asyncio.sleep(60)
            if self.option == "concurrency":
                await asyncio.sleep(0.02)
            return "done"

    def _sync(self) -> str:
        with self._counted():
            until = time.monotonic() + (0.1 if self.kind == "transaction" else 60)
            while self._begin() and time.monotonic() < until and not outlive.cancelled():
                time.sleep(0.001)
            if self.option == "concurrency":
                time.sleep(0.02)
            return "done"

    @contextlib.contextmanager
    def _counted(self):
        with self._lock:
            self.at_once += 1
            self.peak = max(self.peak, self.at_once)
        try:
            yield
        finally:
            with self._lock:
                self.at_once -= 1

    def _begin(self) -> bool:
        """Fail if it should; whether it is to go on for too long."""
        attempt = next(self.attempts)
        if self.option == "retry" and attempt < 3:
            raise ValueError("again")
        if self.option == "retry_for":
            raise ValueError("always")
        if self.option == "errors":
            raise Declined("card", 7)
        return self.option in ("timeout", "heartbeat")

    async def run(self, host) -> None:
        """Run a flow that calls the step, and look whether the option took effect."""
        found = await (await host.flows.start(self.flow)).result(timeout=20)
        expected = {
            "retry": ["done"],
            "retry_for": ["ValueError"],
            "timeout": ["TimeoutError"],
            "heartbeat": ["TimeoutError"],
            "concurrency": ["done"] * 4,
            "errors": ["Declined card 7"],
            "middleware": ["done!"],
        }[self.option]
        assert found == expected
        if self.option == "retry":
            assert next(self.attempts) == 4
        elif self.option == "retry_for":
            assert 2 < next(self.attempts) < 100
        elif self.option == "concurrency":
            assert self.peak == 1
        elif self.option == "middleware":
            assert self.seen == ["around step#0"]

    def define(self) -> None:
        """Make the flow, once the step is there."""

        @self.app.flow
        async def flow() -> list[str]:
            count = 4 if self.option == "concurrency" else 1
            try:
                return list(await asyncio.gather(*(self.step() for _ in range(count))))
            except Declined as error:
                return [f"Declined {error.args[0]} {error.args[1]}"]
            except StepFailed as error:
                return [error.type]

        self.flow = flow


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
async def test_every_option_takes_effect_or_is_refused(fleet, tmp_path, kind, option):
    if (kind, option) in REFUSED:
        with pytest.raises(UsageError, match=REFUSED[kind, option]):
            Probe(kind, option)
        return
    probe = Probe(kind, option)
    probe.define()
    if kind == "transaction":
        fleet.url = f"sqlite:///{tmp_path / 'flows.db'}"
    host, _ = await fleet.run(probe.app)
    await probe.run(host)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"retry_for": 5}, "give both"),
        ({"retry_for": 5, "retry": Retry(max_attempts=1)}, "give both"),
        ({"once": True, "retry_for": 5}, "give both"),
        ({"once": True, "queue": "q"}, "drop once=True, or drop queue="),
        ({"once": True, "transactional": True}, "once="),
        ({"queue": "q", "transactional": True}, "drop queue="),
    ],
)
def test_options_that_cannot_go_together_are_refused_where_they_are_given(given, said):
    with pytest.raises(UsageError, match=said):
        App("a").step(**given)(len)


def test_the_steps_of_one_queue_agree_on_its_slots():
    app = App("a")
    app.step(queue="q", concurrency=2, name="one")(lambda: None)
    app.step(queue="q", name="two")(lambda: None)
    app.step(queue="other", concurrency=9, name="three")(lambda: None)
    with pytest.raises(UsageError, match="concurrency=2 and 'four' has concurrency=3"):
        app.step(queue="q", concurrency=3, name="four")(lambda: None)


async def test_a_job_of_a_step_that_nobody_begins_in_time_fails_it(fleet):
    app = App("a")

    @app.step(queue="nobody", retry_for=0.1)
    async def step() -> None: ...

    @app.flow
    async def flow() -> str:
        try:
            await step()
        except StepFailed as error:
            return error.step
        return "no"

    host = await fleet.host("flower", app=app)
    host._handlers = list
    await fleet.go(host)
    handle = await host.flows.start(flow)
    await asyncio.sleep(0.15)
    await host._driver.jobs.tend(limit=10)
    assert await handle.result(timeout=5) == "step#0"


async def test_a_step_in_a_queue_that_tells_of_itself_is_left_alone(fleet):
    app = App("a")

    @app.step(queue="q", heartbeat=0.2)
    async def step() -> str:
        for _ in range(6):
            await asyncio.sleep(0.05)
            outlive.current().heartbeat()
        return "done"

    @app.flow
    async def flow() -> str:
        return await step()

    host, _ = await fleet.run(app)
    assert await (await host.flows.start(flow)).result(timeout=10) == "done"


async def test_a_middleware_that_waits_around_a_transaction_of_sqlite_is_told_so(fleet, tmp_path):
    app = App("a")

    @app.middleware
    async def around(_current, call):
        await asyncio.sleep(0.01)
        return await call()

    @app.step(transactional=True)
    def step() -> None: ...

    @app.flow
    async def flow() -> str:
        try:
            await step()
        except StepFailed as error:
            return error.message
        return "no"

    fleet.url = f"sqlite:///{tmp_path / 'flows.db'}"
    host, _ = await fleet.run(app)
    assert "await nothing but the call" in await (await host.flows.start(flow)).result(timeout=10)
