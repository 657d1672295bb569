"""A shop whose flows are run by a host beside the server; some steps fail until they are mended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

import outlive
from outlive import Retry
from outlive.flows.events import StepIntended, encode_events
from outlive.model.bearer import Scope
from outlive.model.instance import NewInstance
from outlive.names import InstanceId
from outlive.ports.driver import Driver
from tests.server.api import Api, Got, application, make_token

FLOWS = "/runtime/orchestrations"


@dataclass
class Shop:
    """A server over ASGI, and the store behind it."""

    url: str
    api: Api
    driver: Driver
    stack: AsyncExitStack
    broken: set[str] = field(default_factory=set)

    async def may(self, *scopes: Scope) -> Api:
        """A client that has these scopes alone."""
        _, token = await make_token(self.driver, "shop", *scopes)
        return self.api.with_token(token)

    async def start(self, name: str, **wanted: Any) -> str:
        got = await self.api.post(f"{FLOWS}/start/{name}", wanted)
        assert got.status == 202, got.body
        return got.document["id"]

    async def leave_unknown(self, flow: str) -> None:
        """A flow whose host died in a step that is to run once."""
        intent = StepIntended(at=1, step="wire#0", input=msgspec.Raw(b"{}"))
        new = NewInstance(
            id=InstanceId(flow),
            kind="flow",
            name="wired",
            input="{}",
            request=flow,
            history=(encode_events([intent]),),
        )
        assert self.driver.instances is not None
        await self.driver.instances.start([new])

    async def ended(self, flow: str, query: str = "") -> Any:
        """What is shown of a flow when it has ended."""
        got: Got = await self.api.get(f"{FLOWS}/{flow}", f"wait=50&{query}".rstrip("&"))
        assert got.status == 200, got.body
        return got.document

    async def run(self) -> None:
        """Let a host run the flows until the test ends."""
        await self.stack.enter_async_context(_running(self.url, self._app()))

    def _app(self) -> outlive.App:
        app = outlive.App("shop")

        @app.step(retry=Retry(max_attempts=1))
        async def charge(amount: int) -> str:
            if "charge" in self.broken:
                raise ValueError("CANARY no money")
            return f"paid {amount}"

        @app.flow
        async def checkout(amount: int = 1) -> str:
            outlive.set_status({"seen": "CANARY"})
            return await charge(amount)

        @app.flow
        async def basket() -> str:
            # The second is stopped with this flow when the first has failed.
            first, _ = checkout(), patience()
            return await first

        @app.step(once=True)
        async def wire() -> str:
            return "wired"

        @app.flow
        async def wired() -> str:
            return await wire()

        @app.flow
        async def undone() -> str:
            async with outlive.saga() as saga:
                saga.add(charge, -1)
                raise ZeroDivisionError

        @app.flow
        async def approval(order: str) -> str:
            answer = await outlive.wait_signal("decided", str)
            return f"{order}: {answer}"

        @app.flow
        async def patience() -> str:
            return f"heard {await outlive.wait_signal('enough')}"

        return app


@asynccontextmanager
async def open_shop(url: str) -> AsyncGenerator[Shop, None]:
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(outlive.connect(url, namespace="shop"))
        app = application({"shop": host.driver}, flows={"shop": host.flows})
        stack.callback(app.close)
        _, token = await make_token(host.driver, "shop", *Scope)
        yield Shop(url, Api(app, token), host.driver, stack)


@asynccontextmanager
async def _running(url: str, app: outlive.App) -> AsyncGenerator[None, None]:
    async with outlive.connect(url, app=app, namespace="shop") as host:
        running = asyncio.create_task(host.run())
        try:
            yield
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
