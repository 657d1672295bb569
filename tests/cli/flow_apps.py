"""Apps whose flows the tests of the command line run, as modules in the test's own folder."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import outlive
from outlive.cli.worker import load_app

SHOP = """
import outlive

app = outlive.App("shop")


@app.step
async def reserve(item: str) -> str:
    return f"reserved {item}"


@app.step
async def charge(amount: int) -> int:
    if amount < 0:
        raise ValueError("negative")
    return amount * 2


@app.flow
async def checkout(item: str, amount: int = 1) -> int:
    await reserve(item)
    await outlive.wait_signal("approved", bool)
    return await charge(amount)
"""


class Shop:
    """The app in a folder, which the test may change as a programmer would."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self._edition = 0
        self.write(SHOP)

    @property
    def name(self) -> str:
        """What MODULE:APP is now: each edition is a module of its own, so that none is cached."""
        return f"{self._module}:app"

    @property
    def _module(self) -> str:
        return f"shop_{self.folder.name.replace('-', '_')}_{self._edition}"

    def write(self, source: str) -> None:
        self._edition += 1
        (self.folder / f"{self._module}.py").write_text(source)

    def change(self, before: str, after: str) -> None:
        assert before in SHOP
        self.write(SHOP.replace(before, after))

    def run(self, until) -> None:
        """Run the app's flows here until ``until``, a coroutine function, has returned."""
        asyncio.run(self._run(until))

    async def _run(self, until) -> None:
        async with self._serving() as host, asyncio.timeout(60):
            await until(host)

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[outlive.Host]:
        sys.path.insert(0, str(self.folder))
        try:
            app = load_app(self.name)
        finally:
            sys.path.remove(str(self.folder))
        async with outlive.connect(self.url, app=app, name="shop-1") as host:
            running = asyncio.ensure_future(host.run())
            try:
                yield host
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    def approve(self, *ids: str) -> None:
        """Let these flows, which wait for it, go on to their end."""

        async def until(host: outlive.Host) -> None:
            for each in ids:
                handle = host.flows.get(each)
                await handle.signal("approved", True)
                try:
                    await handle.result()
                except outlive.FlowError:
                    continue

        self.run(until)

    def reach_the_wait(self, *ids: str) -> None:
        """Run these flows until they wait for the signal."""

        async def until(host: outlive.Host) -> None:
            for each in ids:
                # A first commit rings nobody; only ends do.
                while (await host.flows.get(each).status()).version == 0:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

        self.run(until)
