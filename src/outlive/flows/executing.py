"""Executing: runs the local steps of flows, and tells their owner how each attempt ended.

An async step is one task on the host's loop and is cancelled where it must stop. A synchronous one
runs in a thread of the pool, is told by ``outlive.cancelled()``, and what it returns too late is
dropped. Owns the pool, the limits on how many run at once, and the retry policy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor as Pool
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from outlive.errors import ClaimLost, UsageError
from outlive.flows.arguments import Call, encoded
from outlive.flows.decision import StepTask
from outlive.flows.events import Failure, StepEnded, StepRetrying
from outlive.flows.failures import failure_of, traceback_of
from outlive.flows.step_run import Gate, StepOwner, StepRun
from outlive.flows.store_clock import StoreClock
from outlive.model.retry import Later
from outlive.runtime.runtime import Runtime
from outlive.runtime.threads import awaited_in, call_in
from outlive.telemetry import Telemetry, events
from outlive.work.current import Middleware, running

# A step that is out of time is cancelled, and gets as long again to clean up, but no longer than
# this: its flow waits meanwhile, and a body that swallows the cancellation would never end.
CLEAN_UP_S = 5.0

_CANCELLED = "the step's own code was cancelled"
_EXITING = (SystemExit, KeyboardInterrupt)
_EXITS = "the step raised %s: end a step by returning or by raising an exception"


class Executor:
    """Runs steps on one host."""

    def __init__(
        self,
        runtime: Runtime,
        clock: StoreClock,
        *,
        threads: int,
        middlewares: Sequence[Middleware],
        telemetry: Telemetry,
        host: str,
        log: logging.Logger,
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._threads = threads
        # The app's own list: what is added to it later counts as well.
        self._middlewares = middlewares
        self._telemetry = telemetry
        self._host = host
        self._log = log
        self._pool: Pool | None = None
        self._gates: dict[str, Gate] = {}

    def prepare(self, owner: StepOwner, task: StepTask) -> StepRun:
        """An attempt that is to ``begin``."""
        return StepRun(owner, task, self._host, self._log)

    def begin(self, run: StepRun) -> None:
        """Run a step; its owner is told of the end, unless it was stopped before."""
        limit = run.call.step.options.concurrency
        if limit is None:
            self._begin(run)
            return
        run.gate = gate = self._gates.setdefault(run.call.step.name, Gate(limit))
        if gate.enter(run):
            self._begin(run)

    def stop(self, run: StepRun) -> None:
        """Let nobody hear of it any more, and let its body stop. Repeatable."""
        if run.over:
            return
        run.over = True
        run.current.cancelled = True
        self._disarm(run)
        if run.task is not None:
            run.task.cancel()
        elif run.gate is not None:
            run.gate.forget(run)

    def close(self) -> None:
        """Take no more work into threads. Those that run go on to their end."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, run: StepRun) -> None:
        step = run.call.step
        try:
            called = run.call.arguments()
        except Exception as error:  # noqa: BLE001 - types of arguments are foreign code
            # Not now: whoever starts a step is not ready to hear of its end.
            run.loop.call_soon(self._refused, run, error)
            return
        if self._telemetry.active:
            run.began_at = self._runtime.clock.monotonic()
        context = copy_context()
        context.run(running.set, run.current)
        options = step.options
        if options.timeout_s is not None or options.heartbeat_s is not None:
            self._arm(run)
        if step.is_async or self.wraps:
            self._in_task(run, called, context)
        else:
            self._in_thread(run, called, context)

    def _in_task(self, run: StepRun, called: Call, context: Context) -> None:
        body = self._body(run, called)
        run.task = run.loop.create_task(body, name=run.call.identity, context=context)
        # In this context: the owner, who is told of the end, has nothing of the step's own.
        run.task.add_done_callback(partial(self._task_done, run))

    @property
    def wraps(self) -> bool:
        """Whether anything is put around steps."""
        return bool(self._middlewares) or self._telemetry.tracing

    def _innermost(self, run: StepRun, called: Call) -> Awaitable[Any]:
        if run.call.step.is_async:
            return _begun(run, called)
        return self._awaited_thread(run, called)

    async def wrapped(self, run: StepRun, innermost: Callable[[], Awaitable[Any]]) -> Any:
        """The body of a step inside of everything that is put around it."""

        async def body() -> Any:
            # Called where it is awaited: a middleware may do so later, or in a task of its own,
            # whose exit would end the loop and with it the host, and the next host after that.
            try:
                return await innermost()
            except _EXITING as error:
                raise UsageError(_EXITS % type(error).__name__) from error

        call: Callable[[], Awaitable[Any]] = body
        for middleware in reversed(self._middlewares):
            call = partial(middleware, run.current, call)
        with self._telemetry.span(
            "outlive.step.run",
            run.headers,
            host=self._host,
            name=run.call.step.name,
            attempt=run.attempt,
        ):
            return await call()

    async def _awaited_thread(self, run: StepRun, called: Call) -> Any:
        body = partial(_begun, run, called)
        return await awaited_in(self._pooled(), partial(copy_context().run, body))

    def _in_thread(self, run: StepRun, called: Call, context: Context) -> None:
        body = partial(_begun, run, called)

        def ended(working: Any) -> None:
            if working.cancelled():
                # The pool was closed before it began, with its host.
                return
            try:
                run.loop.call_soon_threadsafe(self._thread_done, run, working)
            except RuntimeError:
                # The loop has closed: nobody waits for a step any more.
                self._log.debug(
                    "a thread of step %s ended after its event loop had closed", run.call.identity
                )

        try:
            working = call_in(self._pooled(), partial(context.run, body))
        except RuntimeError as error:
            # No thread is to be had: a failed attempt as any other. Not now: whoever starts a step
            # is not ready to hear of its end.
            run.loop.call_soon(self._ended, run, None, error)
        else:
            working.add_done_callback(ended)

    def _pooled(self) -> Pool:
        if self._pool is None:
            self._pool = self._runtime.start_pool(self._threads, name="outlive-step")
        return self._pool

    async def _body(self, run: StepRun, called: Call) -> Any:
        try:
            if self.wraps:
                return await self.wrapped(run, partial(self._innermost, run, called))
            return await _begun(run, called)
        except _EXITING as error:
            # Its host, and the next, must outlive it.
            raise UsageError(_EXITS % type(error).__name__) from error

    def _task_done(self, run: StepRun, task: asyncio.Task[Any]) -> None:
        cancelled = task.cancelled()
        error = asyncio.CancelledError(_CANCELLED) if cancelled else task.exception()
        if run.timed_out is not None and (cancelled or error is None):
            # Also if it returned something after that: an attempt that took longer has failed.
            error = TimeoutError(run.timed_out)
        self._ended(run, None if error is not None else task.result(), error)

    def _thread_done(self, run: StepRun, working: Any) -> None:
        error = working.exception()
        self._ended(run, None if error is not None else working.result(), error)

    def _ended(self, run: StepRun, result: Any, error: BaseException | None) -> None:
        try:
            if not run.over:
                if run.timers:
                    self._disarm(run)
                self._tell(run, result, error)
        finally:
            # Its body has ended and asks it for nothing more: cut apart, both are freed at once.
            run.over = True
            run.task = None
            del run.current
            if run.gate is not None:
                self._give_turn(run.gate)

    def _tell(self, run: StepRun, result: Any, error: BaseException | None) -> None:
        """Tell the owner of a step how an attempt ended."""
        if isinstance(error, ClaimLost) and not run.owner.session.held:
            # Its flow is dropped with the session, and waits for nothing here.
            run.over = True
            return
        if error is not None:
            self._failed(run, error)
            return
        try:
            raw = encoded(result, f"the result of step {run.call.step.name}")
        except Exception as wrong:  # noqa: BLE001 - what is not told, its flow waits for for ever
            # Never tried again: the work is done, and doing it twice would not help.
            self._failed(run, wrong, final=True)
            return
        run.over = True
        if self._telemetry.active:
            self._measure(run, "completed")
        call = run.call
        self._log.debug(
            "step %s completed",
            call.identity,
            extra={"flow": run.owner.row.id, "step": call.identity, "attempt": call.attempt},
        )
        run.owner.step_happened(
            run,
            StepEnded(
                at=self._clock.now_us(),
                step=call.identity,
                input=call.input,
                result=raw,
                attempt=call.attempt,
            ),
        )

    def _refused(self, run: StepRun, error: Exception) -> None:
        """It cannot begin with what it was called with, however often it is tried."""
        if run.gate is not None:
            self._give_turn(run.gate)
        self._failed(run, error, final=True)

    def _give_turn(self, gate: Gate) -> None:
        following = gate.leave()
        if following is not None:
            self._begin(following)

    def _failed(self, run: StepRun, error: BaseException, *, final: bool = False) -> None:
        if run.over:
            return
        run.over = True
        event = self.failure(run, error, final=final)
        if self._telemetry.active:
            self._measure(run, "retried" if isinstance(event, StepRetrying) else "failed")
        run.owner.step_happened(run, event)

    def failure(
        self, run: StepRun, error: BaseException, *, final: bool = False
    ) -> StepEnded | StepRetrying:
        """What follows from a failed attempt: another one after a pause, or the end of the step."""
        call = run.call
        now_us, options = self._clock.now_us(), call.step.options
        kept = failure_of(error, errors=options.errors)
        later = isinstance(error, Later) and not final
        if final:
            pause_s = None
        elif isinstance(error, Later):
            pause_s = error.delay_s
        else:
            chance = self._runtime.random.random()
            pause_s = options.retry.delay_s(call.attempt, error, chance)
        if pause_s is not None and options.retry_for_s is not None:
            spent_s = (now_us - call.first_at_us) / 1e6
            if spent_s + pause_s > options.retry_for_s:
                pause_s = None
        if pause_s is None or not later:
            self._tell_failed(run, error, kept, pause_s)
        if pause_s is None:
            return StepEnded(
                at=now_us, step=call.identity, input=call.input, error=kept, attempt=call.attempt
            )
        due = now_us + round(pause_s * 1e6)
        return StepRetrying(
            at=now_us,
            step=call.identity,
            # The next one has the number behind this.
            attempt=call.attempt - later,
            error=kept,
            due=due,
            details=run.details,
        )

    def _tell_failed(
        self, run: StepRun, error: BaseException, kept: Failure, pause_s: float | None
    ) -> None:
        """Say that an attempt failed. What the step names as its errors, its flow expects."""
        call, flow = run.call, run.owner.row.id
        fields = {"flow": flow, "step": call.identity, "attempt": call.attempt}
        what = (call.identity, flow, call.attempt, f"{kept.type}: {kept.message}")
        if pause_s is not None:
            text = "step %s of flow %s failed at attempt %d, next attempt in {:.1f} s: %s"
            self._log.warning(text.format(pause_s), *what, extra=fields)
        elif isinstance(error, call.step.options.errors):
            self._log.info("step %s of flow %s failed at attempt %d: %s", *what, extra=fields)
        else:
            # As it is kept: what a foreign error says of itself may not even be printable.
            text = "step %s of flow %s failed permanently at attempt %d: %s%s"
            self._log.warning(text, *what, traceback_of(kept), extra=fields)

    # -- limits of time ---------------------------------------------------------------------------

    def _arm(self, run: StepRun) -> None:
        loop, options = run.loop, run.call.step.options
        if options.timeout_s is not None:
            said = f"the step did not end within {options.timeout_s:g} s"
            run.timers += (
                loop.call_later(options.timeout_s, self._time_out, run, said, options.timeout_s),
            )
        if options.heartbeat_s is not None:
            run.beat_at = loop.time()
            run.timers += (loop.call_later(options.heartbeat_s, self._listen, run),)

    def _listen(self, run: StepRun) -> None:
        """Look whether the step has told of itself since the last look."""
        heartbeat_s = run.call.step.options.heartbeat_s
        assert heartbeat_s is not None
        left_s = run.beat_at + heartbeat_s - run.loop.time()
        if left_s <= 0:
            said = f"the step sent no heartbeat for {heartbeat_s:g} s"
            self._time_out(run, said, heartbeat_s)
        else:
            # In place of the one that has come: a long step looks a thousand times.
            kept = tuple(each for each in run.timers if each.when() > run.loop.time())
            run.timers = (*kept, run.loop.call_later(left_s, self._listen, run))

    def _time_out(self, run: StepRun, said: str, limit_s: float) -> None:
        if run.over:
            return
        run.current.cancelled = True
        self._disarm(run)
        if run.task is None:
            self._failed(run, TimeoutError(said))
            return
        # Its clean-up is waited for, for a while.
        run.timed_out = said
        run.task.cancel()
        run.timers = (run.loop.call_later(min(limit_s, CLEAN_UP_S), self._give_up, run, said),)

    def _give_up(self, run: StepRun, said: str) -> None:
        """It does not end though it was cancelled: the attempt has failed, whatever it does."""
        if run.over:
            return
        self._log.warning(
            "step %s of flow %s still runs after its timeout, because its code swallows "
            "cancellation; its result will be discarded",
            *(run.call.identity, run.owner.row.id),
            extra={"flow": run.owner.row.id},
        )
        self._failed(run, TimeoutError(said))

    def _disarm(self, run: StepRun) -> None:
        for timer in run.timers:
            timer.cancel()
        run.timers = ()

    def _measure(self, run: StepRun, outcome: str) -> None:
        spent_s = self._runtime.clock.monotonic() - run.began_at
        self._telemetry.record(events.STEP_RUN, spent_s, step=run.call.step.name, outcome=outcome)


def _begun(run: StepRun, called: Call) -> Any:
    """Call the body, unless the session has ended by our own clock, or the step was stopped.

    Asked in the iteration of the loop, or in the thread, in which the body begins: a host that was
    paused since its claim, or whose threads were all busy, begins nothing that another host may run
    already.

    Raises:
        ClaimLost: The session has ended, or the step is not wanted any more.
    """
    run.check()
    return run.call.step.function(*called[0], **called[1])
