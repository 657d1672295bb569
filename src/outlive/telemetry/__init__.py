"""What a process says of its work: events for metrics and traces, and its log."""

from outlive.telemetry.events import Attribute, Metric, Span, Telemetry, combine
from outlive.telemetry.logging import (
    UNBOUND,
    HostLogs,
    JsonFormatter,
    bind_host,
    message_of,
    plural,
)
from outlive.telemetry.opentelemetry import MetricsTelemetry, TracingTelemetry
from outlive.telemetry.prometheus import PrometheusTelemetry

__all__ = [
    "UNBOUND",
    "Attribute",
    "HostLogs",
    "JsonFormatter",
    "Metric",
    "MetricsTelemetry",
    "PrometheusTelemetry",
    "Span",
    "Telemetry",
    "TracingTelemetry",
    "bind_host",
    "combine",
    "message_of",
    "plural",
]
