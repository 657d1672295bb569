"""A host that runs an app for the length of a test."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import outlive


class Fleet:
    """Hosts on one memory store, each running its app beside the test."""

    def __init__(self, stack: contextlib.AsyncExitStack, name: str) -> None:
        self._stack = stack
        self.url = f"memory://{name}"

    async def host(self, name: str = "looker", **options: object) -> outlive.Host:
        """Connect a host that only looks."""
        connecting = outlive.connect(self.url, name=name, **options)
        return await self._stack.enter_async_context(connecting)

    async def run(self, app: outlive.App, name: str = "worker", **options: object):
        """Connect a host and run its app; the task is stopped at the end of the test."""
        host = await self.host(name, app=app, **options)
        task = asyncio.create_task(host.run())
        self._stack.push_async_callback(self._stop, task)
        return host, task

    async def _stop(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is not None:
            raise task.exception()


@pytest.fixture
async def fleet(request):
    async with contextlib.AsyncExitStack() as stack:
        yield Fleet(stack, f"work-{request.node.name}".replace("[", "-").replace("]", ""))


async def until(condition, timeout: float = 5.0) -> None:
    """Wait until ``condition()`` is true, or awaits to something true."""
    async with asyncio.timeout(timeout):
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            await asyncio.sleep(0.005)
