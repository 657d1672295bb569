"""Outlive keeps a fleet of processes correct when hosts die, stall or lose their network.

The public names, and nothing else.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from outlive.app import App
from outlive.clock import Clock, SystemClock
from outlive.connect import connect
from outlive.errors import (
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
    OutliveError,
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
from outlive.fencing import fence
from outlive.flows.calls import ChildCall, SignalWait, StepCall
from outlive.flows.context import (
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
from outlive.flows.flow import Flow
from outlive.flows.flows import Flows
from outlive.flows.handle import FlowHandle
from outlive.flows.info import FlowCommit, FlowInfo, RunningStep
from outlive.flows.saga import Saga, saga
from outlive.flows.step import Step
from outlive.host import Health, Host
from outlive.leases.events import AtRisk, LeaseEvent, Lost, Released, Renewed, RenewFailed
from outlive.leases.info import LeaseInfo
from outlive.leases.lease import Lease
from outlive.leases.leases import Leases
from outlive.model.flow_options import FlowOptions
from outlive.model.instance import InstanceStatus
from outlive.model.job import Attempt, JobState, LimitsBy, QueueMode
from outlive.model.lease import Ended, Tenancy
from outlive.model.options import LeaseOptions
from outlive.model.retry import Later, Retry
from outlive.model.schedule import CatchUp
from outlive.model.ticks import Tick
from outlive.runtime.hosts import HostInfo, Hosts
from outlive.runtime.runtime import Runtime
from outlive.telemetry import (
    JsonFormatter,
    Metric,
    MetricsTelemetry,
    PrometheusTelemetry,
    Telemetry,
    TracingTelemetry,
    combine,
)
from outlive.work.claim import Claim
from outlive.work.current import Current, cancelled, current
from outlive.work.definition import CronTick
from outlive.work.handler import Handler
from outlive.work.job import Job, JobInfo
from outlive.work.schedules import ScheduleInfo, Schedules
from outlive.work.work import QueueInfo, Work

if _TYPE_CHECKING:
    from outlive.charts.orchestrator import Orchestrator, orchestrator

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
    "Host",
    "HostInfo",
    "Hosts",
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
    "Later",
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
    "Metric",
    "MetricsTelemetry",
    "MicrostepLimit",
    "NonDeterminism",
    "NotFound",
    "Orchestrator",
    "OutcomeUnknown",
    "OutliveError",
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
    "uuid",
    "wait_signal",
]


def __getattr__(name: str) -> _Any:
    # Charts take as long to import as all the rest, and many programs have none.
    if name in {"Orchestrator", "orchestrator"}:
        from outlive.charts import orchestrator as charts

        return getattr(charts, name)
    raise AttributeError(f"module 'outlive' has no attribute {name!r}")
