"""Which children are retried by themselves through hosts, on each store that keeps flows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import outlive
from outlive import App, FlowFailed, Retry
from outlive.errors import FlowError, RetryRefused
from outlive.model.instance import InstanceStatus
from tests.unit.flows.hosting.conftest import Spy, signal
from tests.unit.work.conftest import until


async def test_a_child_whose_parent_has_heard_of_its_end_is_not_retried_by_itself(store_url):
    app, ran = App("a"), []

    @app.step(retry=Retry(max_attempts=1))
    async def ship() -> None:
        ran.append("ship")
        raise ValueError("no truck")

    @app.step
    async def refund() -> None:
        ran.append("refund")

    @app.flow
    async def delivery() -> None:
        await ship()

    @app.flow
    async def order() -> None:
        async with outlive.saga() as saga:
            saga.add(refund)
            await delivery()

    async with outlive.connect(store_url, app=app) as host, host.running():
        with pytest.raises(FlowFailed):
            await (await host.flows.start(order, id="o")).result(timeout=10)
        child = host.flows.get("o/delivery#0")
        with pytest.raises(RetryRefused, match="its parent 'o' has already received") as caught:
            await child.retry()
        assert caught.value.reason == "heard"
        assert (await child.status()).status is InstanceStatus.FAILED
        assert ran == ["ship", "refund"]
        # By itself it may run, and one whose parent is forgotten as well.
        with pytest.raises(FlowFailed):
            await (await child.fork(at="ship#0")).result(timeout=10)
        await host.flows.purge("o")
        await child.retry()
        with pytest.raises(FlowFailed):
            await child.result(timeout=10)
        assert ran == ["ship", "refund", "ship", "ship"]


async def test_a_child_whose_end_its_parent_has_not_read_yet_is_not_retried_by_itself(store_url):
    app = App("a")

    @app.step(retry=Retry(max_attempts=1))
    async def ship() -> None:
        raise ValueError("no truck")

    @app.flow
    async def delivery() -> None:
        await outlive.wait_signal("go")
        await ship()

    @app.flow
    async def order() -> None:
        await delivery()

    async with outlive.connect(store_url, app=app) as host, host.running():
        parent, child = await host.flows.start(order, id="o"), host.flows.get("o/delivery#0")
        await until(lambda: child.id in host._desk.host.home.lives)
        await parent.suspend()
        await child.signal("go")
        with pytest.raises(FlowFailed):
            await child.result(timeout=10)
        with pytest.raises(RetryRefused, match="its parent 'o' has already received"):
            await child.retry()
        await parent.resume()
        with pytest.raises(FlowFailed):
            await parent.result(timeout=10)


class Laps:
    """A parent that goes on as new, and a delivery that fails until there is a truck.

    ``first`` and ``second`` are what its two runs do with deliveries.
    """

    def __init__(self) -> None:
        self.app = app = App("laps")
        self.truck = False
        self.ran: list[str] = []
        self.first: Callable[[], Awaitable[None]] = self.nothing
        self.second: Callable[[], Awaitable[None]] = self.nothing

        @app.step(retry=Retry(max_attempts=1))
        async def ship() -> None:
            if not self.truck:
                raise ValueError("no truck")
            self.ran.append("ship")

        @app.step
        async def refund() -> None:
            self.ran.append("refund")

        @app.flow
        async def delivery(wait: bool = False) -> None:
            if wait:
                await outlive.wait_signal("go")
            await ship()

        @app.flow
        async def order(lap: int) -> None:
            if lap == 1:
                await self.first()
                outlive.continue_as_new(2)
            # A flow that was parked meanwhile comes by here again.
            if "second lap" not in self.ran:
                self.ran.append("second lap")
            await self.second()
            await outlive.wait_signal("done")

        self.delivery, self.refund, self.order = delivery, refund, order

    async def nothing(self) -> None:
        pass

    async def heard(self) -> None:
        """Wait for a delivery, and undo what it was for."""
        with contextlib.suppress(FlowFailed):
            await self.delivery()
        await self.refund()

    @asynccontextmanager
    async def gone_on(self, url: str):
        """The order in its second run, and who operates it."""
        async with outlive.connect(url, app=self.app) as host, host.running():
            handle = await host.flows.start(self.order, 1, id="o")
            await until(lambda: "second lap" in self.ran)
            yield host, handle


async def test_a_child_that_ended_before_its_parent_went_on_as_new_is_not_retried(store_url):
    laps = Laps()
    laps.first = laps.heard
    async with laps.gone_on(store_url) as (host, _):
        laps.truck = True
        child = host.flows.get("o/delivery#0")
        with pytest.raises(
            RetryRefused, match=r"as a new run after this flow ended.*fork"
        ) as caught:
            await child.retry()
        assert caught.value.reason == "heard"
        assert (await child.status()).status is InstanceStatus.FAILED
        await (await child.fork(at="ship#0")).result(timeout=10)
    assert laps.ran == ["refund", "second lap", "ship"]


@pytest.mark.parametrize("on_parent_end", ["cancel", "abandon"])
async def test_a_child_that_failed_after_its_parent_left_it_and_went_on_is_retried(
    store_url, on_parent_end
):
    laps = Laps()

    async def left() -> None:
        outlive.start_child(laps.delivery, True, on_parent_end=on_parent_end)

    laps.first = left
    async with laps.gone_on(store_url) as (host, _):
        child = host.flows.get("o/delivery#0")
        await child.signal("go")
        with pytest.raises(FlowFailed):
            await child.result(timeout=10)
        await until(lambda: _no_letters(host, "o"))
        laps.truck = True
        await child.retry()
        await child.result(timeout=10)
    assert laps.ran == ["second lap", "ship"]


async def test_a_child_of_the_present_run_is_retried_as_if_there_had_been_no_other(store_url):
    laps = Laps()

    async def abandoned() -> None:
        outlive.start_child(laps.delivery, True, id="d", on_parent_end="abandon")

    laps.second = abandoned
    async with laps.gone_on(store_url) as (host, handle):
        await handle.signal("done")
        await handle.result(timeout=10)
        child = host.flows.get("d")
        await child.signal("go")
        with pytest.raises(FlowFailed):
            await child.result(timeout=10)
        laps.truck = True
        await child.retry()
        await child.result(timeout=10)


async def test_a_parent_that_goes_on_as_new_while_its_child_is_judged_is_noticed(store_url):
    laps = Laps()

    async def heard() -> None:
        await laps.heard()
        await outlive.wait_signal("again")

    laps.first = heard
    async with outlive.connect(store_url, app=laps.app) as host, host.running():
        handle = await host.flows.start(laps.order, 1, id="o")
        await until(lambda: "refund" in laps.ran)
        store = host._desk.store
        spy = host._desk.store = Spy(store)

        async def go_on(*_: Any, **__: Any) -> None:
            spy.before.clear()
            await handle.signal("again")
            await until(lambda: "second lap" in laps.ran)

        spy.before["history"] = go_on
        with pytest.raises(RetryRefused, match="continued as a new run"):
            await host.flows.get("o/delivery#0").retry()


async def _no_letters(host: Any, id_: str) -> bool:
    return not await host._desk.store.letters(id_, after=0, limit=1)


class Pair:
    """Parents that fail beside a delivery, until they are mended; and what was shipped."""

    def __init__(self) -> None:
        self.app = app = App("pair")
        self.broken = True
        self.shipped: list[str] = []
        self.begun = asyncio.Event()

        @app.step(retry=Retry(max_attempts=1))
        async def fragile() -> None:
            await self.begun.wait()
            if self.broken:
                raise ValueError("broken")

        @app.step
        async def ship() -> None:
            self.shipped.append("ship")

        self._define_flows(app, fragile, ship)

    def _define_flows(self, app: App, fragile: Any, ship: Any) -> None:
        @app.flow
        async def delivery() -> None:
            self.begun.set()
            await outlive.wait_signal("go")
            await ship()

        @app.flow
        async def gathers() -> None:
            await asyncio.gather(delivery(), fragile())

        @app.flow
        async def groups() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(_awaited(delivery()))
                group.create_task(_awaited(fragile()))

        @app.flow
        async def abandons() -> None:
            child = outlive.start_child(delivery, on_parent_end="abandon")
            await fragile()
            await child

        @app.flow
        async def waits() -> None:
            await delivery()

        @app.flow
        async def completes() -> None:
            outlive.start_child(delivery)
            with contextlib.suppress(outlive.StepFailed):
                await fragile()

        @app.flow
        async def gives_up() -> None:
            child = asyncio.ensure_future(_awaited(delivery()))
            with contextlib.suppress(outlive.StepFailed):
                await fragile()
            child.cancel()
            await outlive.wait_signal("done")

    @asynccontextmanager
    async def running(self, url: str, name: str):
        """The parent, its child, and who operates them."""
        async with outlive.connect(url, app=self.app) as host, host.running():
            yield host, await host.flows.start(name, id="p"), host.flows.get("p/delivery#0")


async def _awaited(call: Awaitable[None]) -> None:
    await call


async def _end_of(handle: Any) -> InstanceStatus:
    with contextlib.suppress(FlowError):
        await handle.result(timeout=10)
    return (await handle.status()).status


@pytest.mark.parametrize("name", ["gathers", "groups"])
async def test_a_child_that_ended_with_its_parent_is_begun_again_by_that_alone(store_url, name):
    pair = Pair()
    async with pair.running(store_url, name) as (host, parent, child):
        assert await _end_of(parent) is InstanceStatus.FAILED
        assert await _end_of(child) is InstanceStatus.CANCELLED
        pair.broken = False
        with pytest.raises(RetryRefused, match=r"retry the parent.*or fork") as caught:
            await child.retry()
        assert caught.value.reason == "stopped"
        await parent.retry()
        # It goes on, with a child of another id: the one that ended stays so.
        with pytest.raises(RetryRefused, match=r"retry the parent.*or fork"):
            await child.retry()
        await signal(host, "p/delivery#0@0.1")
        await parent.result(timeout=10)
        assert pair.shipped == ["ship"]
        assert (await child.status()).status is InstanceStatus.CANCELLED


async def test_a_child_that_was_terminated_with_its_parent_is_begun_again_by_that_alone(store_url):
    pair = Pair()
    async with pair.running(store_url, "waits") as (host, parent, child):
        await until(pair.begun.is_set)
        await parent.terminate("enough")
        assert await _end_of(child) is InstanceStatus.TERMINATED
        with pytest.raises(RetryRefused) as caught:
            await child.retry()
        assert caught.value.reason == "stopped"
        await parent.retry()
        await signal(host, "p/delivery#0@0.1")
        await parent.result(timeout=10)
    assert pair.shipped == ["ship"]


async def test_a_child_that_its_parent_gave_up_is_not_retried_while_that_goes_on(store_url):
    pair = Pair()
    async with pair.running(store_url, "gives_up") as (host, parent, child):
        await until(pair.begun.is_set)
        assert await _end_of(child) is InstanceStatus.CANCELLED
        await until(lambda: _no_letters(host, "p"))
        with pytest.raises(RetryRefused) as caught:
            await child.retry()
        assert caught.value.reason == "stopped"
        await parent.signal("done")
        await parent.result(timeout=10)


async def test_a_child_that_outlives_its_parent_is_retried_by_itself_and_heard(store_url):
    pair = Pair()
    async with pair.running(store_url, "abandons") as (_, parent, child):
        assert await _end_of(parent) is InstanceStatus.FAILED
        await child.cancel("for now")
        assert await _end_of(child) is InstanceStatus.CANCELLED
        pair.broken = False
        await child.retry()
        await child.signal("go")
        await child.result(timeout=10)
        await parent.retry()
        await parent.result(timeout=10)
    assert pair.shipped == ["ship"]


async def test_a_child_that_was_stopped_by_a_parent_that_completed_is_retried(store_url):
    pair = Pair()
    async with pair.running(store_url, "completes") as (_, parent, child):
        assert await _end_of(parent) is InstanceStatus.COMPLETED
        assert await _end_of(child) is InstanceStatus.CANCELLED
        await child.retry()
        await child.signal("go")
        await child.result(timeout=10)
    assert pair.shipped == ["ship"]
