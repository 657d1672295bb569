"""The ASGI application: every request passes here, in and out.

Owns the order of checks: the server's own name, the browser's origin, the route, the bearer, the
scope, the body. Whatever goes wrong becomes a problem document, and what nobody foresaw a plain
500 that tells nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outlive import __version__
from outlive.errors import OutliveError
from outlive.flows.flows import Flows
from outlive.ports.driver import Driver
from outlive.runtime.runtime import Runtime
from outlive.server.access import Authenticator, Principal, nobody
from outlive.server.bodies import Bodies, check_path, decode, decode_name, decode_query
from outlive.server.endpoints import Call, Endpoint
from outlive.server.flow_routes import FlowActs, FlowRoutes
from outlive.server.hosts import HostCheck
from outlive.server.limits import Limits
from outlive.server.problems import Problem, problem_of, problem_response
from outlive.server.queue_routes import QueueRoutes
from outlive.server.schemas import Name
from outlive.server.service_routes import ServiceRoutes
from outlive.server.spaces import Opened, Spaces
from outlive.server.worker_routes import WorkerRoutes
from outlive.telemetry import Telemetry, combine

_log = logging.getLogger("outlive.server")
_access_log = logging.getLogger("outlive.server.access")

# Characters of a path that a refusal repeats.
_PATH_SHOWN = 200

# Nothing here is a page: a browser that gets one of these answers must not keep, guess or run it.
_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)


def _nobody(*_: object) -> None:
    """Nobody is told."""


class Application:
    """The whole server as an ASGI application. ``close`` lets waiting requests go.

    ``open_to`` is the namespace that everybody may use as long as no token exists; only for a
    server that nobody but this machine can reach. ``flows`` are those of each namespace whose store
    keeps some. ``opened`` is told of the sessions of workers, so that somebody looks after them;
    ``telemetry`` of the items that come and go.
    """

    def __init__(  # noqa: PLR0913 - the options of a whole server
        self,
        drivers: Mapping[str, Driver],
        *,
        flows: Mapping[str, Flows] | None = None,
        opened: Opened | None = None,
        telemetry: Telemetry | None = None,
        runtime: Runtime | None = None,
        bounds: Limits | None = None,
        open_to: str | None = None,
        allowed_hosts: Sequence[str] = (),
    ) -> None:
        runtime, bounds = runtime or Runtime(), bounds or Limits()
        self.spaces = Spaces(
            drivers, runtime, bounds, flows or {}, opened or _nobody, combine(telemetry)
        )
        self._bodies = Bodies(bounds.body_bytes)
        self._access = Authenticator(self.spaces.tokens, runtime.clock, bounds, open_to=open_to)
        service = ServiceRoutes(self.spaces, __version__)
        self.endpoints = [
            *WorkerRoutes(self.spaces).endpoints(),
            *QueueRoutes(self.spaces).endpoints(),
            # Ids may hold slashes: the routes with more behind the id come before it alone.
            *FlowActs(self.spaces).endpoints(),
            *FlowRoutes(self.spaces).endpoints(),
            *service.endpoints(),
        ]
        service.describe(self.endpoints)
        self._app = HostCheck(_routed(self.endpoints, self._serve), allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; only HTTP is spoken."""
        if scope["type"] != "http":
            return
        clock = self.spaces.clock
        begun = clock.monotonic()
        await self._app(scope, receive, _with_headers(scope, send))
        if _access_log.isEnabledFor(logging.INFO):
            _access_log.info(
                "%s %s %s %s %s in %.0f ms",
                *(scope["client"] or ("-",))[:1],
                # The id of the token: its name is free text.
                scope.get("outlive.bearer", "-"),
                scope["method"],
                # As it came: a path that is decoded may hold the end of a line.
                scope["raw_path"].decode("latin-1"),
                scope.get("outlive.status", "-"),
                (clock.monotonic() - begun) * 1000,
            )

    def close(self) -> None:
        """Let every waiting request go, and stop listening for work. Repeatable.

        Bodies that are still being sent get a few seconds.
        """
        self.spaces.close()
        self._bodies.stop()

    async def _serve(self, endpoint: Endpoint, request: Request) -> Response:
        try:
            return await self._answer(endpoint, request)
        except Problem as problem:
            return problem_response(problem)
        except OutliveError as error:
            problem = problem_of(error)
            if problem.status >= 500:  # noqa: PLR2004 - the family of the server's own failures
                _log.warning("%s %s: %s", endpoint.method, endpoint.path, error)
            return problem_response(problem)
        except Exception:  # noqa: BLE001
            # The last place an error can reach; a client is told nothing of it.
            _log.exception("%s %s failed", endpoint.method, endpoint.path)
            return problem_response(
                Problem("internal", "Internal error; the log of the server has the details.")
            )

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        authorise = partial(self._authorised, endpoint, request)
        principal = await authorise()
        check_path(request)
        body: Any = None
        if endpoint.body is not None:
            sent = await self._bodies.read(request, optional=endpoint.body_optional)
            body = decode(sent, endpoint.body)
        elif endpoint.query is not None:
            body = decode_query(request, endpoint.query)
        path = {
            name: decode_name(value, endpoint.names.get(name, Name))
            for name, value in request.path_params.items()
        }
        call = Call(request=request, principal=principal, authorise=authorise, body=body, path=path)
        return (await endpoint.run(call)).response()

    async def _authorised(self, endpoint: Endpoint, request: Request) -> Principal:
        if endpoint.scope is None:
            return nobody("")
        principal = await self._access.principal(request)
        request.scope["outlive.bearer"] = principal.id
        principal.require(endpoint.scope)
        return principal


class _Methods:
    """The endpoints of one path: an ASGI application that chooses by method."""

    def __init__(self, endpoints: Mapping[str, Endpoint], serve: Any) -> None:
        self._endpoints = endpoints
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        endpoint = self._endpoints.get("GET" if method == "HEAD" else method)
        if method == "HEAD" and endpoint is not None and endpoint.scope is not None:
            # What a bearer asks for may change something: a GET of work claims it.
            endpoint = None
        if endpoint is None:
            allowed = ", ".join(sorted(self._endpoints))
            response = problem_response(
                Problem("method-not-allowed", f"This path allows {allowed}.", Allow=allowed)
            )
        else:
            response = await self._serve(endpoint, Request(scope, receive))
        await response(scope, receive, send)


def _routed(endpoints: Sequence[Endpoint], serve: Any) -> ASGIApp:
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    routes = [Route(path, _Methods(methods, serve)) for path, methods in by_path.items()]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _unrouted})
    # A redirect would name the scheme that this server speaks, and lead a client of the proxy that
    # ends TLS to send its token in the clear.
    app.router.redirect_slashes = False
    return app


async def _unrouted(request: Request, error: Exception) -> Response:
    del error
    path = request.url.path[:_PATH_SHOWN]
    return problem_response(Problem("not-found", f"This server has no path {path!r}."))


def _with_headers(scope: Scope, send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            scope["outlive.status"] = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
        await send(message)

    return sending
