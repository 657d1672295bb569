"""Work over HTTP is counted and traced like that of Python hosts."""

from __future__ import annotations

import pytest

from outlive import TracingTelemetry
from outlive.model.bearer import Scope
from outlive.model.job import QueueMode, QueueSettings
from outlive.telemetry.events import Metric, Telemetry
from tests.server.api import JSON, Api, application, make_token

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Listener(Telemetry):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple] = []

    def record(self, metric: Metric, value: float = 1, **labels: str) -> None:
        assert labels.pop("queue") == "mail"
        name = metric.name.removeprefix("jobs_").removeprefix("job_")
        self.heard.append((name, *(labels.values() or (() if name == "wait" else (value,)))))


async def server(drivers, telemetry) -> Api:
    app = application(drivers, telemetry=telemetry)
    _, token = await make_token(drivers["shop"], "shop", *Scope)
    return Api(app, token)


@pytest.fixture
def listener():
    return Listener()


@pytest.fixture
async def heard(drivers, listener):
    api = await server(drivers, listener)
    yield api
    api.app.close()


async def claim(api: Api, **more):
    got = await api.post("/worker/next", {"worker_id": "w", "queues": ["mail"], **more})
    return got.document


async def test_items_are_counted_as_they_come_and_go(heard, listener):
    await heard.post("/queues/mail/items", [{"max_attempts": 2}] * 4)
    await heard.post("/queues/mail/items", {"unique_key": "k"})
    await heard.post("/queues/mail/items", {"unique_key": "k"})
    for verb, more in (
        ("complete", {}),
        ("fail", {"error": "no", "retry_in": 60}),
        ("fail", {"error": "no", "dead": True}),
        ("release", {"delay": 60}),
    ):
        item = await claim(heard)
        await heard.post(f"/worker/{verb}", {"claim_id": item["claim_id"], **more})
    await heard.post("/worker/complete", {"claim_id": item["claim_id"]})
    counted = [entry for entry in listener.heard if entry[0] != "wait"]
    assert counted == [
        ("enqueued", 4),
        ("enqueued", 1),
        ("claimed", 1),
        ("ended", "completed"),
        ("claimed", 1),
        ("ended", "failed"),
        ("claimed", 1),
        ("ended", "dead"),
        ("claimed", 1),
        ("ended", "released"),
        ("ended", "lost"),
    ]
    assert listener.heard.count(("wait",)) == 4


async def test_a_repeated_request_is_one_claim(heard, listener):
    await heard.post("/queues/mail/items", {})
    for _ in range(2):
        assert await claim(heard, request_id="r1", session="s1")
    assert listener.heard.count(("claimed", 1)) == 1


async def test_what_was_not_added_is_not_counted(heard, listener, drivers):
    await drivers["shop"].jobs.put_queue(QueueSettings(name="mail", mode=QueueMode.DRAINING))
    await heard.post("/queues/mail/items", {})
    assert listener.heard == []


async def headers_of(api: Api, *given: tuple[str, str], item=None):
    await api.post("/queues/mail/items", item or {}, headers=(JSON, *given))
    return (await claim(api))["headers"]


async def test_an_item_carries_the_trace_of_its_request(api):
    given = (("traceparent", PARENT), ("tracestate", "shop=1"))
    assert await headers_of(api, *given) == {"traceparent": PARENT, "tracestate": "shop=1"}
    own = {"headers": {"traceparent": "mine"}}
    assert (await headers_of(api, *given, item=own))["traceparent"] == "mine"


@pytest.mark.parametrize("parent", ["", "x", PARENT[:-1], "ff" + PARENT[2:], PARENT + "-"])
async def test_what_is_no_trace_is_not_carried(api, parent):
    assert await headers_of(api, ("traceparent", parent), ("tracestate", "a=1")) == {}


async def test_acts_of_a_client_are_spans_of_its_trace(drivers):
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    api = await server(drivers, TracingTelemetry(provider))
    headers = (JSON, ("traceparent", PARENT))
    await api.post("/queues/mail/items", {"payload": 1}, headers=headers)
    item = await claim(api)
    await api.post("/worker/complete", {"claim_id": item["claim_id"]}, headers=headers)
    enqueue, complete = exporter.get_finished_spans()
    assert (enqueue.name, complete.name) == ("outlive.job.enqueue", "outlive.job.complete")
    for span in (enqueue, complete):
        assert f"{span.parent.trace_id:032x}-{span.parent.span_id:016x}" == PARENT[3:-3]
    assert item["headers"]["traceparent"].split("-")[2] == f"{enqueue.context.span_id:016x}"
    assert complete.attributes["outlive.job.outcome"] == "completed"
    api.app.close()
