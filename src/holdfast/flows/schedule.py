"""Flows by a timetable: a tick is a job in a queue of its own, and its handler starts the flow.

The flow's id is that of the job, so that a tick starts one flow however often its job is run.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.flows.desk import FlowDesk
from holdfast.model.instance import NewInstance
from holdfast.names import InstanceId, JobId
from holdfast.work.current import current
from holdfast.work.handler import Handler, HandlerOptions

QUEUE = "flows/start"
"""The queue of jobs that start flows; every host that runs flows works on it."""


class StartFlow(msgspec.Struct, frozen=True, kw_only=True):
    """What such a job carries: which flow to start, with which input."""

    flow: str
    input: str
    retention_us: int


def start_handler(desk: FlowDesk) -> Handler[Any, Any]:
    """The handler that starts flows."""

    async def start(wanted: StartFlow) -> str:
        job: JobId = current().job
        new = NewInstance(
            id=InstanceId(job),
            kind="flow",
            name=wanted.flow,
            input=wanted.input,
            request=f"schedule/{job}",
            retention_us=wanted.retention_us,
        )
        await desk.starter.start(new)
        return new.id

    return Handler[Any, Any](start, QUEUE, HandlerOptions())
