"""An HTTP proxy that plays what a service does on its bad days.

Owns the connections that pass through it, on a loop and thread of its own. It forwards everything
to one server, except where a fault was asked for: an answer of its own (throttling, an outage), a
reply that is lost after the server did the work, or a read that shows the past. Every request is
noted with the status it got, so that a test asserts that the fault really happened.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import aiohttp
from aiohttp import web
from yarl import URL

# Longer than any test waits; a proxy that does not answer by then hangs.
CALL_LIMIT_S = 30.0

# These describe one connection, and there are two.
_HOP = frozenset({"host", "content-length", "connection", "transfer-encoding", "keep-alive"})

LOST = 0
"""The status of a request that was carried out and never answered."""


class Seen(NamedTuple):
    """One request and what was answered."""

    method: str
    path: str
    status: int


@dataclass(slots=True)
class _Fault:
    """What becomes of the next ``times`` requests of ``method`` whose path contains ``path``."""

    method: str
    path: str
    status: int
    times: int
    headers: dict[str, str] = field(default_factory=dict)
    body: str = '{"code": "Fault", "message": "played by the proxy"}'

    def fits(self, request: web.Request) -> bool:
        return self.times > 0 and request.method == self.method and self.path in request.path


class HttpFaults:
    """Stands between a client and the server at ``target``; also a context manager."""

    def __init__(self, target: str) -> None:
        self._target = URL(target)
        self._faults: list[_Fault] = []
        self._past: dict[str, web.Response] | None = None
        self.seen: list[Seen] = []
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="http-faults", daemon=True
        )
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None

    @property
    def endpoint(self) -> str:
        """Where the client finds it."""
        return f"http://127.0.0.1:{self.port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def answer(
        self,
        method: str,
        status: int,
        *,
        times: int = 1,
        path: str = "/docs",
        headers: Mapping[str, str] | None = None,
        body: str | None = None,
    ) -> None:
        """Answer the next ``times`` requests with ``status``; the server never hears of them."""
        fault = _Fault(method, path, status, times, dict(headers or {}))
        if body is not None:
            fault.body = body
        self._faults.append(fault)

    def lose_replies(self, method: str, *, times: int = 1, path: str = "/docs") -> None:
        """Carry the next ``times`` requests out and cut the connection instead of answering."""
        self._faults.append(_Fault(method, path, LOST, times))

    def show_the_past(self) -> None:
        """From now on a read shows what the first read of the same path showed."""
        self._past = {}

    def heal(self) -> None:
        """Forward everything."""
        self._faults.clear()
        self._past = None

    def count(self, method: str, status: int, path: str = "/docs") -> int:
        """How many requests of ``method`` got ``status``."""
        return sum(s.method == method and s.status == status and path in s.path for s in self.seen)

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_LIMIT_S)

    async def _start(self) -> None:
        self._session = aiohttp.ClientSession(auto_decompress=False)
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        assert self._runner is not None
        assert self._session is not None
        await self._runner.cleanup()
        await self._session.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        fault = next((fault for fault in self._faults if fault.fits(request)), None)
        if fault is not None:
            fault.times -= 1
        if fault is not None and fault.status != LOST:
            reply = web.Response(
                status=fault.status,
                headers={"content-type": "application/json", **fault.headers},
                text=fault.body,
            )
        else:
            reply = await self._forward(request)
        status = LOST if fault is not None and fault.status == LOST else reply.status
        self.seen.append(Seen(request.method, request.path, status))
        if status == LOST and request.transport is not None:
            request.transport.abort()
        return reply

    async def _forward(self, request: web.Request) -> web.Response:
        shown = self._past.get(request.path) if self._past is not None else None
        if shown is not None and request.method == "GET":
            return web.Response(status=shown.status, headers=shown.headers, body=shown.body)
        assert self._session is not None
        url = self._target.join(URL(request.raw_path, encoded=True))
        headers = {name: value for name, value in request.headers.items() if _passes(name)}
        async with self._session.request(
            request.method, url, headers=headers, data=await request.read()
        ) as answer:
            body = await answer.read()
            passed = {name: value for name, value in answer.headers.items() if _passes(name)}
            reply = web.Response(status=answer.status, headers=passed, body=body)
        if self._past is not None and request.method == "GET" and "/docs/" in request.path:
            self._past[request.path] = web.Response(status=reply.status, headers=passed, body=body)
        return reply


def _passes(name: str) -> bool:
    return name.lower() not in _HOP
