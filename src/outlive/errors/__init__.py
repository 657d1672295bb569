"""Every error a caller can meet, named for what the caller does next.

Owns the names of the error classes, and nothing else. The classes stand in modules by feature, and
are known by the name of this one, also in stores, where policies and histories keep their names. A
driver's own exceptions never cross a port: each driver translates them into these. An error carries
fields, so that a program can act on it without reading its prose.
"""

from __future__ import annotations

from outlive.errors.charts import (
    ChartError,
    EventUnhandled,
    GroupReleased,
    InvalidChart,
    MailboxFull,
    MicrostepLimit,
    RequestTimeout,
    UnknownTarget,
    WaitTimeout,
)
from outlive.errors.families import (
    ConfigurationError,
    Conflict,
    InvalidName,
    NotFound,
    OutcomeUnknown,
    OutliveError,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
    TokenNotFound,
    UnsupportedByDriver,
    UsageError,
)
from outlive.errors.flows import (
    Evicted,
    FlowCancelled,
    FlowEnded,
    FlowError,
    FlowExists,
    FlowFailed,
    FlowNotFound,
    FlowTerminated,
    HistoryTooLong,
    HistoryTooNew,
    NonDeterminism,
    RetryRefused,
    StepFailed,
    StepOutcomeUnknown,
    UpdateFailed,
    UpdateRejected,
)
from outlive.errors.leases import (
    AcquireTimeout,
    AlreadyOwned,
    Fenced,
    LeaseExpired,
    LeaseHeld,
    LeaseLost,
    LeaseNotFound,
)
from outlive.errors.work import (
    ClaimLost,
    DuplicateJob,
    InvalidPayload,
    JobExists,
    JobFailed,
    JobNotFound,
    QueueClosed,
    ScheduleNotFound,
)

__all__ = [
    "AcquireTimeout",
    "AlreadyOwned",
    "ChartError",
    "ClaimLost",
    "ConfigurationError",
    "Conflict",
    "DuplicateJob",
    "EventUnhandled",
    "Evicted",
    "Fenced",
    "FlowCancelled",
    "FlowEnded",
    "FlowError",
    "FlowExists",
    "FlowFailed",
    "FlowNotFound",
    "FlowTerminated",
    "GroupReleased",
    "HistoryTooLong",
    "HistoryTooNew",
    "InvalidChart",
    "InvalidName",
    "InvalidPayload",
    "JobExists",
    "JobFailed",
    "JobNotFound",
    "LeaseExpired",
    "LeaseHeld",
    "LeaseLost",
    "LeaseNotFound",
    "MailboxFull",
    "MicrostepLimit",
    "NonDeterminism",
    "NotFound",
    "OutcomeUnknown",
    "OutliveError",
    "QueueClosed",
    "RequestTimeout",
    "RetryRefused",
    "ScheduleNotFound",
    "SchemaMismatch",
    "StepFailed",
    "StepOutcomeUnknown",
    "StoreError",
    "StoreUnavailable",
    "TokenNotFound",
    "UnknownTarget",
    "UnsupportedByDriver",
    "UpdateFailed",
    "UpdateRejected",
    "UsageError",
    "WaitTimeout",
]

for _kind in [globals()[name] for name in __all__]:
    _kind.__module__ = __name__
