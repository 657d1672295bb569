"""What people are shown of a flow: its status and its history, decoded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from outlive.clock import instant
from outlive.flows.arguments import text_of
from outlive.flows.attributes import STUCK
from outlive.flows.events import Event, decode_events
from outlive.flows.step_run import StepRun
from outlive.model.instance import FINAL, HistoryRow, InstanceRecord, InstanceStatus
from outlive.names import InstanceId
from outlive.serialization import decode_plain


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningStep:
    """A step that runs now: which, at which attempt, and what it said last with ``heartbeat``."""

    step: str
    attempt: int
    details: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowInfo:
    """A flow as the store knew it when it was asked.

    Attributes:
        input: The arguments by name, as plain JSON.
        outcome: The result of a completed flow, or ``{"type": …, "message": …}`` of another.
        custom: What its code said last with ``outlive.set_status``.
        host: The name of the host that has it now, if one does.
        token: Grows with each owner.
        due_at: When it goes on though nothing happens to it.
        cursor: Its place in the order of flows, where a page that ends with it goes on.
        steps: The steps that run on this very host; ``None`` if the flow is not in its memory.
            Those in queues are jobs, whose progress ``host.work`` shows.
    """

    id: InstanceId
    name: str
    status: InstanceStatus
    input: Any
    outcome: Any
    custom: Any
    attributes: dict[str, Any]
    parent: InstanceId | None
    host: str | None
    token: int
    version: int
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    due_at: datetime | None
    cursor: str = field(repr=False)
    steps: tuple[RunningStep, ...] | None = None

    @property
    def stuck(self) -> str | None:
        """Why it cannot go on, if it lives and its code does not do what its history says."""
        reason = None if self.status in FINAL else self.attributes.get(STUCK)
        return None if reason is None else str(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowCommit:
    """One commit of a flow: what happened, and what was decided on it, in order."""

    version: int
    token: int
    host: str | None
    at: datetime
    events: tuple[Event, ...]


def running_of(runs: Iterable[StepRun]) -> tuple[RunningStep, ...]:
    """The steps of a flow that run here."""
    return tuple(
        RunningStep(
            step=run.call.identity, attempt=run.attempt, details=decode_plain(text_of(run.details))
        )
        for run in runs
    )


def info_of(record: InstanceRecord, steps: tuple[RunningStep, ...] | None = None) -> FlowInfo:
    """What a store said of one flow, and this host of its steps."""
    return FlowInfo(
        id=record.id,
        name=record.name,
        status=record.status,
        input=decode_plain(record.input),
        outcome=decode_plain(record.outcome),
        custom=decode_plain(record.custom),
        attributes=cast("dict[str, Any]", decode_plain(record.attributes)),
        parent=record.parent,
        host=record.owned_by,
        token=record.token,
        version=record.version,
        created_at=record.created_at,
        updated_at=record.updated_at,
        ended_at=record.ended_at,
        due_at=record.due_at,
        cursor=record.cursor,
        steps=steps,
    )


def commit_of(row: HistoryRow) -> FlowCommit:
    """One row of a history."""
    return FlowCommit(
        version=row.version,
        token=row.token,
        host=row.worker,
        at=instant(row.at_us),
        events=tuple(decode_events(row.events)),
    )
