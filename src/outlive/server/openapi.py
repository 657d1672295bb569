"""The OpenAPI document, made from the endpoints themselves. Pure.

Owns no fact about any route: whatever is validated is what is described.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, cast

import msgspec

from outlive import server
from outlive.server.endpoints import JSON, TEXT, Endpoint
from outlive.server.problems import MEDIA_TYPE, TITLES, ProblemDocument
from outlive.server.schemas import Name

_REF = "#/components/schemas/{name}"
_PATH_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")

# What any endpoint may answer before its own code runs.
_COMMON = ("misdirected", "internal", "store-unavailable", "outcome-unknown")
_AUTHENTICATED = ("unauthenticated", "forbidden", "too-many-requests")
_WITH_BODY = (
    *("invalid-request", "request-timeout", "too-large", "unsupported-media-type"),
    "server-stopping",
)
_WITH_QUERY = ("invalid-request",)


def document(endpoints: Sequence[Endpoint], version: str) -> dict[str, Any]:
    """The whole document."""
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
    codes += _WITH_QUERY if endpoint.query is not None or "{" in endpoint.path else ()
    problem = {"content": {MEDIA_TYPE: {"schema": known[repr(ProblemDocument)]}}}
    for status in sorted({TITLES[code][0] for code in codes}):
        of = sorted(code for code in codes if TITLES[code][0] == status)
        said = f"{HTTPStatus(status).phrase}: {', '.join(dict.fromkeys(of))}"
        found.setdefault(str(status), {"description": said, **problem})
    return found
