"""Flows by a timetable: a tick is a job in a queue of its own, and its handler starts the flow.

The flow's id is that of the job, so that a tick starts one flow however often its job is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from outlive.flows.desk import FlowDesk
from outlive.model.flow_options import FlowOptions
from outlive.model.instance import NewInstance
from outlive.model.options import seconds
from outlive.names import InstanceId, JobId
from outlive.runtime.runtime import Runtime
from outlive.work.claiming import POLL_S
from outlive.work.current import current
from outlive.work.handler import Handler, HandlerOptions

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


def poll_of(handlers: Sequence[Handler[Any, Any]], options: FlowOptions, runtime: Runtime) -> float:
    """How long a worker of these waits for a ring before it looks without one.

    Only ticks of schedules come to the queue of flows: alone, it is looked at as flows are.
    """
    if all(handler.queue == QUEUE for handler in handlers):
        return seconds(options.poll, "poll")
    return POLL_S * runtime.patience
