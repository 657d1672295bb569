"""A server in this process: real stores in memory, real tokens, requests over ASGI."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outlive.clock import Clock, SystemClock
from outlive.connect import find_factory
from outlive.model.bearer import NewBearer, Scope, bearer_digest, bearer_text
from outlive.model.location import parse_url
from outlive.names import BearerId, HostId
from outlive.ports.driver import Driver, DriverContext
from outlive.runtime.runtime import Runtime
from outlive.server.application import Application
from outlive.server.limits import Limits

JSON = ("content-type", "application/json")


@dataclass(frozen=True, slots=True)
class Got:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of a refusal."""
        assert self.headers["content-type"] == "application/problem+json"
        document = self.document
        assert document["status"] == self.status
        assert document["type"].endswith(document["code"])
        return document["code"]


class Api:
    """Speaks to an application; ``token`` is sent with every request."""

    def __init__(self, app: Application, token: str | None = None, address: str = "10.0.0.1"):
        self.app = app
        self.token = token
        self.address = address

    def with_token(self, token: str | None, address: str | None = None) -> Api:
        return Api(self.app, token, address or self.address)

    async def get(self, path: str, query: str = "", **more: Any) -> Got:
        return await self.send("GET", path, query=query, **more)

    async def post(self, path: str, document: Any = None, **more: Any) -> Got:
        return await self.send("POST", path, json.dumps(document).encode(), **more)

    async def delete(self, path: str) -> Got:
        return await self.send("DELETE", path)

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | Sequence[bytes] = b"",
        *,
        query: str = "",
        headers: Sequence[tuple[str, str]] = (JSON,),
        hang_up: asyncio.Event | None = None,
        raw_path: bytes | None = None,
        plain: bool = False,
    ) -> Got:
        """``plain`` sends these headers as they are, and no others."""
        parts = [body] if isinstance(body, bytes) else list(body)
        given = {"host": "127.0.0.1:8420", **dict(headers)}
        if self.token is not None:
            given.setdefault("authorization", f"Bearer {self.token}")
        pairs = headers if plain else given.items()
        sent: list[Any] = []

        async def receive() -> Any:
            if parts:
                part = parts.pop(0)
                return {"type": "http.request", "body": part, "more_body": bool(parts)}
            await (hang_up or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode() if raw_path is None else raw_path,
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in pairs],
            "client": (self.address, 50000),
            "server": ("127.0.0.1", 8420),
        }
        await self.app(scope, receive, send)
        start, *rest = sent
        found = {name.decode(): value.decode() for name, value in start["headers"]}
        return Got(start["status"], found, b"".join(part.get("body", b"") for part in rest))


async def open_memory(name: str, namespace: str, clock: Clock | None = None) -> Driver:
    return await open_store(f"memory://{name}", namespace, clock)


async def open_store(url: str, namespace: str, clock: Clock | None = None) -> Driver:
    location = parse_url(url)
    context = DriverContext(
        clock=clock or SystemClock(),
        random=random.Random(1),
        namespace=namespace,
        host=HostId(f"server-{namespace}"),
    )
    return await find_factory(location.scheme).open(location, context)


async def make_token(
    driver: Driver, namespace: str, *scopes: Scope, ttl_s: float | None = None
) -> tuple[BearerId, str]:
    """A real token of ``namespace``: its id, and the text that a client shows."""
    assert driver.tokens is not None
    text = bearer_text(random.randbytes(32), namespace)
    new = NewBearer(
        id=BearerId(bearer_digest(text)[:12]),
        name="-".join(scopes) or "none",
        digest=bearer_digest(text),
        scopes=scopes,
        ttl_us=None if ttl_s is None else round(ttl_s * 1e6),
    )
    await driver.tokens.create(new, actor="test")
    return new.id, text


def application(drivers: dict[str, Driver], clock: Clock | None = None, **more: Any) -> Application:
    bounds = more.pop("bounds", Limits(failure_s=0.0, failures=1000))
    return Application(drivers, runtime=Runtime(clock=clock), bounds=bounds, **more)
