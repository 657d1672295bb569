"""What work tells: metrics, and a trace that goes on from the enqueuer to the handler."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

import outlive
from outlive import App, JobFailed, PrometheusTelemetry, Retry, TracingTelemetry
from tests.unit.work.conftest import until

app = App("observed")


@app.handler("q", retry=Retry(max_attempts=2, first=0))
async def handle(payload: str) -> str:
    if payload == "fail":
        raise ValueError("no")
    return payload


async def test_metrics_count_every_end():
    registry = CollectorRegistry()
    async with outlive.connect(
        "memory://", app=app, telemetry=PrometheusTelemetry(registry)
    ) as host:
        running = asyncio.create_task(host.run())
        await (await host.work.enqueue(handle, "ok")).result(timeout=5)
        with pytest.raises(JobFailed):
            await (await host.work.enqueue(handle, "fail")).result(timeout=5)
        for _ in range(2):
            # The second time it exists, and is not counted.
            await host.work.enqueue("other", 1, id="o")
        (claim,) = await host.work.claim("other")
        await claim.release()

        def value(name: str, **labels: str) -> float | None:
            return registry.get_sample_value(name, labels)

        await until(lambda: value("outlive_jobs_ended_total", queue="q", outcome="dead") == 1)
        assert value("outlive_jobs_enqueued_total", queue="q") == 2
        assert value("outlive_jobs_enqueued_total", queue="other") == 1
        assert value("outlive_jobs_claimed_total", queue="q") == 3
        assert value("outlive_jobs_claimed_total", queue="other") == 1
        assert value("outlive_jobs_ended_total", queue="q", outcome="completed") == 1
        assert value("outlive_jobs_ended_total", queue="q", outcome="failed") == 1
        assert value("outlive_jobs_ended_total", queue="other", outcome="released") == 1
        assert value("outlive_job_run_seconds_count", queue="q", outcome="completed") == 1
        assert value("outlive_job_wait_seconds_count", queue="q") == 3
        running.cancel()
        await asyncio.wait([running])


async def test_a_trace_goes_on_from_the_enqueuer_to_the_handler():
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = TracingTelemetry(provider)
    async with outlive.connect("memory://", app=app, name="web", telemetry=telemetry) as host:
        running = asyncio.create_task(host.run())
        with provider.get_tracer("test").start_as_current_span("request") as request:
            job = await host.work.enqueue(handle, "ok", headers={"tenant": "t"})
        await job.result(timeout=5)
        running.cancel()
        await asyncio.wait([running])
        headers = (await job.status()).headers
    (span,) = [span for span in exporter.get_finished_spans() if span.name == "outlive.job.run"]
    assert headers["tenant"] == "t"
    assert headers["traceparent"].split("-")[1] == f"{request.get_span_context().trace_id:032x}"
    assert span.parent is not None
    assert span.parent.span_id == request.get_span_context().span_id
    assert span.attributes is not None
    assert span.attributes["outlive.job.id"] == job.id
    assert span.attributes["outlive.job.outcome"] == "completed"
    assert span.attributes["outlive.host"] == "web"
