"""Hosts that run flows for the length of a test, and a store that counts and fails on demand."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import Counter

import pytest

from outlive.errors import FlowNotFound
from tests.unit.work.conftest import Fleet, until


class Spy:
    """Passes calls on to a store of instances; counts them, and loses replies when told to."""

    def __init__(self, store) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()
        self.commits: list = []
        # By the name of a method: called before each call with its arguments; may raise.
        self.before: dict = {}
        # The same after it; what it raises is what the caller sees of a call that was applied.
        self.after: dict = {}

    def __getattr__(self, name):
        if name == "commit_at_once":
            # What is written at once cannot be lost on its way, nor held up.
            raise AttributeError(name)
        method = getattr(self._store, name)

        async def call(*args, **kwargs):
            self.calls[name] += 1
            if name == "commit":
                self.commits.extend(args[0])
            if name in self.before:
                found = self.before[name](*args, **kwargs)
                if found is not None:
                    await found
            answer = await method(*args, **kwargs)
            if name in self.after:
                self.after[name](answer)
            return answer

        return call


class Gate:
    """Holds up the calls of a spy, once it is shut, until it is opened."""

    def __init__(self) -> None:
        self.reached = 0
        self.shut = False
        self._open = asyncio.Event()

    def __call__(self, *_args, **_kwargs):
        if not self.shut:
            return None
        self.reached += 1
        return self._open.wait()

    def open(self) -> None:
        self.shut = False
        self._open.set()


async def signal(host, id_: str) -> None:
    """Let a child end, as soon as it is there."""

    async def sent() -> bool:
        try:
            await host.flows.get(id_).signal("go")
        except FlowNotFound:
            return False
        return True

    await until(sent)


class FlowFleet(Fleet):
    """Hosts on one memory store."""

    async def spied(self, app, name="worker", **options):
        """Connect a host and run its app over a spy; returns both."""
        host = await self.host(name, app=app, **options)
        spy = Spy(host._driver.instances)
        host._desk.store = host._desk.claimer._store = spy
        await self.go(host)
        return host, spy

    async def go(self, host):
        """Run the app of a host that was connected."""
        task = asyncio.create_task(host.run())
        self._stack.push_async_callback(self._stop, task)
        await until(lambda: host._desk.host is not None and host._desk.host.open)
        return task

    async def run(self, app, name="worker", **options):
        """Connect a host and run its app."""
        host = await self.host(name, app=app, **options)
        return host, await self.go(host)


@pytest.fixture
async def fleet(request):
    async with contextlib.AsyncExitStack() as stack:
        yield FlowFleet(stack, f"flows-{request.node.name}".replace("[", "-").replace("]", ""))


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.service)])
def store_url(request, tmp_path):
    """An empty store of each backend that keeps flows."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'flows.db'}"
    return f"memory://{tmp_path.name}-{uuid.uuid4().hex}"
