"""Spans of real leases, as an exporter receives them."""

from __future__ import annotations

import asyncio
import sys
import uuid

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import outlive
from outlive.app import App
from outlive.connect import connect
from outlive.drivers.memory.lease_store import MemoryLeaseStore
from outlive.errors import (
    AcquireTimeout,
    ConfigurationError,
    LeaseLost,
    StoreUnavailable,
)
from outlive.leases.events import Renewed, RenewFailed
from outlive.telemetry import MetricsTelemetry, events
from outlive.telemetry.opentelemetry import TracingTelemetry
from tests.unit.work.conftest import until

CANARY = "canary-8f1d"


class Traces:
    def __init__(self):
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")
        self.telemetry = TracingTelemetry(self.provider)

    def all(self, name):
        spans = self.exporter.get_finished_spans()
        return [span for span in spans if span.name == f"outlive.lease.{name}"]

    def named(self, name):
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name):
        (span,) = self.all(name)
        return span


@pytest.fixture
def traces():
    return Traces()


@pytest.fixture
async def host(traces):
    url = f"memory://{uuid.uuid4().hex}"
    async with connect(url, name="tracer", telemetry=traces.telemetry) as host:
        yield host


async def test_a_hold_is_three_spans_under_the_callers(host, traces):
    with traces.tracer.start_as_current_span("request") as request:
        async with host.leases.hold("orders/7") as lease:
            token = lease.token
            with traces.tracer.start_as_current_span("work"):
                pass
    spans = [traces.one(name) for name in ("acquire", "hold", "release")]
    for span in spans:
        assert span.parent.span_id == request.get_span_context().span_id
        assert span.attributes["outlive.lease.key"] == "orders/7"
        assert span.attributes["outlive.lease.token"] == token
        assert span.attributes["outlive.host"] == "tracer"
        assert span.status.status_code is StatusCode.UNSET
    assert spans[0].attributes["outlive.lease.outcome"] == "granted"
    assert spans[1].attributes["outlive.lease.ended"] == "released"
    (work,) = (span for span in traces.exporter.get_finished_spans() if span.name == "work")
    assert work.parent.span_id == request.get_span_context().span_id


async def test_refusals_and_cancellation_are_outcomes_not_errors(host, traces):
    async with host.leases.hold("k"):
        traces.exporter.clear()
        assert await host.leases.try_acquire("k") is None
        task = asyncio.create_task(host.leases.acquire("k"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        held, cancelled = traces.all("acquire")
    assert held.attributes["outlive.lease.outcome"] == "held"
    assert cancelled.attributes["outlive.lease.outcome"] == "cancelled"
    for span in (held, cancelled):
        assert span.status.status_code is StatusCode.UNSET
        assert span.events == ()


async def test_a_timeout_is_an_error_on_its_span(host, traces):
    async with host.leases.hold("k"):
        traces.exporter.clear()
        task = asyncio.create_task(host.leases.acquire("k", timeout=0.02))
        with pytest.raises(AcquireTimeout):
            await task
        span = traces.one("acquire")
    assert span.attributes["outlive.lease.outcome"] == "timeout"
    assert span.status.status_code is StatusCode.ERROR
    (event,) = span.events
    assert event.attributes["exception.type"] == "outlive.errors.AcquireTimeout"


async def test_secrets_in_errors_are_masked(host, traces, monkeypatch):
    async def away(self, request):
        raise StoreUnavailable(f"cannot reach postgresql://me:{CANARY}@db:5432/app")

    monkeypatch.setattr(MemoryLeaseStore, "acquire", away)
    with pytest.raises(StoreUnavailable):
        await host.leases.try_acquire("k")
    span = traces.one("acquire")
    assert "postgresql://me:***@db:5432/app" in span.status.description
    assert CANARY not in span.to_json()


async def test_a_loss_ends_the_hold_span_as_an_error(host, traces):
    with pytest.raises(LeaseLost):
        async with host.leases.hold("k") as lease:
            await host.leases.break_lease("k", reason="test")
            await lease.renew()
    span = traces.one("hold")
    assert span.attributes["outlive.lease.ended"] == "broken"
    assert span.status.status_code is StatusCode.ERROR
    assert traces.one("renew").status.status_code is StatusCode.ERROR
    assert traces.telemetry._open == {}


async def test_background_renewals_make_no_spans(host, traces):
    renewed = asyncio.Event()
    host.leases.on(Renewed, lambda _event: renewed.set())
    async with host.leases.hold("k", ttl=0.3) as lease:
        await renewed.wait()
        assert traces.all("renew") == []
        await lease.renew()
        assert traces.one("renew").status.status_code is StatusCode.UNSET


async def test_a_failed_renewal_is_an_event_of_the_hold(host, traces, monkeypatch):
    original = MemoryLeaseStore.renew
    failed = asyncio.Event()
    host.leases.on(RenewFailed, lambda _event: failed.set())

    async def away(self, grant, ttl_us, *, state=None):
        if failed.is_set():
            return await original(self, grant, ttl_us, state=state)
        raise StoreUnavailable(f"redis://:{CANARY}@cache is away")

    monkeypatch.setattr(MemoryLeaseStore, "renew", away)
    async with host.leases.hold("k", ttl=0.6):
        await failed.wait()
    span = traces.one("hold")
    assert span.events[0].name == "outlive.lease.renew_failed"
    assert span.events[0].attributes["outlive.lease.attempt"] == 1
    assert CANARY not in span.to_json()


async def test_closing_ends_every_hold_span(traces):
    async with connect("memory://", name="h", telemetry=traces.telemetry) as host:
        kept = [await host.leases.acquire(f"k{number}") for number in range(5)]
    assert len(kept) == len(traces.all("hold")) == 5
    assert traces.telemetry._open == {}


def test_the_global_provider_serves_without_an_sdk():
    telemetry = TracingTelemetry()
    with telemetry.span("outlive.lease.acquire", key="k") as span:
        span.set(outcome="granted")


def test_a_missing_api_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'outlive\[otel\]'"):
        TracingTelemetry()


async def test_each_attempt_of_a_step_has_a_span(traces):
    app = App("steps")

    @app.step
    async def fetch() -> int:
        return 1

    @app.step
    def double(number: int) -> int:
        return 2 * number

    @app.flow
    async def flow() -> int:
        return await double(await fetch())

    url = f"memory://{uuid.uuid4().hex}"
    async with connect(url, app=app, telemetry=traces.telemetry) as host, host.running():
        assert await (await host.flows.start(flow)).result(timeout=10) == 2
    spans = traces.exporter.get_finished_spans()
    steps = [span for span in spans if span.name == "outlive.step.run"]
    assert [span.attributes["outlive.step.name"] for span in steps] == ["fetch", "double"]


async def test_meters_are_told_the_metrics():
    reader = InMemoryMetricReader()
    app = App("meters")

    @app.handler("mails")
    async def mail(to: str) -> None:
        del to

    telemetry = MetricsTelemetry(MeterProvider([reader], shutdown_on_exit=False))
    url = f"memory://{uuid.uuid4().hex}"
    async with connect(url, app=app, telemetry=telemetry) as host, host.running():
        await (await host.work.enqueue(mail, "ann")).result(timeout=10)
        async with host.leases.hold("k"):
            data = reader.get_metrics_data()
    assert data is not None
    points = {
        metric.name: metric.data.data_points
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    (enqueued,) = points["outlive.jobs_enqueued"]
    assert (enqueued.value, dict(enqueued.attributes)) == (1, {"queue": "mails"})
    (held,) = points["outlive.leases_held"]
    assert held.value == 1
    (wait,) = points["outlive.job_wait"]
    assert (wait.count, wait.explicit_bounds) == (1, events.JOB_WAIT.buckets)


async def test_a_flow_has_a_span_of_its_start_and_one_of_each_host_that_runs_it(traces, tmp_path):
    app = App("flows")

    @app.step
    async def fetch() -> int:
        return 1

    @app.flow
    async def flow() -> int:
        await fetch()
        return await outlive.wait_signal("go", int)

    url, options = f"sqlite:///{tmp_path}/o.db", outlive.FlowOptions(park_grace=0)
    telemetry = traces.telemetry
    async with connect(url, name="a", app=app, telemetry=telemetry, flows=options) as host:
        with traces.tracer.start_as_current_span("request") as request:
            handle = await host.flows.start(flow, id="f")
        async with host.running():
            await until(lambda: bool(traces.named("outlive.flow.run")))
    async with connect(url, name="b", app=app, telemetry=telemetry) as host, host.running():
        await host.flows.get("f").signal("go", 2)
        assert await host.flows.get("f", flow).result(timeout=10) == 2
    assert handle.id == "f"
    (start,) = traces.named("outlive.flow.start")
    assert start.parent.span_id == request.get_span_context().span_id
    runs = traces.named("outlive.flow.run")
    assert [run.parent.span_id for run in runs] == [start.context.span_id] * len(runs)
    told = [(run.attributes["outlive.host"], run.attributes["outlive.flow.ended"]) for run in runs]
    assert (told[0], told[-1]) == (("a", "parked"), ("b", "completed"))
    (step,) = traces.named("outlive.step.run")
    assert step.parent.span_id == start.context.span_id
    failed = [run for run in runs if run.status.status_code is StatusCode.ERROR]
    assert failed == []
