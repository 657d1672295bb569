"""Steps in queues whose flow is terminated: they are cancelled, wherever they are."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

import outlive
from outlive import App, JobState
from outlive.errors import FlowTerminated, JobNotFound, StoreUnavailable
from outlive.flows.orphans import cancel_jobs
from tests.unit.work.conftest import until

pytestmark = pytest.mark.whitebox


class Film:
    """An app whose steps in queues tell how they end."""

    def __init__(self) -> None:
        self.app, self.seen = App("film"), []
        app, seen = self.app, self.seen

        @app.step(queue="gpu")
        async def render(scene: str) -> str:
            seen.append(f"{scene} began")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                seen.append(f"{scene} cancelled")
                raise
            return scene

        @app.step(queue="press")
        def print_(scene: str) -> str:
            seen.append(f"{scene} began")
            for _ in range(3000):
                time.sleep(0.01)
                if outlive.cancelled():
                    seen.append(f"{scene} told")
                    break
            return scene

        @app.step(queue="quick")
        async def note() -> None: ...

        @app.flow
        async def scene(name: str) -> str:
            await note()
            return await render(name)

        @app.flow
        async def film() -> list[str]:
            left = outlive.start_child(scene, "left", on_parent_end="abandon", id="left")
            return list(await asyncio.gather(print_("poster"), scene("storm"), scene("calm"), left))

        self.film = film

    async def begun(self) -> None:
        await until(lambda: len(self.seen) == 4, timeout=20)


@contextlib.asynccontextmanager
async def _running(url, film):
    async with outlive.connect(url, app=film.app) as host, host.running():
        yield host


async def test_steps_in_queues_end_with_their_flow_and_its_children(store_url):
    film = Film()
    async with _running(store_url, film) as host:
        handle = await host.flows.start(film.film, id="f")
        await film.begun()
        await handle.terminate("enough")
        await until(lambda: len(film.seen) == 7, timeout=20)
        assert set(film.seen[4:]) == {"poster told", "storm cancelled", "calm cancelled"}
        with pytest.raises(FlowTerminated, match="enough"):
            await handle.result(timeout=5)
        jobs = ("f/print_#0", "f/scene#1/render#0", "f/scene#2/render#0")
        for id_ in jobs:
            await _ended(host, id_, JobState.CANCELLED)
        # The child that was to outlive it goes on, and so does what it waits for.
        assert (await host.work.get("left/render#0")).state is JobState.CLAIMED
        assert (await host.work.get("f/scene#1/note#0")).state is JobState.DONE
        await host.flows.get("left").terminate()
        await until(lambda: "left cancelled" in film.seen, timeout=20)


async def test_a_job_that_nobody_claimed_yet_is_never_run(store_url):
    film = Film()
    async with _running(store_url, film) as host:
        await host.work.pause("gpu")
        await host.work.pause("press")
        handle = await host.flows.start(film.film, id="f")
        await _ended(host, "f/scene#1/render#0", JobState.READY)
        await handle.terminate()
        await _ended(host, "f/scene#1/render#0", JobState.CANCELLED)
        await _ended(host, "f/print_#0", JobState.CANCELLED)
        assert film.seen == []


async def test_who_fails_in_between_terminates_again(fleet, caplog, monkeypatch):
    film = Film()
    host, _ = await fleet.run(film.app)
    handle = await host.flows.start(film.film, id="f")
    await film.begun()

    async def away(ids, *, reason):
        raise StoreUnavailable(f"{ids} {reason}")

    with monkeypatch.context() as patched:
        patched.setattr(host._driver.jobs, "cancel", away)
        await handle.terminate()
    assert "terminate the flow again" in caplog.text
    assert (await host.work.get("f/print_#0")).state is JobState.CLAIMED
    await handle.terminate()
    await _ended(host, "f/print_#0", JobState.CANCELLED)


async def test_a_terminated_flow_that_is_retried_sends_its_steps_again(store_url):
    film = Film()
    async with _running(store_url, film) as host:
        handle = await host.flows.start(film.film, id="f")
        await film.begun()
        await handle.terminate()
        await until(lambda: len(film.seen) == 7, timeout=20)
        await handle.retry()
        await until(lambda: len(film.seen) == 10, timeout=20)
        assert set(film.seen[7:]) == {"poster began", "storm began", "calm began"}
        await handle.terminate()
        await host.flows.get("left").terminate()
        await until(lambda: len(film.seen) == 14, timeout=20)


async def test_what_somebody_else_retries_meanwhile_keeps_its_new_jobs(fleet, monkeypatch):
    app, gate = App("a"), asyncio.Event()

    @app.step(queue="q")
    async def long() -> str:
        await gate.wait()
        return "done"

    @app.flow
    async def flow() -> str:
        return await long()

    host, _ = await fleet.run(app)
    handle = await host.flows.start(flow, id="f")
    await _ended(host, "f/long#0", JobState.CLAIMED)

    async def late(*args):
        await handle.retry()
        await _ended(host, "f/long#0@0.1", JobState.CLAIMED)
        await cancel_jobs(*args)

    monkeypatch.setattr("outlive.flows.operating.cancel_jobs", late)
    await handle.terminate("by mistake")
    await _ended(host, "f/long#0", JobState.CANCELLED)
    gate.set()
    assert await handle.result(timeout=20) == "done"


async def _ended(host, id_, state):
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(JobNotFound):
                if (await host.work.get(id_)).state is state:
                    return
            await asyncio.sleep(0.02)
