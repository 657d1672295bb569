"""Routes about the server itself: health, metrics, and its own description."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, cast

import msgspec
from starlette.responses import Response

from outlive import server
from outlive.errors import OutliveError
from outlive.model.bearer import Scope
from outlive.server import limits, schemas
from outlive.server.endpoints import JSON, TEXT, Call, Endpoint, Reply
from outlive.server.problems import MEDIA_TYPE, TITLES, ProblemDocument
from outlive.server.schemas import Name
from outlive.server.spaces import Spaces

# A store that has not answered by then is not available to anybody.
_PATIENCE_S = 5.0

_REF = "#/components/schemas/{name}"

_PATH_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")

# What any endpoint may answer before its own code runs.
_COMMON = (
    *("invalid-request", "head-too-large", "misdirected"),
    *("internal", "store-unavailable", "outcome-unknown"),
)

_AUTHENTICATED = ("unauthenticated", "forbidden", "too-many-requests")

_WITH_BODY = (
    *("request-timeout", "too-large", "unsupported-media-type"),
    "server-stopping",
)


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
        self._document = msgspec.json.encode(document(endpoints, self._version))

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
                path="/hosts",
                name="hosts",
                summary="The living hosts and HTTP workers, the oldest first.",
                run=self.hosts,
                scope=Scope.READ,
                query=schemas.HostsQuery,
                answers={200: ("The hosts.", schemas.Hosts)},
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

    async def hosts(self, call: Call) -> Reply:
        """The hosts of the bearer's namespace."""
        found = await self._spaces.of(call.principal).hosts.list(limit=call.body.limit)
        return Reply(200, schemas.Hosts(hosts=found))

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


def document(endpoints: Sequence[Endpoint], version: str) -> dict[str, Any]:
    """The OpenAPI document, made from the endpoints themselves: what is validated is described."""
    kinds = [ProblemDocument, Name]
    for endpoint in endpoints:
        kinds += endpoint.names.values()
        kinds += [kind for kind in (endpoint.query, endpoint.body) if kind is not None]
        kinds += [kind for _, kind in endpoint.answers.values() if kind is not None]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    # A type such as a list of items has no name of its own and stands where it is used.
    known = {repr(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = _PATH_PARAMETER.sub(r"{\1}", endpoint.path)
        operation = _operation(endpoint, known, components)
        paths.setdefault(path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Outlive",
            "version": version,
            "summary": "Queues whose items are claimed by one worker at a time, and flows.",
            "description": (server.__doc__ or "").strip(),
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "olt_…"}
            },
        },
    }


def _operation(
    endpoint: Endpoint, known: dict[str, Any], components: dict[str, Any]
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "responses": _responses(endpoint, known),
    }
    if endpoint.scope is not None:
        operation["security"] = [{"bearer": []}]
        operation["description"] = f"Needs the scope `{endpoint.scope.value}`."
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": known[repr(endpoint.names.get(name, Name))],
        }
        for name in _PATH_PARAMETER.findall(endpoint.path)
    ]
    if endpoint.query is not None:
        parameters += _query(components[endpoint.query.__name__])
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": not endpoint.body_optional,
            "content": {JSON: {"schema": known[repr(endpoint.body)]}},
        }
    return operation


def _query(schema: dict[str, Any]) -> list[dict[str, Any]]:
    required = cast("list[str]", schema.get("required", []))
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _no_null(kind)}
        for name, kind in schema["properties"].items()
    ]


def _no_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter that is not given is absent; a query string has no way to say null."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    return choices[0] if len(choices) == 1 else schema


def _responses(endpoint: Endpoint, known: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, (description, kind) in endpoint.answers.items():
        found[str(status)] = {"description": description}
        if kind is not None:
            media = TEXT if kind is str else JSON
            found[str(status)]["content"] = {media: {"schema": known[repr(kind)]}}
    codes = [*endpoint.problems, *_COMMON]
    codes += _AUTHENTICATED if endpoint.scope is not None else ()
    codes += _WITH_BODY if endpoint.body is not None else ()
    problem = {"content": {MEDIA_TYPE: {"schema": known[repr(ProblemDocument)]}}}
    for status in sorted({TITLES[code][0] for code in codes}):
        of = sorted(code for code in codes if TITLES[code][0] == status)
        said = f"{HTTPStatus(status).phrase}: {', '.join(dict.fromkeys(of))}"
        found.setdefault(str(status), {"description": said, **problem})
    return found
