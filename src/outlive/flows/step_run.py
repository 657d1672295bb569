"""One attempt of a local step: what its code may know of it, and whether anybody still waits."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import Any, Protocol

from outlive.errors import ClaimLost
from outlive.flows.arguments import encoded, text_of
from outlive.flows.decision import StepTask
from outlive.flows.events import StepEnded, StepRetrying
from outlive.flows.row import FlowRow
from outlive.names import InstanceId, JobId, Token
from outlive.runtime.session import LiveSession
from outlive.serialization import decode_metadata, decode_plain
from outlive.work.current import FLOW_HEADER, STEP_HEADER, Current


class StepOwner(Protocol):
    """The flow that a step belongs to, as this host has it."""

    row: FlowRow
    session: LiveSession
    closed: bool

    def step_happened(self, run: StepRun, event: StepEnded | StepRetrying) -> None:
        """An attempt ended."""
        ...


class StepRun:
    """An attempt that runs, or waits for its turn. Also what ``outlive.current()`` asks."""

    # Most attempts have no use for these: they stand in the class until they are set.
    task: asyncio.Task[Any] | None = None
    gate: Gate | None = None
    # Whether its end was told, or will not be.
    over = False
    timed_out: str | None = None
    timers: tuple[asyncio.TimerHandle, ...] = ()
    # When it began, where anybody measures that.
    began_at = 0.0
    beat_at = 0.0

    def __init__(self, owner: StepOwner, call: StepTask, host: str, log: logging.Logger) -> None:
        self.owner = owner
        self.call = call
        self.current = Current(self, host, log, self)
        # What it said last, or those before it.
        self.details = call.details
        if call.attempt > 1:
            self.current.heartbeat_details = decode_plain(text_of(call.details))
        self.loop = asyncio.get_running_loop()

    @property
    def id(self) -> JobId:
        """The idempotency key: the flow's id and the step's identity in its run."""
        call, row = self.call, self.owner.row
        return JobId(step_key(row.id, row.base, call.key or call.identity))

    @property
    def queue(self) -> str:
        """None: it runs where its flow does."""
        return ""

    @property
    def headers(self) -> dict[str, Any]:
        """Those of its flow, and which flow and step it is."""
        mine = {FLOW_HEADER: self.owner.row.id, STEP_HEADER: self.call.identity}
        return {**decode_metadata(self.owner.row.headers), **mine}

    @property
    def attempt(self) -> int:
        """1 is the first."""
        return self.call.attempt

    @property
    def token(self) -> Token:
        """The token under which this host owns the flow."""
        self.check()
        return self.owner.row.token

    def check(self) -> None:
        """Raise ``ClaimLost`` unless this host owns the flow, and the step is wanted."""
        if not self.owner.session.held:
            raise ClaimLost(self.id, "expired")
        if self.owner.closed or self.over:
            raise ClaimLost(self.id, "cancelled")

    def report(self, progress: object) -> None:
        """Keep ``progress``, and take it for a heartbeat. Safe from any thread."""
        self.details = encoded(progress, "the progress")
        self.beat()

    def beat(self) -> None:
        """Take it for a heartbeat. Safe from any thread."""
        self.loop.call_soon_threadsafe(self._beat)

    def _beat(self) -> None:
        self.beat_at = self.loop.time()


def step_key(flow: InstanceId, base: int, identity: str) -> str:
    """What an effect of this step is known by, at every attempt and on every host."""
    return f"{flow}/{identity}@{base}" if base else f"{flow}/{identity}"


class Gate:
    """How many attempts of one step run on this host at once."""

    __slots__ = ("_free", "_waiting")

    def __init__(self, limit: int) -> None:
        self._free = limit
        # In order, and found at once: thousands may wait and be stopped together.
        self._waiting: OrderedDict[StepRun, None] = OrderedDict()

    def enter(self, run: StepRun) -> bool:
        """Whether it may begin now; if not, it waits for its turn."""
        if self._free:
            self._free -= 1
            return True
        self._waiting[run] = None
        return False

    def leave(self) -> StepRun | None:
        """One has ended: the next that may begin."""
        if self._waiting:
            return self._waiting.popitem(last=False)[0]
        self._free += 1
        return None

    def forget(self, run: StepRun) -> None:
        """It does not wait any more, if it did."""
        self._waiting.pop(run, None)
