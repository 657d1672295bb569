"""Hosting: joins what a host needs to run the flows of its app."""

from __future__ import annotations

from collections.abc import Sequence

from outlive.flows.desk import FlowDesk
from outlive.flows.executing import Executor
from outlive.flows.host import FlowHost
from outlive.flows.household import Household
from outlive.flows.store_clock import StoreClock
from outlive.model.flow_options import FlowOptions
from outlive.model.options import seconds
from outlive.work.current import Middleware


def flow_host(
    desk: FlowDesk,
    middlewares: Sequence[Middleware],
    *,
    options: FlowOptions,
    claim_batch: int,
) -> FlowHost:
    """What runs the flows that ``desk`` knows."""
    clock = StoreClock(desk.runtime.clock, desk.driver.capabilities.drift)
    executor = Executor(
        desk.runtime,
        clock,
        threads=options.threads,
        middlewares=middlewares,
        telemetry=desk.telemetry,
        host=desk.host_name,
        log=desk.log,
    )
    home = Household(
        desk,
        clock=clock,
        executor=executor,
        park_grace_s=seconds(options.park_grace, "park_grace"),
    )
    return FlowHost(
        home,
        desk.claimer,
        desk.bell,
        names=tuple(desk.flows),
        options=options,
        claim_batch=claim_batch,
        log=desk.log,
    )
