"""What a process says of its work: events for metrics and traces, and its log."""

import contextlib

from outlive.errors import ConfigurationError
from outlive.telemetry.events import Attribute, Metric, Reading, Span, Telemetry, combine
from outlive.telemetry.logging import (
    PROCESS,
    UNBOUND,
    HostLogs,
    JsonFormatter,
    bind_host,
    message_of,
    name_process,
    plural,
)
from outlive.telemetry.opentelemetry import MetricsTelemetry, TracingTelemetry
from outlive.telemetry.prometheus import PrometheusTelemetry


def installed() -> Telemetry:
    """Numbers and spans, each where its library is installed and goes where it was set up."""
    found: list[Telemetry] = []
    for kind in (PrometheusTelemetry, MetricsTelemetry, TracingTelemetry):
        with contextlib.suppress(ConfigurationError):
            found.append(kind())
    return combine(*found)


__all__ = [
    "PROCESS",
    "UNBOUND",
    "Attribute",
    "HostLogs",
    "JsonFormatter",
    "Metric",
    "MetricsTelemetry",
    "PrometheusTelemetry",
    "Reading",
    "Span",
    "Telemetry",
    "TracingTelemetry",
    "bind_host",
    "combine",
    "installed",
    "message_of",
    "name_process",
    "plural",
]
