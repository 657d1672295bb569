"""Holdfast keeps a fleet of processes correct when hosts die, stall or lose their network.

The public names, and nothing else.
"""

from holdfast.app import App
from holdfast.charts.orchestrator import Orchestrator, orchestrator
from holdfast.clock import Clock, SystemClock
from holdfast.connect import connect
from holdfast.errors import (
    AcquireTimeout,
    AlreadyOwned,
    ConfigurationError,
    Conflict,
    Fenced,
    HoldfastError,
    InvalidName,
    LeaseExpired,
    LeaseHeld,
    LeaseLost,
    LeaseNotFound,
    NotFound,
    OutcomeUnknown,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
    UnsupportedByDriver,
    UsageError,
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

__version__ = "0.1.0"

__all__ = [
    "AcquireTimeout",
    "AlreadyOwned",
    "App",
    "AtRisk",
    "Clock",
    "ConfigurationError",
    "Conflict",
    "Ended",
    "Fenced",
    "Health",
    "Holdfast",
    "HoldfastError",
    "InvalidName",
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
    "NotFound",
    "Orchestrator",
    "OutcomeUnknown",
    "PrometheusTelemetry",
    "Released",
    "RenewFailed",
    "Renewed",
    "Runtime",
    "SchemaMismatch",
    "StoreError",
    "StoreUnavailable",
    "SystemClock",
    "Telemetry",
    "Tenancy",
    "Tick",
    "TracingTelemetry",
    "UnsupportedByDriver",
    "UsageError",
    "__version__",
    "combine",
    "connect",
    "orchestrator",
]
