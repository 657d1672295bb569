"""The flows that this host owns, all of them, and what each of them needs of its host.

Owns the map of live flows, the slots they take, the writes that go out for them, and those in this
process who wait for their end. Claims nothing: that is the host's loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from outlive.errors import OutliveError
from outlive.flows.activation import LiveFlow
from outlive.flows.committing import Writes
from outlive.flows.decision import StepTask
from outlive.flows.desk import FlowDesk
from outlive.flows.executing import Executor
from outlive.flows.failures import decode_failure, traceback_of
from outlive.flows.heeding import look_for_ended
from outlive.flows.parking import Parking
from outlive.flows.run import FlowRun
from outlive.flows.store_clock import StoreClock
from outlive.flows.stuck import Stuck
from outlive.flows.transacting import transact
from outlive.model.instance import (
    LETTERS_MAX,
    ClaimedInstance,
    Commit,
    Committed,
    Handback,
    InstanceStatus,
    NewInstance,
)
from outlive.names import JobId
from outlive.ports.instance_store import WritesAtOnce
from outlive.runtime.session import LiveSession
from outlive.serialization import decode_metadata
from outlive.telemetry import events
from outlive.work.repeating import while_held

# What a commit says that does not end its flow.
_RUNNING = InstanceStatus.RUNNING


class Household:
    """What live flows share on one host; their ``Home``."""

    def __init__(
        self, desk: FlowDesk, *, clock: StoreClock, executor: Executor, park_grace_s: float
    ) -> None:
        self.host = desk.host_name
        self.runtime = desk.runtime
        self.store = desk.store
        self.clock = clock
        self.executor = executor
        self.telemetry = desk.telemetry
        self.log = log = desk.log
        self.lives: dict[str, LiveFlow] = {}
        # Flows that do something now; those that only wait take no slot.
        self.active = 0
        # Called when a slot is free again, and with the seconds until a flow that was let go here
        # comes due.
        self.freed: Callable[[], None] = _nothing
        self.comes_due: Callable[[float], None] = _nothing_in
        store = desk.store
        at_once = store if isinstance(store, WritesAtOnce) else None
        self.start_at_once = None if at_once is None else at_once.start_at_once
        self.commits: Writes[Commit, Committed] = Writes(
            desk.runtime,
            store.commit,
            log,
            at_once=None if at_once is None else at_once.commit_at_once,
        )
        self.releases: Writes[Handback, bool] = Writes(desk.runtime, store.release, log)
        self.stuck_flows = Stuck(self)
        self._logs = desk.logs
        self._wakeups = desk.wakeups
        self._jobs = desk.driver.jobs
        self._flows = desk.flows
        self._waiters = desk.waiters
        self._parking = Parking(clock, park_grace_s, self._park)
        self._tasks: set[asyncio.Task[Any]] = set()

    def enter(self, claimed: ClaimedInstance, session: LiveSession, at_us: int) -> LiveFlow:
        """Take in a flow that this host owns since ``at_us``. It takes a slot."""
        before = self.lives.get(claimed.id)
        if before is not None:
            # We lost it, and have not heard of that yet.
            self.drop(before)
        live = LiveFlow(self, claimed, session, at_us)
        self.lives[live.id] = live
        self._count(1)
        if self.telemetry.tracing:
            self.telemetry.began(
                "outlive.flow.run",
                _span_of(live),
                decode_metadata(claimed.headers),
                host=self.host,
                id=claimed.id,
                name=claimed.name,
                token=claimed.token,
            )
        fields = {"flow": claimed.id, "token": claimed.token}
        if claimed.version == 0:
            self.log.info("flow %s of %r started", *(claimed.id, claimed.name), extra=fields)
        else:
            self.log.debug("claimed flow %s of %r", *(claimed.id, claimed.name), extra=fields)
        return live

    def drop(self, live: LiveFlow, how: str = "released") -> None:
        """Forget a flow: it is not ours, or will not be. Repeatable."""
        self._forget(live, how)
        live.close()
        self._waiters.gone(live.id)

    def _forget(self, live: LiveFlow, how: str) -> None:
        if self.lives.get(live.id) is live:
            del self.lives[live.id]
            if self.telemetry.tracing:
                error = how in ("failed", "lost", "stuck")
                self.telemetry.ended(_span_of(live), how, error=error)
            if live.idle:
                self._parking.leave(live)
            else:
                self._count(-1)

    def spawn(self, coroutine: Any, name: str) -> None:
        """Run something for a flow beside it."""
        task = self.runtime.spawn(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settled(self) -> None:
        """Wait until everything that was written has its answer."""
        await self.commits.flushed()
        await self.releases.flushed()

    def close(self) -> None:
        """Stop what still goes on by itself. Repeatable."""
        for live in list(self.lives.values()):
            self.drop(live)
        self._parking.close()
        self.executor.close()
        for task in self._tasks:
            task.cancel()

    # -- what a live flow asks --------------------------------------------------------------------

    def new_run(self, live: LiveFlow, input: str, began_at_us: int) -> FlowRun:  # noqa: A002
        """A run of its definition, not begun."""
        return FlowRun(
            self._flows[live.row.name],
            id=live.id,
            base=live.row.base,
            input=input,
            began_at_us=began_at_us,
            headers=live.row.headers,
            custom=live.row.custom,
            attributes=live.row.attributes,
            parent=live.row.parent,
            on_error=self._unobserved,
            logs=self._logs,
        )

    def commit(
        self, live: LiveFlow, commit: Commit, done: Callable[[Committed | None], None]
    ) -> None:
        """Write it."""
        answered = partial(self._answered, live, commit, done)
        self.commits.put(commit, live.session, answered, last=commit.status is not _RUNNING)

    def _answered(
        self,
        live: LiveFlow,
        commit: Commit,
        done: Callable[[Committed | None], None],
        answer: Committed | None,
    ) -> None:
        if commit.starts and self.telemetry.active and answer is not None and answer.ok:
            # What others had the ids of was not started.
            begun = len(commit.starts) - len(answer.taken)
            self.telemetry.record(events.FLOWS, begun, event="started")
        if answer is not None and answer.ok:
            self.log.debug(
                "committed version %d of flow %s",
                *(commit.version, live.id),
                extra={"flow": live.id, "token": live.row.token},
            )
        try:
            done(answer)
        except Exception as error:  # noqa: BLE001 - a mistake of ours must not strand a flow
            self.stuck(live, error)

    def transact(self, live: LiveFlow, call: StepTask) -> None:
        """Run a step inside a transaction of the store."""
        self.spawn(transact(self, live, call), "outlive-flow-transaction")

    def read_mail(self, live: LiveFlow, *, after: int) -> None:
        """Read its mailbox from behind that letter."""
        self.spawn(self._read_mail(live, after), "outlive-flow-mail")

    async def _read_mail(self, live: LiveFlow, after: int) -> None:
        async def read() -> Any:
            # Usually from the first: a lower number may be committed after a higher one.
            return await self.store.letters(live.id, after=after, limit=LETTERS_MAX)

        try:
            letters = await while_held(self.runtime, live.session, read)
        except OutliveError as error:
            self.log.debug("could not read the messages of flow %s: %s", live.id, error)
            letters = ()
        live.delivered(letters)

    def heed(self, live: LiveFlow) -> None:
        """Look for children of it that may have ended unheard."""
        wanted = live.run.children.heed()
        if wanted:
            self.spawn(look_for_ended(self, live, wanted), "outlive-flow-children")

    def stop_jobs(self, jobs: Sequence[JobId]) -> None:
        """Let jobs that nobody waits for be cancelled."""
        self.spawn(self._stop_jobs(jobs), "outlive-flow-jobs")

    async def _stop_jobs(self, jobs: Sequence[JobId]) -> None:
        assert self._jobs is not None
        try:
            await self._jobs.cancel(jobs, reason="the flow no longer waits for this step")
        except OutliveError as error:
            # They run for nothing, and what they bring is dropped.
            self.log.warning(
                "could not cancel the queued jobs of %d abandoned step calls: %s", len(jobs), error
            )

    def rested(self, live: LiveFlow) -> None:
        """It only waits now."""
        live.idle = True
        self._parking.enter(live)
        self._count(-1)

    def woke(self, live: LiveFlow) -> None:
        """Something happened to it while it rested."""
        live.idle = False
        self._parking.leave(live)
        self._count(1)

    def _count(self, change: int) -> None:
        self.active += change
        if self.telemetry.active:
            self.telemetry.record(events.FLOWS_ACTIVE, change)
        if change < 0:
            self.freed()

    def _park(self, live: LiveFlow) -> None:
        due_us = live.run.due_at_us
        if self.telemetry.active:
            self.telemetry.record(events.FLOWS, event="parked")
        self.log.debug("parked flow %s of %r", *(live.id, live.row.name), extra={"flow": live.id})
        self.hand_back(live, "parked")
        if due_us is not None:
            self.comes_due(self.clock.wait_s(due_us))

    def hand_back(self, live: LiveFlow, how: str = "released") -> None:
        """Let it go: anybody may have it, at once if it would go on by itself."""
        pending, parting = live.pending, live.parting()
        self.drop(live, how)
        if pending or parting is None:
            self.give_up(live, due=pending)
        else:
            self.commits.put(parting, live.session, _parted)

    def give_up(self, live: LiveFlow, *, due: bool) -> None:
        """Write that it is not ours any more."""
        self.releases.put(Handback(live.id, live.row.token, due), live.session, _given_up)

    def not_started(self, live: LiveFlow, starts: Sequence[NewInstance]) -> None:
        """These were to be started, but others have their ids."""
        for new in starts:
            # The code of the flow may have ended, or may never await it.
            if new.outlives:
                self.log.warning(
                    "flow %s of %r did not start %r: another flow already has the id %s",
                    *(live.id, live.row.name, new.name, new.id),
                    extra={"flow": live.id},
                )

    def ended(self, live: LiveFlow, status: InstanceStatus, outcome: str | None) -> None:
        """It has ended, and its end is stored."""
        self._waiters.ended(live.id, status, outcome)
        self.stuck_flows.recovered(live.id)
        self._forget(live, status.value)
        if status is InstanceStatus.FAILED:
            failure = decode_failure(outcome)
            self.log.error(
                "flow %s of %r failed: %s: %s%s",
                *(live.id, live.row.name, failure.type, failure.message, traceback_of(failure)),
                extra={"flow": live.id},
            )
        else:
            self.log.info(
                "flow %s of %r ended: %s",
                *(live.id, live.row.name, status.value),
                extra={"flow": live.id, "token": live.row.token},
            )
        if self.telemetry.active:
            self.telemetry.record(events.FLOWS_ENDED, flow=live.row.name, outcome=status.value)

    def lost(self, live: LiveFlow, *, fenced: bool) -> None:
        """It is not ours any more."""
        if not fenced and live.session.held:
            self.stuck(
                live, RuntimeError("its next commit could not be written (see the error above)")
            )
            return
        self.forfeit(live)
        if live.session.held:
            # Should it be ours after all, others can have it at once.
            self.give_up(live, due=True)
        if self.telemetry.active:
            if fenced:
                self.spawn(self._count_refusal(live), "outlive-flow-refused")
            else:
                self.telemetry.record(events.FLOWS, event="unknown")
        self.log.warning(
            "lost the ownership of flow %s: its last commit on this host was not written; "
            "another host continues the flow",
            live.id,
            extra={"flow": live.id, "token": live.row.token},
        )

    def forfeit(self, live: LiveFlow) -> None:
        """Forget a flow that was taken from us. Repeatable, and counted once."""
        if self.telemetry.active and self.lives.get(live.id) is live:
            self.telemetry.record(events.FLOWS, event="lost")
        self.drop(live, "lost")

    async def _count_refusal(self, live: LiveFlow) -> None:
        """Count a commit that was refused: by its token, or by its version alone.

        The refusal does not say which. It is rare enough to be asked for, where anybody counts.
        """
        try:
            record = await self.store.get(live.id)
        except OutliveError:
            record = None
        ours = record is not None and record.token == live.row.token
        self.telemetry.record(events.FLOWS, event="conflict" if ours else "fenced")

    def stuck(self, live: LiveFlow, error: Exception) -> None:
        """Its code and its history do not go together."""
        self.stuck_flows.hold(live, error)

    def stopwatch(self) -> float:
        """When code begins to run."""
        return self.runtime.clock.monotonic()

    def activated(self, began: float) -> None:
        """Code has run since ``began``."""
        self.telemetry.record(events.FLOW_ACTIVATION, self.runtime.clock.monotonic() - began)

    def fired(self, late_us: int) -> None:
        """A timer was fired so late."""
        if self.telemetry.active:
            self.telemetry.record(events.FLOW_TIMER_LAG, max(0.0, late_us / 1e6))

    def _unobserved(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.log.log(
            logging.WARNING if error is None else logging.ERROR,
            "error in the code of flow %s: %s",
            *(context["flow"], context.get("message", "an error")),
            exc_info=error,
            extra={"flow": context["flow"]},
        )


def _span_of(live: LiveFlow) -> str:
    return f"{live.id}/{live.row.token}"


def _nothing() -> None:
    """Nobody waits for a slot."""


def _nothing_in(seconds: float) -> None:
    """Nobody looks for flows."""


def _parted(committed: Committed | None) -> None:
    """The same."""


def _given_up(released: bool | None) -> None:  # noqa: FBT001 - it is an answer
    """Whoever took it from us before we gave it up has it."""
