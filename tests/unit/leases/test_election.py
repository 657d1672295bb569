"""Election and periodic functions: one host of the fleet at a time."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import outlive
from outlive import App, UsageError


async def test_one_host_leads_and_the_next_follows_a_graceful_step_down():
    trace: list[str] = []
    leading = {name: asyncio.Event() for name in "ab"}

    def app_of(name: str) -> App:
        app = App(name)

        @app.leader("scheduler", ttl=5)
        async def schedule(lease: outlive.Lease) -> None:
            assert lease.is_held
            trace.append(f"{name} leads")
            leading[name].set()
            try:
                await asyncio.sleep(60)
            finally:
                trace.append(f"{name} cleans up, held={lease.is_held}")
                await asyncio.sleep(0.02)
                trace.append(f"{name} done")

        return app

    async with (
        outlive.connect("memory://election", app=app_of("a")) as a,
        outlive.connect("memory://election", app=app_of("b")) as b,
    ):
        first = asyncio.create_task(a.run())
        await asyncio.wait_for(leading["a"].wait(), 5)
        second = asyncio.create_task(b.run())
        await asyncio.sleep(0.02)
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        await asyncio.wait_for(leading["b"].wait(), 5)
        second.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await second
    # Not held from the moment of stepping down, and released only after the clean-up.
    assert trace[:4] == ["a leads", "a cleans up, held=False", "a done", "b leads"]


@pytest.mark.parametrize("error", [RuntimeError, GeneratorExit])
async def test_a_failing_leader_is_elected_again(caplog, error):
    calls = asyncio.Queue()

    async def body(lease: outlive.Lease) -> None:
        calls.put_nowait(lease.token)
        raise error("a dependency is down")

    async with outlive.connect("memory://failing") as host:
        task = asyncio.create_task(host.leases.lead("k", body))
        tokens = [await asyncio.wait_for(calls.get(), 5) for _ in range(2)]
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert tokens[1] > tokens[0]
    assert "a dependency is down" in caplog.text


async def test_leadership_lost_cancels_the_function():
    lost = asyncio.Event()

    async def body(_lease: outlive.Lease) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            lost.set()
            raise

    async with outlive.connect("memory://lost") as host:
        task = asyncio.create_task(host.leases.lead("k", body, ttl=0.3))
        while await host.leases.get("k") is None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await host.leases.break_lease("k", reason="test")
        await asyncio.wait_for(lost.wait(), 5)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_every_runs_each_tick_once_in_the_fleet():
    ticks: list[int] = []
    enough = asyncio.Event()

    async def tick(tick: outlive.Tick) -> None:
        ticks.append(tick.number)
        if len(ticks) == 4:
            enough.set()

    async with (
        outlive.connect("memory://every", name="a") as a,
        outlive.connect("memory://every", name="b") as b,
    ):
        tasks = [asyncio.create_task(h.leases.every(0.1, tick, key="t")) for h in (a, b)]
        await asyncio.wait_for(enough.wait(), 10)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (await a.leases.get("every/t")).state["tick"] >= ticks[3]
    assert len(set(ticks)) == len(ticks)
    assert ticks == sorted(ticks)


async def test_the_next_leader_reports_what_was_missed(caplog):
    seen = asyncio.Queue()

    async with outlive.connect("memory://missed") as host:
        lease = await host.leases.acquire("every/t")
        await lease.renew(state={"tick": 1})
        await lease.release()
        task = asyncio.create_task(host.leases.every(0.2, seen.put_nowait, key="t"))
        tick = await asyncio.wait_for(seen.get(), 5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert tick.missed == tick.number - 2
    assert "' missed " in caplog.text


def test_a_key_is_defined_once():
    app = App("x")

    @app.leader("k")
    async def one(_lease: outlive.Lease) -> None: ...

    with pytest.raises(UsageError, match="twice"):
        app.leader("k")

    @app.every(1)
    async def two() -> None: ...

    with pytest.raises(UsageError, match="twice"):
        app.every(1, key="two")(one)


@pytest.mark.parametrize("interval", [0, -1, 0.01, float("nan")])
def test_bad_intervals_are_refused(interval):
    with pytest.raises(UsageError):
        App("x").every(interval)


async def test_a_step_down_while_the_store_is_away_still_ends(monkeypatch):
    leading = asyncio.Event()

    async def body(_lease: outlive.Lease) -> None:
        leading.set()
        await asyncio.sleep(60)

    async def away(_grant: object) -> None:
        raise outlive.StoreUnavailable("away")

    async with outlive.connect("memory://away") as host:
        task = asyncio.create_task(host.leases.lead("k", body, ttl=0.3))
        await asyncio.wait_for(leading.wait(), 5)
        monkeypatch.setattr(host._driver.leases, "release", away, raising=False)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)
