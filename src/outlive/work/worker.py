"""The worker: one loop that claims for all queues of an app and runs what it gets.

It claims at most as many jobs as it has free slots, so that each begins at once, and refills as
slots free. Where a queue is known to be empty it waits for a ring; the poll behind that is the
safety net. Owns the runs of one host, and their end when the host stops.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

from outlive.errors import LeaseLost, StoreError
from outlive.leases.leases import Leases
from outlive.model.job import (
    SUSPECT_LOSSES,
    ClaimedJob,
    LimitsBy,
    QueueSettings,
    Return,
    Want,
)
from outlive.runtime.backoff import Backoff
from outlive.runtime.session import LiveSession
from outlive.telemetry import events
from outlive.work.bell import Alarm
from outlive.work.claiming import POLL_S
from outlive.work.current import Middleware
from outlive.work.handler import Handler, HandlerOptions
from outlive.work.keys import KeyLimits
from outlive.work.noting import Noting
from outlive.work.patrol import Patrol
from outlive.work.running import CANCELLED, LOST, STOPPED, House, Run, Runner
from outlive.work.work import Work

# Orchestrators of containers kill after 30 s; this leaves time to give back and to disconnect.
GRACE_S = 20.0

# One claim is one statement that holds its rows until it commits; more free slots than this are
# filled by the next one, which follows at once.
CLAIM_BATCH_MAX = 100

# Handlers may end faster than the store takes their completions; beyond this many, no more is
# claimed until some are through.
_UNSETTLED_MAX = 2000

# A queue with a limit in the whole fleet may be free again without anybody ringing.
_LIMITED_POLL_S = 1.0

# An async body that was cancelled at shutdown gets this long to clean up.
_CANCEL_PATIENCE_S = 5.0

# A store that takes no writes must not keep a process from ending. What is not written by then is
# tried on while the host lives, and is taken over by others when it does not.
_SETTLE_PATIENCE_S = 5.0

# Threads of synchronous handlers, in all; more of them fight for the interpreter.
_THREADS_MAX = 256


class _Line:
    """One queue of this worker: its runner, its free slots, and whether there may be jobs."""

    __slots__ = ("free", "hopeful", "limited", "look_at", "queue", "rings", "runner")

    def __init__(self, handler: Handler[Any, Any], runner: Runner) -> None:
        self.queue = handler.queue
        self.runner = runner
        self.free = handler.options.concurrency
        self.hopeful = True
        # When to look though nobody rang, once it was found empty.
        self.look_at = 0.0
        self.rings = 0
        options = handler.options
        self.limited = options.queue_concurrency is not None or options.rate is not None

    def want(self, most: int) -> Want:
        """What it asks of a claim."""
        max_losses = self.runner.handler.options.max_losses
        return Want(self.queue, min(self.free, most), max_losses)


class Worker:
    """Runs the handlers of an app on one host, until stopped. Used once."""

    def __init__(  # noqa: PLR0913 - joins what the host has
        self,
        work: Work,
        leases: Leases,
        handlers: Sequence[Handler[Any, Any]],
        middlewares: Sequence[Middleware],
        *,
        host: str,
        log: logging.Logger,
        claim_batch: int = CLAIM_BATCH_MAX,
        poll_s: float = POLL_S,
    ) -> None:
        claimer = work.claimer
        self._poll_s = poll_s
        self._claim_batch = claim_batch
        self._work = work
        self._claimer = claimer
        self._runtime = work.runtime
        self._telemetry = work.telemetry
        self._log = log
        self._alarm = Alarm()
        self._noting = Noting()
        self._stopping = False
        # The soonest job of ours that came to wait since we last asked, which the answer may not
        # know of.
        self._soonest = math.inf
        self._backoff = Backoff(0.1, 5.0, work.runtime.random)
        self.runs: dict[str, Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Suspects that run: at most one, so that one which kills the host takes no other along.
        self._suspects = 0
        # Slots in use; a task whose slot is free again only waits for the store.
        self._busy = 0
        self._ended: asyncio.Future[None] | None = None
        # Ends what is listened to for the sake of what runs.
        self._heeds: list[Callable[[], object]] = []
        # Who runs the worker, or stops it.
        self._host_task: asyncio.Task[Any] | None = None
        self._pool = self._make_pool(handlers)
        house = House(
            work,
            KeyLimits(work.runtime, leases, log),
            middlewares,
            host=host,
            log=log,
            ended=self._has_ended,
        )
        self._lanes = house.lanes
        self._patrol = Patrol(self, house.lanes.extend, claimer)
        self._lines = {
            handler.queue: _Line(
                handler,
                Runner(
                    handler,
                    house,
                    pool=None if handler.is_async else self._pool,
                    retried=self._look_in,
                ),
            )
            for handler in handlers
        }

    async def run(self) -> None:
        """Claim and run until ``stop``.

        Raises:
            UnsupportedByDriver: A handler asks for limits that the backend does not keep.
        """
        bell = self._claimer.bell
        deafen = bell.listen(self._lines, self._on_ring)
        # As long as anything runs, which may be longer than claims are made.
        self._heeds = [self._claimer.sessions.on_lost(self._on_lost)]
        bell.cancelled = self._on_cancel
        patrol = self._runtime.spawn(self._patrol.run(), name="outlive-patrol")
        self._heeds.append(patrol.cancel)
        self._ended = asyncio.get_running_loop().create_future()
        self._host_task = asyncio.current_task()
        try:
            await self._put_limits()
            while not self._stopping:
                await self._turn()
        finally:
            self._ended.set_result(None)
            deafen()

    async def stop(self, grace_s: float, hurry: asyncio.Event | None = None) -> None:
        """Claim no more; let handlers end within ``grace_s``; give back what did not. Repeatable.

        ``hurry`` ends the grace when it is set.
        Bodies that run longer are cancelled first, and so are those whose job is cancelled or whose
        session is lost meanwhile. A synchronous one cannot be: its job is given back while its
        thread goes on, and what it returns is dropped.
        """
        self._stopping = True
        self._host_task = asyncio.current_task()
        self._alarm.ring()
        try:
            await self._let_end(grace_s, hurry or asyncio.Event())
        finally:
            for end in self._heeds:
                end()
            self._heeds.clear()
            self._claimer.bell.cancelled = None
            if self._pool is not None:
                self._pool.shutdown(wait=False, cancel_futures=True)

    async def _let_end(self, grace_s: float, hurry: asyncio.Event) -> None:
        if self._ended is not None:
            # A claim under way is waited for: what it brings is given back.
            await asyncio.wait([self._ended], timeout=_CANCEL_PATIENCE_S)
        if self._tasks and grace_s > 0:
            spawn, running = self._runtime.spawn, set(self._tasks)
            news = (
                spawn(asyncio.wait(running), name="outlive-ending"),
                spawn(hurry.wait(), name="outlive-hurry"),
            )
            try:
                first = asyncio.FIRST_COMPLETED
                await asyncio.wait(news, timeout=grace_s, return_when=first)
            finally:
                for each in news:
                    each.cancel()
        for run in list(self.runs.values()):
            run.stop(STOPPED)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CANCEL_PATIENCE_S)
        stuck = [run for run in self.runs.values() if not run.over]
        if stuck:
            self._log.warning(
                "handlers ignored cancellation (%d); their jobs are released", len(stuck)
            )
            for run in stuck:
                self._give_back(run.job, run.session)
        try:
            async with asyncio.timeout(_SETTLE_PATIENCE_S):
                await self._lanes.flushed()
        except TimeoutError:
            self._log.warning(
                "timed out writing job results; the jobs will be retried by other workers when "
                "this session expires"
            )

    def _has_ended(self) -> bool:
        """Whether nobody is left to write what becomes of a job: the loop is being torn down.

        Whoever does that cancels all tasks before any of them goes on.
        """
        task = self._host_task
        return task is None or task.done() or task.cancelling() > 0

    async def _turn(self) -> None:
        """Claim what fits, or wait until something does."""
        self._alarm.reset()
        now = self._runtime.clock.monotonic()
        for line in self._lines.values():
            line.hopeful = line.hopeful or line.look_at <= now
        lines = self._hungry()
        if not lines:
            await self._pause()
            return
        wants = [line.want(self._claim_batch) for line in lines]
        limit = min(sum(want.limit for want in wants), self._claim_batch)
        rings = [line.rings for line in lines]
        poll_s = self._claimer.poll_s if self._claimer.bell.deaf else self._poll_s
        self._soonest = math.inf
        try:
            wait_s = self._noting.wait_s(self._runtime.clock.monotonic(), poll_s)
            session, claimed = await self._claimer.ask_to_the_end(
                wants, limit, job=None, wait_s=wait_s, suspects=not self._suspects
            )
        except (StoreError, LeaseLost) as error:
            pause_s = self._backoff.next_s()
            self._log.warning("could not claim jobs, next attempt in %.1f s: %s", pause_s, error)
            await self._alarm.sleep(pause_s)
            return
        self._backoff.reset()
        for job in claimed.jobs:
            self._log.debug(
                "claimed job %s of queue %r",
                *(job.id, job.queue),
                extra={"job": job.id, "queue": job.queue, "token": job.token},
            )
            self._start(job, session)
        if self._telemetry.active:
            for job in claimed.jobs:
                self._telemetry.record(events.JOBS_CLAIMED, queue=job.queue)
        if len(claimed.jobs) < limit:
            self._note_empty(lines, wants, rings, claimed.jobs)
            due_s = poll_s if claimed.next_due_s is None else min(poll_s, claimed.next_due_s)
            if any(line.limited for line in lines):
                due_s = min(due_s, _LIMITED_POLL_S)
            # Of these queues alone: the others are looked at in their own time.
            look_at = min(self._runtime.clock.monotonic() + due_s, self._soonest)
            for line in lines:
                line.look_at = look_at
        else:
            self._noting.gone()

    def _look_in(self, seconds: float) -> None:
        """A job of ours comes due so soon: look then, if nothing else makes us look before."""
        at = self._runtime.clock.monotonic() + seconds
        self._soonest = min(self._soonest, at)
        for line in self._lines.values():
            if at < line.look_at:
                line.look_at = at
                self._alarm.ring()

    def _hungry(self) -> list[_Line]:
        if len(self._tasks) - self._busy >= _UNSETTLED_MAX:
            return []
        return [line for line in self._lines.values() if line.hopeful and line.free > 0]

    def _note_empty(
        self,
        lines: list[_Line],
        wants: list[Want],
        rings: list[int],
        jobs: Sequence[ClaimedJob],
    ) -> None:
        """Remember which queues had less than was wanted, and were not rung meanwhile."""
        got: dict[str, int] = {}
        for job in jobs:
            got[job.queue] = got.get(job.queue, 0) + 1
        for line, want, before in zip(lines, wants, rings, strict=True):
            if got.get(line.queue, 0) < want.limit and line.rings == before:
                line.hopeful = False

    async def _pause(self) -> None:
        """Sleep until a ring, a free slot, or the next look at queues that were empty."""
        idle = [line for line in self._lines.values() if line.free > 0 and not line.hopeful]
        if idle:
            look_at = min(line.look_at for line in idle)
            await self._alarm.sleep(look_at - self._runtime.clock.monotonic())
        else:
            await self._alarm.sleep(None)

    def _start(self, job: ClaimedJob, session: LiveSession) -> None:
        if self._stopping:
            self._give_back(job, session)
            return
        line = self._lines[job.queue]
        line.free -= 1
        self._busy += 1
        self._suspects += job.losses >= SUSPECT_LOSSES
        run = Run(job, session)
        self.runs[job.id] = run
        run.task = task = self._runtime.spawn(self._run(line, run), name="outlive-job")
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        # Told once it counts no longer: a worker that is woken before looks in vain, and many that
        # end in one turn would leave it asleep.
        if len(self._tasks) - self._busy == _UNSETTLED_MAX - 1:
            self._alarm.ring()

    async def _run(self, line: _Line, run: Run) -> None:
        def freed() -> None:
            line.free += 1
            self._busy -= 1
            if line.limited:
                line.hopeful = True
            if run.job.losses >= SUSPECT_LOSSES:
                self._suspects -= 1
                # The next one may stand in any queue.
                for each in self._lines.values():
                    each.hopeful = True
            if line.hopeful:
                self._alarm.ring()

        try:
            await line.runner.run(run, self._patrol.reporting(run), freed)
        finally:
            if self.runs.get(run.job.id) is run:
                del self.runs[run.job.id]
            self._work.books.tell_ended(run.job.id)

    def _give_back(self, job: ClaimedJob, session: LiveSession) -> asyncio.Future[Any]:
        return self._lanes.release.put(Return(job.id, job.token), session)

    def _on_ring(self, queue: str) -> None:
        line = self._lines[queue]
        line.rings += 1
        self._noting.gone()
        line.hopeful = True
        self._alarm.ring()

    def _on_lost(self, session: LiveSession) -> None:
        for run in list(self.runs.values()):
            if run.session is session:
                run.stop(LOST)

    def _on_cancel(self, job: str) -> None:
        run = self.runs.get(job)
        if run is not None:
            self.cancel(run)

    def cancel(self, run: Run) -> None:
        """Somebody wants the job cancelled. A thread cannot be: it is told, and waited for."""
        run.stop(CANCELLED, interrupt=self._lines[run.job.queue].runner.handler.is_async)

    async def _put_limits(self) -> None:
        """Let the limits that handlers declare hold in the fleet, where no operator has set any."""
        for line in self._lines.values():
            options = line.runner.handler.options
            if not line.limited:
                continue
            while not self._stopping:
                try:
                    held = await self._work.operations.declare_limits(
                        line.queue, options.queue_concurrency, options.rate
                    )
                except StoreError as error:
                    self._log.warning(
                        "could not declare the limits of queue %r, will retry: %s",
                        line.queue,
                        error,
                    )
                    await self._alarm.sleep(self._backoff.next_s())
                else:
                    self._tell_overruled(options, held)
                    break

    def _tell_overruled(self, options: HandlerOptions, held: QueueSettings) -> None:
        declared = _limits_in_words(options.queue_concurrency, options.rate)
        rate = None if held.rate is None else (held.rate, held.rate_period_us / 1e6)
        holds = _limits_in_words(held.concurrency, rate)
        if held.limited_by is LimitsBy.OPERATOR and declared != holds:
            self._log.warning(
                "queue %r uses the limits set by an operator (%s), not the limits of its handler "
                "(%s): `outlive work limit %s --lift` removes them; the next worker that starts "
                "then sets the limits of its handler",
                *(held.name, holds, declared, held.name),
                extra={"queue": held.name},
            )

    def _make_pool(self, handlers: Sequence[Handler[Any, Any]]) -> Executor | None:
        threads = sum(each.options.concurrency for each in handlers if not each.is_async)
        if not threads:
            return None
        return self._runtime.start_pool(min(threads, _THREADS_MAX), name="outlive-handler")


def _limits_in_words(concurrency: int | None, rate: tuple[int, float] | None) -> str:
    words = [] if concurrency is None else [f"{concurrency} concurrent"]
    if rate is not None:
        words.append(f"{rate[0]} in {rate[1]:g} s")
    return ", ".join(words)
