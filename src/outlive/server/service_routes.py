"""Routes about the server itself: health, metrics, and its own description."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from outlive.errors import OutliveError
from outlive.model.bearer import Scope
from outlive.server import limits, openapi, schemas
from outlive.server.endpoints import JSON, Call, Endpoint, Reply
from outlive.server.spaces import Spaces

# A store that has not answered by then is not available to anybody.
_PATIENCE_S = 5.0


class ServiceRoutes:
    """The server's own routes. ``describes`` are the endpoints of the document, these included."""

    def __init__(self, spaces: Spaces, version: str) -> None:
        self._spaces = spaces
        self._version = version
        self._document = b""
        self._health: tuple[bool, float] = (True, float("-inf"))
        self._looking = asyncio.Lock()

    def describe(self, endpoints: Sequence[Endpoint]) -> None:
        """Make the document; called once, with every endpoint of the server."""
        self._document = msgspec.json.encode(openapi.document(endpoints, self._version))

    def endpoints(self) -> list[Endpoint]:
        """The routes; metrics only where the client library is installed."""
        found = [
            Endpoint(
                method="GET",
                path="/healthz",
                name="health",
                summary="Health of the server and its store. Needs no token.",
                run=self.health,
                scope=None,
                answers={
                    200: ("Healthy.", schemas.Health),
                    503: ("The store does not answer.", schemas.Health),
                },
            ),
            Endpoint(
                method="GET",
                path="/openapi.json",
                name="openapi",
                summary="This document. Needs no token.",
                run=self.openapi,
                scope=None,
                answers={200: ("OpenAPI 3.1.", dict[str, Any])},
            ),
        ]
        if _prometheus() is not None:
            found.append(
                Endpoint(
                    method="GET",
                    path="/metrics",
                    name="metrics",
                    summary="Metrics for Prometheus.",
                    run=self.metrics,
                    scope=Scope.READ,
                    answers={200: ("Text in the format of Prometheus.", str)},
                )
            )
        return found

    async def health(self, call: Call) -> Reply:
        """Whether every namespace's store answers; says no more, because anybody may ask."""
        del call
        async with self._looking:
            ok, until = self._health
            if self._spaces.clock.monotonic() >= until:
                ok = await self._look()
                until = self._spaces.clock.monotonic() + limits.HEALTH_BELIEVED_S
                self._health = (ok, until)
        status = "ok" if ok else "unavailable"
        return Reply(200 if ok else 503, schemas.Health(status=status))

    async def _look(self) -> bool:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                for space in self._spaces.all:
                    await space.tokens.list(limit=1)
        except (OutliveError, TimeoutError):
            return False
        return True

    async def openapi(self, call: Call) -> Reply:
        """The document."""
        del call
        return Reply(200, Response(self._document, media_type=JSON))

    async def metrics(self, call: Call) -> Reply:
        """What the process measured."""
        del call
        prometheus = _prometheus()
        assert prometheus is not None
        text = await asyncio.to_thread(prometheus.generate_latest)
        return Reply(200, Response(text, media_type=prometheus.CONTENT_TYPE_LATEST))


def _prometheus() -> Any:
    try:
        import prometheus_client
    except ImportError:
        return None
    return prometheus_client
