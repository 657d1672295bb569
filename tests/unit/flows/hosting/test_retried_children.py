"""Children of retried and of copied flows through hosts, on each store that keeps flows."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest

import outlive
from outlive import App, FlowFailed, Retry
from tests.unit.flows.hosting.conftest import signal


class Family:
    """An app that is broken until it is mended, and which children ran."""

    def __init__(self) -> None:
        self.app = app = App("family")
        self.broken = True
        self.ran: list[str] = []
        self.second_looked = asyncio.Event()
        self._define_parts(app)
        self._define_flows(app)

    def _define_parts(self, app: App) -> None:
        @app.step(retry=Retry(max_attempts=1))
        async def fragile() -> int:
            if self.broken:
                raise ValueError("broken")
            return 1

        @app.step
        async def sound() -> int:
            return 2

        @app.step
        async def look(number: int) -> int:
            # The second call ends first.
            if number == 1:
                await self.second_looked.wait()
            else:
                self.second_looked.set()
            return number

        @app.step
        async def pay(number: int) -> str:
            return f"paid {number}"

        @app.flow
        async def weak(tag: str) -> str:
            self.ran.append(tag)
            if self.broken:
                raise ValueError("broken")
            return tag

        @app.flow
        async def waiting(tag: str) -> str:
            await outlive.wait_signal("go")
            return tag

        self.fragile, self.sound, self.look, self.pay = fragile, sound, look, pay
        self.weak, self.waiting = weak, waiting

    def _define_flows(self, app: App) -> None:  # noqa: C901 - one flow after the other
        @app.flow
        async def abandons() -> str:
            return await outlive.start_child(self.weak, "a", on_parent_end="abandon")

        @app.flow
        async def chooses() -> str:
            await self.sound()
            if self.broken:
                raise ValueError("own code")
            return await outlive.start_child(self.weak, "c", id="chosen")

        @app.flow
        async def late() -> str:
            error = await self._tried()
            child = outlive.start_child(self.waiting, "k", on_parent_end="abandon")
            await self.sound()
            if error:
                raise error
            return await child

        @app.flow
        async def twins() -> list[Any]:
            error = await self._tried()
            mine = outlive.start_child(self.waiting, "same")
            lasting = outlive.start_child(self.waiting, "same", on_parent_end="abandon")
            if error:
                await lasting
                raise error
            return [await mine, await lasting]

        @app.flow
        async def swaps() -> list[Any]:
            error = await self._tried()

            async def one(number: int) -> str:
                await self.look(number)
                return await self.pay(number)

            paid = await asyncio.gather(one(1), one(2))
            if error:
                raise error
            return list(paid)

    async def _tried(self) -> Exception | None:
        try:
            await self.fragile()
        except outlive.StepFailed as error:
            return error
        return None

    @asynccontextmanager
    async def failed(self, url: str, name: str, *, child: str | None = None):
        """The flow of this name, failed and mended; ``child`` is told to end before."""
        async with outlive.connect(url, app=self.app) as host, host.running():
            handle = await host.flows.start(name, id="f")
            if child is not None:
                await signal(host, child)
            with pytest.raises(FlowFailed):
                await handle.result(timeout=10)
            self.broken = False
            yield host, handle


async def test_an_abandoned_child_that_failed_is_begun_again_and_heard(store_url):
    family = Family()
    async with family.failed(store_url, "abandons") as (_, handle):
        await handle.retry()
        assert await handle.result(timeout=10) == "a"
    assert family.ran == ["a", "a"]


async def test_a_child_whose_id_the_code_chooses_behind_a_retry_is_its_own(store_url):
    family = Family()
    async with family.failed(store_url, "chooses") as (_, handle):
        await handle.retry()
        assert await handle.result(timeout=10) == "c"


async def test_a_child_that_ended_with_its_flow_is_heard_though_it_is_called_for_later(store_url):
    family = Family()
    async with family.failed(store_url, "late") as (host, handle):
        await signal(host, "f/waiting#0")
        assert await host.flows.get("f/waiting#0").result(timeout=10) == "k"
        await handle.retry()
        assert await handle.result(timeout=10) == "k"


async def test_no_call_is_given_a_child_that_was_cancelled_with_the_flow(store_url):
    family = Family()
    async with family.failed(store_url, "twins", child="f/waiting#1") as (host, handle):
        await handle.retry()
        # One of the two is begun again, and the other has ended.
        await signal(host, "f/waiting#1@0.1")
        assert await handle.result(timeout=10) == ["same", "same"]


async def test_a_copy_of_a_retried_flow_gives_each_call_its_own_result(store_url):
    family = Family()
    async with family.failed(store_url, "swaps") as (host, handle):
        await handle.retry()
        assert await handle.result(timeout=10) == ["paid 1", "paid 2"]
        versions = [commit.version for commit in await handle.history()]
        await handle.fork(at=versions[-1], id="g")
        assert await host.flows.get("g").result(timeout=10) == ["paid 1", "paid 2"]


async def test_a_copy_of_a_retried_flow_has_children_of_its_own(store_url):
    family = Family()
    async with family.failed(store_url, "late") as (host, handle):
        await handle.retry()
        await signal(host, "f/waiting#0")
        assert await handle.result(timeout=10) == "k"
        before = next(
            commit.version
            for commit in await handle.history()
            if any(type(event).__name__ == "Retried" for event in commit.events)
        )
        await handle.fork(at=before, id="g")
        await signal(host, "g/waiting#0@0.1")
        assert await host.flows.get("g").result(timeout=10) == "k"
