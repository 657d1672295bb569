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
    Evicted,
    Fenced,
    FlowCancelled,
    FlowEnded,
    FlowError,
    FlowExists,
    FlowFailed,
    FlowNotFound,
    FlowTerminated,
    GroupReleased,
    HistoryTooLong,
    HistoryTooNew,
    HoldfastError,
    InvalidChart,
    InvalidName,
    InvalidPayload,
    JobExists,
    JobFailed,
    JobNotFound,
    LeaseExpired,
    LeaseHeld,
    LeaseLost,
    LeaseNotFound,
    MailboxFull,
    MicrostepLimit,
    NonDeterminism,
    NotFound,
    OutcomeUnknown,
    QueueClosed,
    RequestTimeout,
    RetryRefused,
    ScheduleNotFound,
    SchemaMismatch,
    StepFailed,
    StepOutcomeUnknown,
    StoreError,
    StoreUnavailable,
    TokenNotFound,
    UnknownTarget,
    UnsupportedByDriver,
    UpdateFailed,
    UpdateRejected,
    UsageError,
    WaitTimeout,
)
from holdfast.fencing import fence
from holdfast.flows.calls import ChildCall, SignalWait, StepCall
from holdfast.flows.context import (
    continue_as_new,
    flow_id,
    logger,
    now,
    on_query,
    on_update,
    patched,
    random,
    set_attributes,
    set_status,
    signal,
    sleep_until,
    start_child,
    uuid,
    wait_signal,
)
from holdfast.flows.flow import Flow
from holdfast.flows.flows import Flows
from holdfast.flows.handle import FlowHandle
from holdfast.flows.info import FlowCommit, FlowInfo, RunningStep
from holdfast.flows.saga import Saga, saga
from holdfast.flows.scheduling import Scheduling
from holdfast.flows.step import Step
from holdfast.flows.unchecked import unchecked
from holdfast.host import Health, Holdfast
from holdfast.leases.events import AtRisk, LeaseEvent, Lost, Released, Renewed, RenewFailed
from holdfast.leases.info import LeaseInfo
from holdfast.leases.lease import Lease
from holdfast.leases.leases import Leases
from holdfast.model.flow_options import FlowOptions
from holdfast.model.instance import InstanceStatus
from holdfast.model.job import Attempt, JobState, LimitsBy, QueueMode
from holdfast.model.lease import Ended, Tenancy
from holdfast.model.options import LeaseOptions
from holdfast.model.retry import Retry
from holdfast.model.schedule import CatchUp
from holdfast.model.ticks import Tick
from holdfast.runtime.logs import JsonFormatter
from holdfast.runtime.prometheus import PrometheusTelemetry
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.telemetry import Telemetry, combine
from holdfast.runtime.tracing import TracingTelemetry
from holdfast.work.claim import Claim
from holdfast.work.current import Current, cancelled, current
from holdfast.work.definition import CronTick
from holdfast.work.handler import Handler
from holdfast.work.job import Job, JobInfo
from holdfast.work.schedules import ScheduleInfo, Schedules
from holdfast.work.work import QueueInfo, Work

if _TYPE_CHECKING:
    from holdfast.charts.orchestrator import Orchestrator, orchestrator

__version__ = "0.1.0"

__all__ = [
    "AcquireTimeout",
    "AlreadyOwned",
    "App",
    "AtRisk",
    "Attempt",
    "CatchUp",
    "ChartError",
    "ChildCall",
    "Claim",
    "ClaimLost",
    "Clock",
    "ConfigurationError",
    "Conflict",
    "CronTick",
    "Current",
    "DuplicateJob",
    "Ended",
    "EventUnhandled",
    "Evicted",
    "Fenced",
    "Flow",
    "FlowCancelled",
    "FlowCommit",
    "FlowEnded",
    "FlowError",
    "FlowExists",
    "FlowFailed",
    "FlowHandle",
    "FlowInfo",
    "FlowNotFound",
    "FlowOptions",
    "FlowTerminated",
    "Flows",
    "GroupReleased",
    "Handler",
    "Health",
    "HistoryTooLong",
    "HistoryTooNew",
    "Holdfast",
    "HoldfastError",
    "InstanceStatus",
    "InvalidChart",
    "InvalidName",
    "InvalidPayload",
    "Job",
    "JobExists",
    "JobFailed",
    "JobInfo",
    "JobNotFound",
    "JobState",
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
    "LimitsBy",
    "Lost",
    "MailboxFull",
    "MicrostepLimit",
    "NonDeterminism",
    "NotFound",
    "Orchestrator",
    "OutcomeUnknown",
    "PrometheusTelemetry",
    "QueueClosed",
    "QueueInfo",
    "QueueMode",
    "Released",
    "RenewFailed",
    "Renewed",
    "RequestTimeout",
    "Retry",
    "RetryRefused",
    "RunningStep",
    "Runtime",
    "Saga",
    "ScheduleInfo",
    "ScheduleNotFound",
    "Schedules",
    "Scheduling",
    "SchemaMismatch",
    "SignalWait",
    "Step",
    "StepCall",
    "StepFailed",
    "StepOutcomeUnknown",
    "StoreError",
    "StoreUnavailable",
    "SystemClock",
    "Telemetry",
    "Tenancy",
    "Tick",
    "TokenNotFound",
    "TracingTelemetry",
    "UnknownTarget",
    "UnsupportedByDriver",
    "UpdateFailed",
    "UpdateRejected",
    "UsageError",
    "WaitTimeout",
    "Work",
    "__version__",
    "cancelled",
    "combine",
    "connect",
    "continue_as_new",
    "current",
    "fence",
    "flow_id",
    "logger",
    "now",
    "on_query",
    "on_update",
    "orchestrator",
    "patched",
    "random",
    "saga",
    "set_attributes",
    "set_status",
    "signal",
    "sleep_until",
    "start_child",
    "unchecked",
    "uuid",
    "wait_signal",
]


def __getattr__(name: str) -> _Any:
    # Charts take as long to import as all the rest, and many programs have none.
    if name in {"Orchestrator", "orchestrator"}:
        from holdfast.charts import orchestrator as charts

        return getattr(charts, name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
