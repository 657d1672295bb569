"""Running: one claimed job through its handler to its end.

Owns what becomes of a run: completed, failed by its policy, dead, given back, cancelled or lost.
An async body runs as a task and is cancelled where it must stop; a synchronous one runs in a
thread, is told by ``current().cancelled``, and what it returns too late is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from typing import Any, Protocol

from outlive.errors import InvalidPayload, UsageError
from outlive.model.job import ClaimedJob, Completion, Extension, Failure, Return, Settled
from outlive.model.retry import Later
from outlive.ports.job_store import JobStore
from outlive.runtime.runtime import Runtime
from outlive.runtime.session import LiveSession
from outlive.runtime.tasks import is_current
from outlive.runtime.threads import call_in
from outlive.serialization import describe, encode, name_of
from outlive.telemetry import events
from outlive.work.claim import Claim, headers_of
from outlive.work.current import Current, Middleware, Reporting, running
from outlive.work.handler import Handler
from outlive.work.keys import KeyBusy, KeyLimits
from outlive.work.settling import Lane
from outlive.work.work import Work

# Another job of the same concurrency key runs: most take about this long, and each look costs a
# claim and a release.
_KEY_RETRY_S = 1.0


# A handler that is out of time gets so long to clean up before the log names it, but never longer
# than it had.
_CLEAN_UP_S = 5.0

# Why a run must stop.
CANCELLED, LOST, STOPPED = "cancelled", "lost", "stopped"


class Reports(Reporting, Protocol):
    """What takes the progress of a run, and writes it when it is time."""

    def unwritten(self) -> str | None:
        """What was told and is not written yet; it is the caller's now."""
        ...


class Lanes:
    """The writes of one worker, by kind."""

    def __init__(self, runtime: Runtime, store: JobStore, log: logging.Logger) -> None:
        self.complete = Lane(runtime, store.complete, log)
        self.fail = Lane(runtime, store.fail, log)
        self.release = Lane(runtime, store.release, log)
        # What is told of the progress of a job must not be overtaken by what was told later.
        self.extend = Lane(runtime, store.extend, log, slow_max=1)

    async def flushed(self) -> None:
        """Wait until everything has its answer."""
        for lane in (self.complete, self.fail, self.release, self.extend):
            await lane.flushed()


class House:
    """What all runners of one worker share. Also their claims', which they settle themselves."""

    def __init__(
        self,
        work: Work,
        keys: KeyLimits,
        middlewares: Sequence[Middleware],
        *,
        host: str,
        log: logging.Logger,
        ended: Callable[[], bool],
    ) -> None:
        self.runtime = work.runtime
        self.store = work.store
        self.telemetry = work.telemetry
        self.lanes = Lanes(work.runtime, work.store, log)
        self.keys = keys
        self.middlewares = tuple(middlewares)
        self.host = host
        self.log = log
        # Whether the worker is at its end, and with it whatever it could still write.
        self.ended = ended

    def settled(self, claim: Claim, outcome: str) -> None:
        """Nothing to do: what a run ends with is told by its runner."""

    def comes_due(self, queue: str, seconds: float, /) -> None:
        """Nothing to do: the worker looks by itself."""


class Run:
    """One job being run."""

    __slots__ = ("current", "job", "over", "session", "task", "why")

    def __init__(self, job: ClaimedJob, session: LiveSession) -> None:
        self.job = job
        self.session = session
        self.current: Current | None = None
        self.task: asyncio.Task[None] | None = None
        # Why it must stop, if it must, and whether its body has ended.
        self.why: str | None = None
        self.over = False

    def stop(self, why: str, *, interrupt: bool = True) -> None:
        """Tell the body to stop; without ``interrupt`` an async one is not cancelled either.

        Told once; only a loss is told to a body that was told something else before.
        """
        if self.over or self.why == LOST or (self.why is not None and why != LOST):
            return
        self.why = why
        if self.current is None:
            # It looks before it begins. A task that is cancelled before its first step would
            # neither settle the job nor free its slot.
            return
        self.current.cancelled = True
        if interrupt and self.task is not None:
            self.task.cancel()


class Runner:
    """Runs jobs of one handler."""

    def __init__(
        self,
        handler: Handler[Any, Any],
        house: House,
        *,
        pool: Executor | None,
        retried: Callable[[float], None],
    ) -> None:
        options = handler.options
        self.handler = handler
        self._options = options
        self._codec = handler.takes
        self._house = house
        self._runtime = house.runtime
        self._lanes = house.lanes
        self._log = house.log
        self._pool = pool
        self._retried = retried
        # The usual handler needs nothing around it, and no layer for it.
        self._plain = (
            pool is None
            and not house.middlewares
            and options.timeout_s is None
            and options.concurrency_key is None
        )

    def run(
        self, run: Run, reporting: Reports, freed: Callable[[], None]
    ) -> Coroutine[Any, Any, str]:
        """Run the job, settle it, and say how it ended. ``freed`` is called when its slot is."""
        if self._house.telemetry.active:
            return self._measured(run, reporting, freed)
        return self._settled(run, reporting, freed)

    async def _measured(self, run: Run, reporting: Reports, freed: Callable[[], None]) -> str:
        clock, job, telemetry = self._runtime.clock, run.job, self._house.telemetry
        started = clock.monotonic()
        waited_s = clock.now().timestamp() - job.enqueued_at_us / 1e6
        telemetry.record(events.JOB_WAIT, max(0.0, waited_s), queue=job.queue)
        with telemetry.span(
            "outlive.job.run",
            headers_of(job),
            host=self._house.host,
            id=job.id,
            queue=job.queue,
            attempt=job.attempts + 1,
            token=job.token,
        ) as span:
            outcome = await self._settled(run, reporting, freed)
            span.set(outcome=outcome)
        spent_s = clock.monotonic() - started
        telemetry.record(events.JOBS_ENDED, queue=job.queue, outcome=outcome)
        telemetry.record(events.JOB_RUN, spent_s, queue=job.queue, outcome=outcome)
        return outcome

    async def _settled(self, run: Run, reporting: Reports, freed: Callable[[], None]) -> str:
        slot = _Slot(freed)
        try:
            try:
                payload = self._codec.decode(run.job.payload)
            except InvalidPayload as error:
                # Never tried again: it would arrive the same.
                return await self._fail(run, slot, error, final=True)
            claim = Claim(run.job, run.session, self._house)
            run.current = current = Current(claim, self._house.host, self._log, reporting)
            current.cancelled = run.why is not None
            running.set(current)
            try:
                result = await self._body(run, current, payload, slot)
            except asyncio.CancelledError as error:
                return await self._interrupted(run, reporting, slot, error)
            except KeyBusy:
                pause_s = _KEY_RETRY_S * self._runtime.random.uniform(0.5, 1.5)
                return await self._release(run, slot, pause_s, unbegun=True)
            except Later as later:
                await self._keep_told(run, reporting)
                return await self._release(run, slot, later.delay_s)
            except GeneratorExit:
                # A coroutine that is thrown away.
                raise
            except BaseException as error:  # noqa: BLE001 - sys.exit() in a handler is a failure
                await self._keep_told(run, reporting)
                return await self._fail(run, slot, error)
            return await self._complete(run, slot, result)
        finally:
            slot.leave()

    async def _body(self, run: Run, current: Current, payload: Any, slot: _Slot) -> Any:
        try:
            if run.why is not None:
                raise asyncio.CancelledError
            if self._plain:
                return await self._begun(run, payload)
            return await self._execute(run, current, payload, slot)
        except GeneratorExit as error:
            if not is_current(run.task):
                # Nobody raised it: the coroutine is thrown away with its loop.
                raise
            raise RuntimeError("the handler raised GeneratorExit") from error
        finally:
            # From here on it is settled, which nothing may interrupt. Cut apart from its task,
            # it is freed with that, and not by a search for cycles.
            run.over = True
            run.task = run.current = None

    def _begun(self, run: Run, payload: Any) -> Any:
        """Call the handler, unless the session has ended by our own clock.

        Asked in the iteration of the loop, or in the thread, in which the body begins: a host that
        was paused since its claim begins nothing that another host may run already.
        """
        if not run.session.held:
            run.why = LOST
            raise asyncio.CancelledError
        return self.handler.function(payload)

    async def _execute(self, run: Run, current: Current, payload: Any, slot: _Slot) -> Any:
        if self._options.concurrency_key is None:
            return await self._timed(run, current, payload, slot)
        async with self._house.keys.held(self.handler, payload, run, slot):
            return await self._timed(run, current, payload, slot)

    async def _timed(self, run: Run, current: Current, payload: Any, slot: _Slot) -> Any:
        timeout_s = self._options.timeout_s
        if timeout_s is None:
            return await self._called(run, current, payload, slot)
        limit = asyncio.timeout(timeout_s)
        patience_s = timeout_s + min(timeout_s, _CLEAN_UP_S)
        late = asyncio.get_running_loop().call_later(patience_s, self._tell_late, run, slot)
        try:
            async with limit:
                return await self._called(run, current, payload, slot)
        except TimeoutError as error:
            if not limit.expired():
                raise
            current.cancelled = True
            raise TimeoutError(f"the handler did not end within {timeout_s:g} s") from error
        finally:
            if not slot.occupied:
                late.cancel()

    def _tell_late(self, run: Run, slot: _Slot) -> None:
        if not run.over or slot.occupied:
            job = run.job
            self._log.warning(
                "the handler of job %s of queue %r still runs after its timeout, and keeps its "
                "slot until it ends: it swallows cancellation, or it runs in a thread and does not "
                "look at outlive.current().cancelled",
                *(job.id, job.queue),
                extra={"job": job.id, "queue": job.queue},
            )

    def _called(self, run: Run, current: Current, payload: Any, slot: _Slot) -> Awaitable[Any]:
        pool, begun = self._pool, partial(self._begun, run, payload)

        def innermost() -> Awaitable[Any]:
            return begun() if pool is None else self._in_thread(pool, begun, slot)

        async def wrapped() -> Any:
            # Called where it is awaited: a middleware may do so later, or in a task of its own,
            # whose exit would end the loop and with it the host, and the next host after that.
            try:
                return await innermost()
            except (SystemExit, KeyboardInterrupt) as error:
                raise UsageError(
                    f"the handler raised {type(error).__name__}: end a handler by returning or by "
                    "raising an exception"
                ) from error

        call: Callable[[], Awaitable[Any]] = wrapped if self._house.middlewares else innermost
        for middleware in reversed(self._house.middlewares):
            call = partial(middleware, current, call)
        return call()

    async def _in_thread(self, pool: Executor, begun: Callable[[], Any], slot: _Slot) -> Any:
        loop = asyncio.get_running_loop()
        working = call_in(pool, partial(copy_context().run, begun))
        slot.occupied = True

        def ended(_: object) -> None:
            try:
                loop.call_soon_threadsafe(slot.vacate)
            except RuntimeError:
                # The loop has closed: nobody counts slots any more.
                self._log.debug(
                    "a handler thread of queue %r ended after its event loop had closed",
                    self.handler.queue,
                )

        working.add_done_callback(ended)
        return await asyncio.wrap_future(working)

    async def _interrupted(
        self, run: Run, reporting: Reports, slot: _Slot, error: asyncio.CancelledError
    ) -> str:
        """The body ended by cancellation: ours, its own, or that of whoever ends the loop."""
        task = asyncio.current_task()
        if run.why is None and self._house.ended():
            raise error
        while task is not None and task.cancelling():
            task.uncancel()
        if run.why is None:
            failed = RuntimeError("the handler was cancelled by its own code, not by its worker")
            failed.__cause__ = error
            return await self._fail(run, slot, failed)
        if run.why == LOST:
            return self._outcome(run, Settled.LOST, LOST)
        await self._keep_told(run, reporting)
        # The store ends a job as cancelled if that was asked for.
        return await self._release(run, slot, 0.0)

    async def _keep_told(self, run: Run, reporting: Reports) -> None:
        """Write what the body told last, before others have the job: they may go on from there."""
        text, job = reporting.unwritten(), run.job
        if text is not None:
            await self._lanes.extend.put(Extension(job.id, job.token, text), run.session)

    async def _complete(self, run: Run, slot: _Slot, result: Any) -> str:
        try:
            text = None if result is None else encode(result, "the result")
        except UsageError as error:
            # Never tried again: the work is done, and doing it twice would not help.
            return await self._fail(run, slot, error, final=True)
        slot.leave()
        job = run.job
        answer = await self._lanes.complete.put(Completion(job.id, job.token, text), run.session)
        return self._outcome(run, answer, "completed")

    async def _release(
        self, run: Run, slot: _Slot, pause_s: float, *, unbegun: bool = False
    ) -> str:
        slot.leave()
        job = run.job
        back = Return(job.id, job.token, round(pause_s * 1e6), unbegun)
        answer = await self._lanes.release.put(back, run.session)
        self._retried(pause_s)
        return self._outcome(run, answer, "cancelled" if run.why == CANCELLED else "released")

    async def _fail(
        self, run: Run, slot: _Slot, error: BaseException, *, final: bool = False
    ) -> str:
        slot.leave()
        job = run.job
        delay_s = None if final else self._delay_s(job, error)
        retry_us = None if delay_s is None else round(delay_s * 1e6)
        failure = Failure(
            job.id, job.token, describe(error, rebuilt=self._options.errors), retry_us
        )
        answer = await self._lanes.fail.put(failure, run.session)
        if answer is not Settled.LOST:
            self._tell_failed(job, error, delay_s)
        if delay_s is not None:
            self._retried(delay_s)
        if run.why == CANCELLED:
            return self._outcome(run, answer, "cancelled")
        return self._outcome(run, answer, "dead" if delay_s is None else "failed")

    def _delay_s(self, job: ClaimedJob, error: BaseException) -> float | None:
        policy = self._options.retry
        try:
            policy = policy.overridden(job.retry)
        except UsageError as wrong:
            self._log.warning(
                "job %s has an unreadable retry policy; the policy of its handler is used: %s",
                *(job.id, wrong),
                extra={"job": job.id, "queue": job.queue},
            )
        # One that is no Exception is retried as an Exception is, unless the policy names it.
        kind = error if isinstance(error, Exception) else name_of(type(error))
        return policy.delay_s(job.attempts + 1, kind, self._runtime.random.random())

    def _outcome(self, run: Run, answer: Settled, outcome: str) -> str:
        job = run.job
        if answer is not Settled.LOST:
            self._log.debug(
                "job %s of queue %r: %s",
                *(job.id, job.queue, outcome),
                extra={"job": job.id, "queue": job.queue, "attempt": job.attempts + 1},
            )
            return outcome
        self._log.warning(
            "the claim of job %s of queue %r was lost while the job ran; another worker may run "
            "the job now",
            *(job.id, job.queue),
            extra={"job": job.id, "queue": job.queue, "token": job.token},
        )
        return LOST

    def _tell_failed(self, job: ClaimedJob, error: BaseException, delay_s: float | None) -> None:
        fields = {"job": job.id, "queue": job.queue, "attempt": job.attempts + 1}
        if delay_s is None:
            self._log.error(
                "job %s of queue %r is dead after attempt %d: %r",
                *(job.id, job.queue, job.attempts + 1, error),
                exc_info=error,
                extra=fields,
            )
        else:
            self._log.warning(
                "job %s of queue %r failed, next attempt in %.1f s: %r",
                *(job.id, job.queue, delay_s, error),
                extra=fields,
            )


class _Slot:
    """One place of a handler's concurrency: free again when the body has ended, and its thread."""

    __slots__ = ("_freed", "_left", "occupied", "vacated")

    def __init__(self, freed: Callable[[], None]) -> None:
        self._freed = freed
        self._left = False
        # Whether a thread runs in it, and what to call when that has ended.
        self.occupied = False
        self.vacated: Callable[[], None] | None = None

    def leave(self) -> None:
        """The body has ended, or is not waited for any longer. Repeatable."""
        if not self._left:
            self._left = True
            if not self.occupied:
                self._freed()

    def vacate(self) -> None:
        """The thread has ended."""
        self.occupied = False
        if self.vacated is not None:
            self.vacated()
        if self._left:
            self._freed()
