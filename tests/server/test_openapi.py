"""The OpenAPI document says what the server does, because both come from the same types."""

from __future__ import annotations

import msgspec
import pytest

from outlive.server import flow_answers, flow_schemas, schemas
from outlive.server.problems import TITLES
from tests.docs.pages import ROOT

FLOW_REQUESTS = (
    flow_schemas.StartFlow,
    flow_schemas.Signal,
    flow_schemas.Fork,
    flow_schemas.WithReason,
    flow_schemas.FlowQuery,
    flow_schemas.FlowsQuery,
)


@pytest.fixture
async def document(api):
    return (await api.with_token(None).get("/openapi.json")).document


async def test_every_endpoint_is_described_and_nothing_else(api, document):
    described = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    served = {
        (endpoint.method, endpoint.path.replace(":path}", "}")) for endpoint in api.app.endpoints
    }
    assert described == served
    assert len(served) >= 12


async def test_what_needs_a_token_says_so(api, document):
    for endpoint in api.app.endpoints:
        path = endpoint.path.replace(":path}", "}")
        operation = document["paths"][path][endpoint.method.lower()]
        assert ("security" in operation) == (endpoint.scope is not None)
        assert ("401" in operation["responses"]) == (endpoint.scope is not None)


async def test_a_body_that_may_be_left_out_is_said_to_be_optional(document):
    required = {
        operation["operationId"]: operation["requestBody"]["required"]
        for methods in document["paths"].values()
        for operation in methods.values()
        if "requestBody" in operation
    }
    assert {name for name, needed in required.items() if not needed} == {"startFlow", "signalFlow"}


async def test_every_reference_leads_somewhere(document):
    text = msgspec.json.encode(document).decode()
    names = set(document["components"]["schemas"])
    for part in text.split('"#/components/schemas/')[1:]:
        assert part.partition('"')[0] in names


async def test_requests_are_validated_by_what_is_described(document):
    described = document["components"]["schemas"]["Next"]["properties"]
    assert set(described) == {field.name for field in msgspec.structs.fields(schemas.Next)}
    assert described["wait"]["maximum"] == 55


def test_every_route_and_every_code_is_in_the_reference():
    text = (ROOT / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    for code in TITLES:
        assert f"`{code}`" in text, code
    for path in (
        "/worker/next",
        "/worker/complete",
        "/worker/fail",
        "/worker/release",
        "/worker/heartbeat",
        "/queues/{queue}/items",
        "/queues",
        "/items/{item}",
        "/healthz",
        "/metrics",
        "/openapi.json",
        "/runtime/orchestrations/start/{name}",
        "/runtime/orchestrations",
        "/runtime/orchestrations/{flow}",
        "/runtime/orchestrations/{flow}/raiseEvent/{event}",
        *(f"/runtime/orchestrations/{{flow}}/{act}" for act in flow_answers.ACTS),
    ):
        assert f"`{path}`" in text or f" {path}`" in text, path
    for kind in (schemas.Next, schemas.Complete, schemas.Fail, schemas.Release, schemas.Heartbeat):
        for field in msgspec.structs.fields(kind):
            assert f"`{field.name}`" in text, (kind, field.name)
    for kind in (schemas.NewItem, *FLOW_REQUESTS, flow_schemas.Flow, flow_schemas.Flows):
        for field in msgspec.structs.fields(kind):
            assert f"`{field.encode_name}`" in text, (kind, field.name)
