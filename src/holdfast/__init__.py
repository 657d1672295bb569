"""Holdfast keeps a fleet of processes correct when hosts die, stall or lose their network.

The public names, and nothing else.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from holdfast.app import App
from holdfast.clock import Clock, SystemClock
from holdfast.connect import connect
from holdfast.errors import (
    AcquireTimeout,
    AlreadyOwned,
    ChartError,
    ClaimLost,
    ConfigurationError,
    Conflict,
    DuplicateJob,
    EventUnhandled,
    Fenced,
    GroupReleased,
    HoldfastError,
    InvalidChart,
    InvalidName,
    JobFailed,
    JobNotFound,
    LeaseExpired,
    LeaseHeld,
    LeaseLost,
    LeaseNotFound,
    MailboxFull,
    MicrostepLimit,
    NotFound,
    OutcomeUnknown,
    QueueClosed,
    RequestTimeout,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
    UnknownTarget,
    UnsupportedByDriver,
    UsageError,
    WaitTimeout,
)
from holdfast.host import Health, Holdfast
from holdfast.leases.events import AtRisk, LeaseEvent, Lost, Released, Renewed, RenewFailed
from holdfast.leases.info import LeaseInfo
from holdfast.leases.lease import Lease
from holdfast.leases.leases import Leases
from holdfast.model.lease import Ended, Tenancy
from holdfast.model.options import LeaseOptions
from holdfast.model.ticks import Tick
from holdfast.runtime.logs import JsonFormatter
from holdfast.runtime.prometheus import PrometheusTelemetry
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.telemetry import Telemetry, combine
from holdfast.runtime.tracing import TracingTelemetry

if _TYPE_CHECKING:
    from holdfast.charts.orchestrator import Orchestrator, orchestrator

__version__ = "0.1.0"

__all__ = [
    "AcquireTimeout",
    "AlreadyOwned",
    "App",
    "AtRisk",
    "ChartError",
    "ClaimLost",
    "Clock",
    "ConfigurationError",
    "Conflict",
    "DuplicateJob",
    "Ended",
    "EventUnhandled",
    "Fenced",
    "GroupReleased",
    "Health",
    "Holdfast",
    "HoldfastError",
    "InvalidChart",
    "InvalidName",
    "JobFailed",
    "JobNotFound",
    "JsonFormatter",
    "Lease",
    "LeaseEvent",
    "LeaseExpired",
    "LeaseHeld",
    "LeaseInfo",
    "LeaseLost",
    "LeaseNotFound",
    "LeaseOptions",
    "Leases",
    "Lost",
    "MailboxFull",
    "MicrostepLimit",
    "NotFound",
    "Orchestrator",
    "OutcomeUnknown",
    "PrometheusTelemetry",
    "QueueClosed",
    "Released",
    "RenewFailed",
    "Renewed",
    "RequestTimeout",
    "Runtime",
    "SchemaMismatch",
    "StoreError",
    "StoreUnavailable",
    "SystemClock",
    "Telemetry",
    "Tenancy",
    "Tick",
    "TracingTelemetry",
    "UnknownTarget",
    "UnsupportedByDriver",
    "UsageError",
    "WaitTimeout",
    "__version__",
    "combine",
    "connect",
    "orchestrator",
]


def __getattr__(name: str) -> _Any:
    # Charts take as long to import as all the rest, and many programs have none.
    if name in {"Orchestrator", "orchestrator"}:
        from holdfast.charts import orchestrator as charts

        return getattr(charts, name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
