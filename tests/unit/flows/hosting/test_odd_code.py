"""Code that nobody should write, and whose flow must be heard of all the same."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass

import pytest

import outlive
from outlive import App, FlowFailed, FlowOptions, StepFailed, UsageError
from outlive.flows.failures import failure_of
from tests.unit.work.conftest import until

pytestmark = pytest.mark.whitebox


async def test_a_flow_that_swallows_its_end_is_parked_and_the_others_go_on(fleet, caplog):
    app = App("a")

    @app.flow
    async def greedy() -> None:
        while True:
            try:
                await outlive.wait_signal("x")
            except BaseException:
                continue

    @app.flow
    async def modest() -> str:
        return await outlive.wait_signal("go", str)

    host, _ = await fleet.run(app, flows=FlowOptions(park_grace=0.01))
    handle = await host.flows.start(greedy, id="g")
    other = await host.flows.start(modest)
    await until(lambda: not host._desk.host.home.lives)
    await handle.signal("x")
    await other.signal("go", "on")
    assert await other.result(timeout=5) == "on"
    assert "'g' (greedy) was unloaded" in caplog.text
    await handle.terminate()


# -- errors ---------------------------------------------------------------------------------------


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class Hidden(Exception):
    @property
    def args(self):
        raise RuntimeError("no")


def with_notes(notes: object) -> Exception:
    error = ValueError("bad")
    error.__notes__ = notes
    return error


def in_a_circle() -> Exception:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


ODD = {
    "none": lambda: with_notes(None),
    "number": lambda: with_notes(7),
    "unprintable": lambda: with_notes(["good", Unprintable()]),
    "mute": Mute,
    "hidden": Hidden,
    "circle": in_a_circle,
}


def made(odd: str) -> Exception:
    return ODD[odd]()


def test_an_error_keeps_the_notes_that_can_be_read():
    assert failure_of(with_notes(["a", "b"])).message == "bad\na\nb"
    told = failure_of(with_notes(["good", Unprintable()]))
    assert told.message == "bad\ngood\n(unprintable: RuntimeError)"
    assert failure_of(Mute()).message == "(unprintable: RuntimeError)"
    assert failure_of(Hidden(), errors=(Hidden,)).type.endswith(".Hidden")


@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize("odd", ODD)
async def test_a_flow_hears_of_every_error(fleet, odd, threaded):
    app = App("a")

    @app.step(errors=(Hidden,))
    async def fails() -> None:
        raise made(odd)

    @app.step(errors=(Hidden,))
    def fails_in_a_thread() -> None:
        raise made(odd)

    @app.flow
    async def flow() -> None:
        with pytest.raises(StepFailed):
            await (fails_in_a_thread() if threaded else fails())
        raise made(odd)

    host, _ = await fleet.run(app)
    with pytest.raises(FlowFailed):
        await (await host.flows.start(flow)).result(timeout=5)


@dataclass
class Evil:
    number: int = 1

    def __getattribute__(self, name: str) -> object:
        if name == "number":
            raise RuntimeError("no")
        return super().__getattribute__(name)


async def test_a_flow_hears_of_a_result_that_cannot_be_looked_at(fleet):
    app = App("a")

    @app.step
    async def gives():
        made = Evil.__new__(Evil)
        return [made, Unprintable()]

    @app.flow
    async def flow() -> None:
        await gives()

    host, _ = await fleet.run(app)
    with pytest.raises(FlowFailed, match="gives#0 failed"):
        await (await host.flows.start(flow)).result(timeout=5)


# -- steps that do not stop -----------------------------------------------------------------------


@pytest.mark.parametrize("queue", [None, "q"])
@pytest.mark.parametrize("limit", ["timeout", "heartbeat"])
async def test_a_step_that_swallows_its_cancellation_has_failed_in_time(
    fleet, caplog, limit, queue
):
    app = App("a")
    free = asyncio.Event()
    ran: list[str] = []

    @app.step(**{limit: 0.05}, queue=queue)
    async def stubborn() -> str:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                ran.append("cancelled")
        ran.append("ended")
        return "too late"

    @app.flow
    async def flow() -> str:
        try:
            return await stubborn()
        except StepFailed as failed:
            return failed.type

    host, _ = await fleet.run(app)
    assert await (await host.flows.start(flow)).result(timeout=5) == "TimeoutError"
    assert ran == ["cancelled"]
    assert caplog.text.count("swallows cancellation") == 1
    free.set()
    await until(lambda: ran == ["cancelled", "ended"])


@pytest.mark.parametrize("queue", [None, "q"])
async def test_a_step_that_is_out_of_time_may_clean_up(fleet, caplog, queue):
    app = App("a")
    ran: list[str] = []

    @app.step(timeout=0.2, queue=queue)
    async def tidy() -> str:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.02)
            ran.append("cleaned")
        return ""

    @app.flow
    async def flow() -> str:
        try:
            return await tidy()
        except StepFailed as failed:
            ran.append("failed")
            return failed.type

    host, _ = await fleet.run(app)
    assert await (await host.flows.start(flow)).result(timeout=5) == "TimeoutError"
    assert ran == ["cleaned", "failed"]
    assert "swallows cancellation" not in caplog.text


async def test_a_result_after_the_timeout_does_not_count(fleet):
    app = App("a")

    @app.step(timeout=0.05)
    async def late() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "late"
        return ""

    @app.flow
    async def flow() -> str:
        return await late()

    host, _ = await fleet.run(app)
    with pytest.raises(FlowFailed, match="did not end within"):
        await (await host.flows.start(flow)).result(timeout=5)


# -- children, and what is outside of a flow ------------------------------------------------------


async def test_an_abandoned_child_whose_id_is_taken_is_logged(fleet, caplog):
    app = App("a")

    @app.flow
    async def other() -> None:
        await outlive.wait_signal("never")

    @app.flow
    async def small() -> None: ...

    @app.flow
    async def starts() -> str:
        return outlive.start_child(small, id="taken", on_parent_end="abandon").id

    host, _ = await fleet.run(app)
    await host.flows.start(other, id="taken")
    assert await (await host.flows.start(starts, id="s")).result(timeout=5) == "taken"
    assert (
        "flow s of 'starts' did not start 'small': another flow already has the id taken"
        in caplog.text
    )


def test_a_logger_outside_of_a_flow_says_what_to_use():
    with pytest.raises(UsageError, match=r"logging.getLogger\(__name__\)"):
        outlive.logger()


async def test_a_decorator_under_a_flow_runs_around_it_live_and_in_replay(tmp_path):
    app, around = App("a"), []

    def wrapped(flow):
        @functools.wraps(flow)
        async def run(number: int) -> int:
            around.append(number)
            outlive.set_status("wrapped")
            return 10 * await flow(number)

        return run

    @app.flow
    @wrapped
    async def flow(number: int) -> int:
        return number + await outlive.wait_signal("go", int)

    url, options = f"sqlite:///{tmp_path / 'o.db'}", outlive.FlowOptions(park_grace=0)
    async with outlive.connect(url, app=app, flows=options) as host, host.running():
        handle = await host.flows.start(flow, 1, id="f")
        await until(lambda: bool(around))
    async with outlive.connect(url, app=app) as host, host.running():
        await host.flows.get("f").signal("go", 2)
        assert await host.flows.get("f", flow).result(timeout=10) == 30
        assert (await host.flows.get("f").status()).custom == "wrapped"
    assert handle.id == "f"
    assert len(around) >= 2
