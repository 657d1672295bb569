"""Retries and copies through hosts, on each store that keeps flows."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

import outlive
from outlive import App, FlowFailed, Retry, RetryRefused, UsageError
from outlive.errors import FlowExists
from outlive.flows.events import StepEnded, StepIntended, encode_events
from outlive.model.instance import NewInstance
from outlive.names import InstanceId
from tests.unit.work.conftest import until

pytestmark = pytest.mark.whitebox


class Shop:
    """An app that is broken until it is mended, and what it has run."""

    def __init__(self) -> None:
        self.app = app = App("shop")
        self.broken = True
        self.ran: list[str] = []
        self._define(app)

    def _define(self, app: App) -> None:  # noqa: C901 - one flow after the other
        @app.step
        async def charge(amount: int = 1) -> int:
            self.ran.append(f"charge {amount}")
            return amount

        @app.step
        async def refund() -> None:
            self.ran.append("refund")

        @app.step(retry=Retry(max_attempts=1))
        async def ship() -> str:
            self.ran.append("ship")
            if self.broken:
                raise ValueError("no truck")
            return "shipped"

        @app.step(once=True)
        async def wire(amount: int = 1) -> int:
            self.ran.append("wire")
            return amount

        @app.flow
        async def own() -> int:
            charged = await charge()
            if self.broken:
                raise ZeroDivisionError
            return charged + await charge(2)

        @app.flow
        async def saga() -> str:
            async with outlive.saga() as saga:
                await charge()
                saga.add(refund)
                return await ship()

        @app.flow
        async def both() -> list[Any]:
            return list(await asyncio.gather(charge(), ship()))

        @app.flow
        async def parent() -> list[Any]:
            return [await charge(5), await both()]

        @app.flow
        async def waits() -> str:
            await charge()
            return await outlive.wait_signal("go", str)

        @app.flow
        async def pays(amount: int = 1) -> int:
            return await charge(amount) + await wire(amount + 1)

    def mend(self) -> list[str]:
        self.broken = False
        before, self.ran = self.ran, []
        return before


@pytest.fixture
def shop():
    return Shop()


async def failed(handle) -> None:
    with pytest.raises(FlowFailed):
        await handle.result(timeout=20)


async def test_a_retry_repeats_nothing_that_succeeded(store_url, shop):
    async with outlive.connect(store_url, app=shop.app) as host, host.running():
        handle = await host.flows.start("own")
        await failed(handle)
        assert shop.mend() == ["charge 1"]
        await handle.retry()
        assert await handle.result(timeout=20) == 3
        assert shop.ran == ["charge 2"]

        shop.broken = True
        handle = await host.flows.start("parent")
        await failed(handle)
        shop.mend()
        await handle.retry()
        assert await handle.result(timeout=20) == [5, [1, "shipped"]]
        assert sorted(shop.ran) == ["charge 1", "ship"]
        below = host.flows.get(f"{handle.id}/both#0")
        shop.ran.clear()
        # The child that failed has a successor, which has shipped.
        with pytest.raises(RetryRefused, match="retry the parent"):
            await below.retry()
        assert shop.ran == []


async def test_a_retry_refuses_what_would_be_wrong_and_says_what_to_do(store_url, shop):
    async with outlive.connect(store_url, app=shop.app) as host, host.running():
        handle = await host.flows.start("saga")
        await failed(handle)
        assert shop.mend() == ["charge 1", "ship", "refund"]
        before = await handle.history()
        with pytest.raises(RetryRefused, match="start the flow anew"):
            await handle.retry()
        assert await handle.history() == before
        assert (await handle.status()).status == "failed"
        forked = await handle.fork(at="charge#0")
        assert await forked.result(timeout=20) == "shipped"


async def test_what_may_have_run_once_runs_again_only_if_one_says_so(store_url, shop):
    events = (
        StepEnded(
            at=1, step="charge#0", result=msgspec.Raw(b"1"), input=msgspec.Raw(b'{"amount":1}')
        ),
        StepIntended(at=1, step="wire#0", input=msgspec.Raw(b'{"amount":2}')),
    )
    lost = NewInstance(
        id=InstanceId("lost"),
        kind="flow",
        name="pays",
        input='{"amount":1}',
        request="lost",
        history=(encode_events(events),),
    )
    async with outlive.connect(store_url, app=shop.app) as host, host.running():
        await host.driver.instances.start([lost])
        handle = host.flows.get("lost")
        with pytest.raises(FlowFailed, match="StepOutcomeUnknown"):
            await handle.result(timeout=20)
        with pytest.raises(RetryRefused, match="rerun_unknown=True"):
            await handle.retry()
        assert shop.ran == []
        await handle.retry(rerun_unknown=True)
        assert await handle.result(timeout=20) == 3
        assert shop.ran == ["wire"]


async def test_a_cancelled_flow_goes_on_as_if_nobody_had_asked(store_url, shop):
    async with outlive.connect(store_url, app=shop.app) as host, host.running():
        handle = await host.flows.start("waits")
        await until(lambda: shop.ran)
        await handle.cancel("a mistake")
        with pytest.raises(outlive.FlowCancelled):
            await handle.result(timeout=20)
        shop.mend()
        await handle.retry()
        await handle.signal("go", "went")
        assert await handle.result(timeout=20) == "went"
        assert shop.ran == []


async def test_a_copy_of_all_ends_by_itself_and_one_from_a_step_repeats_none_before_it(
    store_url, shop
):
    shop.mend()
    async with outlive.connect(store_url, app=shop.app) as host, host.running():
        handle = await host.flows.start("pays", id="paid")
        assert await handle.result(timeout=20) == 3
        assert shop.ran == ["charge 1", "wire"]
        last = (await handle.history())[-1].version
        shop.ran.clear()
        forked = await handle.fork(at=last, id="all")
        assert await forked.result(timeout=20) == 3
        assert shop.ran == []
        forked = await handle.fork(at="wire#0")
        assert await forked.result(timeout=20) == 3
        assert shop.ran == ["wire"]
        # Asked for once more it is the same; anything else needs an id of its own.
        assert (await handle.fork(at=last, id="all")).id == "all"
        for wanted in ({"at": 0, "id": "all"}, {"at": last, "id": "paid"}):
            with pytest.raises(FlowExists, match="already exists; use another id"):
                await handle.fork(**wanted)


@pytest.mark.parametrize(
    ("wanted", "match"),
    [
        ({"at": True}, "not True"),
        ({"at": 1.5}, "not 1.5"),
        ({"at": None}, "not None"),
        ({"at": -1}, "known versions: 0 .the beginning of this run., and 1 to 2"),
        ({"at": 0, "input": 5}, "not 5"),
        ({"at": 0, "input": "5"}, "not '5'"),
    ],
)
async def test_a_copy_of_what_there_is_not_is_an_error_of_the_caller(wanted, match, shop):
    async with outlive.connect("memory://copies", app=shop.app) as host, host.running():
        handle = await host.flows.start("pays")
        await handle.result(timeout=20)
        with pytest.raises(UsageError, match=match):
            await handle.fork(**wanted)


@pytest.mark.parametrize("purged", [False, True])
async def test_a_child_that_outlived_its_parent_and_ended_is_heard_of_after_a_retry(
    store_url, purged
):
    app, broken = App("a"), [True]

    @app.step
    async def ship() -> str:
        if broken[0]:
            raise ValueError("no truck")
        return "shipped"

    @app.flow
    async def kid() -> str:
        return await outlive.wait_signal("go", str)

    @app.flow
    async def parent() -> list[str]:
        child = outlive.start_child(kid, on_parent_end="abandon")
        return [await ship(), await child]

    async with outlive.connect(store_url, app=app) as host, host.running():
        handle = await host.flows.start(parent, id="p")
        await failed(handle)
        below = host.flows.get("p/kid#0")
        await below.signal("go", "gone")
        assert await below.result(timeout=20) == "gone"
        if purged:
            await host.flows.purge(id=below.id)
        broken[0] = False
        await handle.retry()
        if purged:
            with pytest.raises(FlowFailed, match="p/kid#0"):
                await handle.result(timeout=20)
        else:
            assert await handle.result(timeout=20) == ["shipped", "gone"]


async def test_no_copy_begins_with_a_step_whose_end_a_retry_kept(fleet):
    app, broken, charged = App("a"), [True], asyncio.Event()

    @app.step
    async def ship() -> str:
        if broken[0]:
            raise ValueError("no truck")
        return "shipped"

    @app.step
    async def charge() -> str:
        await charged.wait()
        return "charged"

    @app.flow
    async def both() -> list[str]:
        done = await asyncio.gather(ship(), charge(), return_exceptions=True)
        if isinstance(done[0], Exception):
            raise done[0]
        return [str(each) for each in done]

    host, _ = await fleet.run(app)
    handle = await host.flows.start(both)
    await until(lambda: _has_rows(handle, 1))
    charged.set()
    await failed(handle)
    broken[0] = False
    await handle.retry()
    assert await handle.result(timeout=20) == ["shipped", "charged"]
    with pytest.raises(UsageError, match="a version that contains it, such as 3"):
        await handle.fork(at="charge#0")
    copy = await handle.fork(at=3)
    assert await copy.result(timeout=20) == ["shipped", "charged"]


async def _has_rows(handle, count):
    return len(await handle.history()) >= count
