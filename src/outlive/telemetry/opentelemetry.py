"""Spans and metrics for OpenTelemetry, when the ``otel`` extra is installed.

Owns the names and attributes of the spans. A key is an attribute here, because traces are sampled
and searched; it is never a metric's label. Must never show a secret: texts of errors are masked.
Background renewals make no spans of their own, or the trace of a lease held for days would never
end; their failures are events on the ``hold`` span.
"""

from __future__ import annotations

import asyncio
import traceback as traceback_module
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Self

from outlive.errors import ConfigurationError, LeaseHeld
from outlive.serialization import masked
from outlive.telemetry.events import (
    METRICS,
    READ,
    Attribute,
    Kind,
    Labels,
    Metric,
    Readings,
    Span,
    Telemetry,
    Watched,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import Tracer, TracerProvider

_INSTRUMENTATION = "outlive"

# What an exporter should carry of one error's text; the rest is in the log.
_TEXT_MAX = 8 * 1024


class MetricsTelemetry(Telemetry):
    """Tells OpenTelemetry's meters the metrics, as ``outlive.jobs_enqueued`` and the like.

    ``provider`` defaults to OpenTelemetry's global one. The names, labels and meanings are those of
    Prometheus, with a dot behind ``outlive`` and without ``_total`` and ``_seconds``.

    Raises:
        ConfigurationError: ``opentelemetry-api`` is not installed.
    """

    def __init__(self, provider: MeterProvider | None = None) -> None:
        try:
            from opentelemetry import metrics
        except ImportError:
            raise ConfigurationError(
                "metrics need the OpenTelemetry API: pip install 'outlive[otel]'"
            ) from None
        meter = metrics.get_meter(_INSTRUMENTATION, meter_provider=provider)
        self._labels, self._readings = Labels(), Readings()
        self._instruments = {metric: _instrument(meter, metric) for metric in METRICS}

        def observed(metric: Metric, _: object) -> list[metrics.Observation]:
            values = self._readings.read()[metric].items()
            return [
                metrics.Observation(value, dict(zip(metric.labels, labels, strict=True)))
                for labels, value in values
            ]

        for metric in READ:
            counts = metric.kind is Kind.COUNTER
            create = meter.create_observable_counter if counts else meter.create_observable_gauge
            create(f"outlive.{metric.name}", [partial(observed, metric)], description=metric.text)

    def record(self, metric: Metric, value: float = 1, **labels: str) -> None:
        """Tell the instrument of this row."""
        self._instruments[metric](value, self._labels.checked(metric, labels))

    def watch(self, watched: Watched) -> Callable[[], None]:
        """Read the gauges of this host at each export, until it closes or is dropped."""
        return self._readings.watch(watched)


def _instrument(meter: Meter, metric: Metric) -> Callable[[float, Mapping[str, str]], None]:
    name = f"outlive.{metric.name}"
    if metric.kind is Kind.COUNTER:
        return meter.create_counter(name, description=metric.text).add
    if metric.kind is Kind.SUM:
        return meter.create_up_down_counter(name, description=metric.text).add
    if metric.kind is Kind.GAUGE:
        return meter.create_gauge(name, description=metric.text).set
    return meter.create_histogram(
        name,
        unit="s",
        description=metric.text,
        explicit_bucket_boundaries_advisory=metric.buckets,
    ).record


class TracingTelemetry(Telemetry):
    """Makes spans of what leases and jobs do.

    ``outlive.job.run`` lasts from the start of a handler to the end of its claim; it is a child
    of the span in which the job was enqueued, wherever that was.

    ``outlive.lease.acquire``, ``outlive.lease.renew`` (only where the program itself calls
    ``renew``) and ``outlive.lease.release`` are children of the caller's span.
    ``outlive.lease.hold`` lasts from the grant to the release or the loss; it is no parent of
    what the program does meanwhile, because a lease may outlive the span that acquired it.

    ``outlive.flow.start`` is a child of the caller's span. ``outlive.flow.run`` lasts as long as
    one host runs the flow: each is a child of the span that started the flow, on whichever host.

    ``provider`` defaults to OpenTelemetry's global one.

    Raises:
        ConfigurationError: ``opentelemetry-api`` is not installed.
    """

    tracing = True

    def __init__(self, provider: TracerProvider | None = None) -> None:
        try:
            from opentelemetry import trace
        except ImportError:
            raise ConfigurationError(
                "tracing needs the OpenTelemetry API: pip install 'outlive[otel]'"
            ) from None
        self._tracer: Tracer = trace.get_tracer(_INSTRUMENTATION, tracer_provider=provider)
        # One entry per lease that is held and flow that runs; their end takes it out.
        self._open: dict[str, tuple[str, trace.Span]] = {}

    def span(
        self, name: str, carrier: Mapping[str, str] | None = None, /, **attributes: Attribute
    ) -> Span:
        """A span around one operation, current while it runs."""
        return _OtelSpan(self._tracer, name, attributes, _context(carrier))

    def carrier(self) -> dict[str, str]:
        """The caller's span as W3C trace context; empty outside of one."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        headers: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(headers)
        return headers

    def began(
        self,
        name: str,
        key: str,
        carrier: Mapping[str, str] | None = None,
        /,
        **attributes: Attribute,
    ) -> None:
        """Start a span that ends elsewhere."""
        if name == "outlive.lease.hold":
            attributes = {"owner": key, **attributes}
        self._open[key] = (
            name,
            self._tracer.start_span(
                name, context=_context(carrier), attributes=_named(name, attributes)
            ),
        )

    def noted(self, key: str, what: str, /, **attributes: Attribute) -> None:
        """Mark an event on such a span. The SDK keeps a bounded number of them."""
        if key in self._open:
            name, span = self._open[key]
            span.add_event(f"{name.rpartition('.')[0]}.{what}", _named(name, attributes))

    def ended(self, key: str, how: str, /, *, error: bool) -> None:
        """End such a span."""
        if key not in self._open:
            return
        name, span = self._open.pop(key)
        span.set_attributes(_named(name, {"ended": how}))
        if error:
            _set_error(span, f"ended: {how}")
        span.end()


def _context(carrier: Mapping[str, str] | None) -> Context | None:
    """Where a span begins: in the trace of ``carrier``, or that of the caller."""
    if carrier is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract(carrier)


class _OtelSpan(Span):
    """One operation: started on entry, current in the caller's context, ended on exit."""

    def __init__(
        self,
        tracer: Tracer,
        name: str,
        attributes: dict[str, Attribute],
        parent: Context | None,
    ) -> None:
        self._tracer = tracer
        self._name = name
        self._attributes = attributes
        self._parent = parent
        self._span: trace.Span | None = None
        self._current: AbstractContextManager[trace.Span] | None = None

    def set(self, **attributes: Attribute) -> None:
        if self._span is not None:
            self._span.set_attributes(_named(self._name, attributes))

    def __enter__(self) -> Self:
        from opentelemetry import trace

        named = _named(self._name, self._attributes)
        self._span = self._tracer.start_span(self._name, context=self._parent, attributes=named)
        # Errors are recorded below, masked; the API would record them as they are.
        self._current = trace.use_span(
            self._span, end_on_exit=False, record_exception=False, set_status_on_exception=False
        )
        self._current.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        span, current = self._span, self._current
        if span is None or current is None:
            return
        try:
            current.__exit__(None, None, None)
        finally:
            if error is not None:
                _record(span, error)
            span.end()


def _record(span: trace.Span, error: BaseException) -> None:
    """Write down what ended an operation. Cancellation and a refusal are answers, not errors."""
    if isinstance(error, (asyncio.CancelledError, GeneratorExit, LeaseHeld)):
        return
    text = masked(str(error), _TEXT_MAX)
    stack = "".join(traceback_module.format_exception(error))
    span.add_event(
        "exception",
        {
            "exception.type": f"{type(error).__module__}.{type(error).__qualname__}",
            "exception.message": text,
            "exception.stacktrace": masked(stack, _TEXT_MAX),
        },
    )
    _set_error(span, f"{type(error).__name__}: {text}")


def _set_error(span: trace.Span, text: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, text))


def _named(of: str, attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """Our attributes under names that nobody else uses: of ``outlive.job.run``, in that family."""
    family = of.split(".")[1]
    return {
        f"outlive.{name}" if name in ("host", "namespace") else f"outlive.{family}.{name}": (
            masked(value, _TEXT_MAX) if isinstance(value, str) else value
        )
        for name, value in attributes.items()
    }
