"""Remote steps: the handlers of queues in which flows run steps, on any host whose app has them.

A step that was put into a queue is a job like any other: claimed, retried and fenced like any
other. Its payload is the input, its headers name the step; what it returns goes back to the flow
by the store, with the end of the job. What it told of itself is kept with the job, and read again
for the next attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from typing import Any

import msgspec

from outlive.errors import OutliveError, UsageError
from outlive.flows.executing import CLEAN_UP_S
from outlive.flows.step import Step
from outlive.ports.job_desk import JobDesk
from outlive.runtime.runtime import Runtime
from outlive.runtime.threads import awaited_in
from outlive.serialization import decode_plain
from outlive.work.current import STEP_NAME_HEADER, current
from outlive.work.handler import Handler, HandlerOptions

# How many steps of one queue a host runs at once, unless one of them says otherwise.
_CONCURRENCY = 10

# A step that must give heartbeats is listened to so often within the time it has for one.
_LOOKS = 4


class RemoteSteps:
    """Runs the steps of an app that others put into queues."""

    def __init__(
        self,
        steps: Mapping[str, Step[..., Any]],
        runtime: Runtime,
        jobs: JobDesk | None,
        *,
        threads: int,
    ) -> None:
        self._runtime = runtime
        self._jobs = jobs
        self._threads = threads
        self._pool: Executor | None = None
        self._queues: dict[str, dict[str, Step[..., Any]]] = {}
        for step in steps.values():
            if step.options.queue is not None:
                self._queues.setdefault(step.options.queue, {})[step.name] = step

    def handlers(self, others: Mapping[str, Handler[Any, Any]]) -> list[Handler[Any, Any]]:
        """A handler for each queue, beside the ``others`` of the app.

        Raises:
            UsageError: A queue has a handler of its own.
        """
        for queue in self._queues:
            if queue in others:
                raise UsageError(
                    f"queue {queue!r} has both a handler and steps: give the steps a queue of "
                    "their own"
                )
        return [self._handler(queue, steps) for queue, steps in self._queues.items()]

    def close(self) -> None:
        """Take no more work into threads. Repeatable."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _handler(self, queue: str, steps: Mapping[str, Step[..., Any]]) -> Handler[Any, Any]:
        # Those that say it say the same: the app refuses anything else.
        said = [step.options.concurrency for step in steps.values() if step.options.concurrency]

        async def run(payload: Any) -> Any:
            name = current().headers.get(STEP_NAME_HEADER)
            step = steps.get(name) if isinstance(name, str) else None
            if step is None:
                raise UsageError(f"this app has no step {name!r} for queue {queue!r}")
            args, kwargs = step.arguments.decode(msgspec.json.encode(payload).decode())
            await self._recall()

            def begun() -> Any:
                # The look at the attempt before took its time: the claim may be lost by now.
                current().check()
                return step.function(*args, **kwargs)

            return await self._limited(step, begun)

        options = HandlerOptions(
            concurrency=said[0] if said else _CONCURRENCY,
            errors=tuple({kind for step in steps.values() for kind in step.options.errors}),
        )
        return Handler[Any, Any](run, queue, options)

    async def _recall(self) -> None:
        """Let an attempt that is not the first know what the ones before it told of themselves.

        A claim does not bring it along, because hardly any job needs it.
        """
        now = current()
        if now.token == 1 or self._jobs is None:
            return
        try:
            record = await self._jobs.get(now.job)
        except OutliveError as error:
            now.log.warning("could not read the previous attempt's heartbeat details: %s", error)
        else:
            now.heartbeat_details = decode_plain(None if record is None else record.progress)

    async def _limited(self, step: Step[..., Any], call: Callable[[], Any]) -> Any:
        """Run an attempt within the time that its step has, and for as long as it tells of itself.

        Raises:
            TimeoutError: It took too long, or was silent for too long.
        """
        timeout_s, heartbeat_s = step.options.timeout_s, step.options.heartbeat_s
        limit = asyncio.timeout(timeout_s)
        listener = None
        try:
            async with limit:
                if heartbeat_s is not None:
                    listener = _Listener(limit, heartbeat_s)
                if not step.is_async:
                    return await self._in_thread(call)
                if timeout_s is None and heartbeat_s is None:
                    return await call()
                shortest_s = min(each for each in (timeout_s, heartbeat_s) if each is not None)
                return await _left_in_time(call, limit, min(shortest_s, CLEAN_UP_S))
        except TimeoutError as error:
            if not limit.expired():
                raise
            current().cancelled = True
            if listener is not None and listener.silent:
                said = f"the step sent no heartbeat for {heartbeat_s:g} s"
            else:
                said = f"the step did not end within {timeout_s:g} s"
            raise TimeoutError(said) from error
        finally:
            if listener is not None:
                listener.close()

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        if self._pool is None:
            self._pool = self._runtime.start_pool(self._threads, name="outlive-step")
        return await awaited_in(self._pool, partial(copy_context().run, call))


async def _left_in_time(call: Callable[[], Any], limit: asyncio.Timeout, grace_s: float) -> Any:
    """Await a body in a task of its own, which can be left if it swallows the end of its time."""
    body = asyncio.ensure_future(_awaited(call))
    try:
        # Not by `shield`: from Python 3.14 on that tells of errors which come when nobody
        # waits any more.
        await asyncio.wait((body,))
        return body.result()
    except asyncio.CancelledError:
        body.cancel()
        body.add_done_callback(_drop)
        _, running = await asyncio.wait((body,), timeout=grace_s if limit.expired() else None)
        if running:
            now = current()
            now.log.warning(
                "step %s still runs after its timeout, because its code swallows cancellation; "
                "its result will be discarded",
                now.job,
            )
        elif not body.cancelled():
            error = body.exception()
            if error is not None:
                raise error from None
        raise


async def _awaited(call: Callable[[], Any]) -> Any:
    return await call()


def _drop(body: asyncio.Future[Any]) -> None:
    """Look at an error that nobody waits for, so that asyncio does not tell of it."""
    if not body.cancelled():
        body.exception()


class _Listener:
    """Lets a limit pass when what runs now has not told of itself for so long."""

    def __init__(self, limit: asyncio.Timeout, heartbeat_s: float) -> None:
        self.silent = False
        self._limit = limit
        self._heartbeat_s = heartbeat_s
        self._loop = asyncio.get_running_loop()
        self._current = current()
        self._heard = self._current.beats
        self._heard_at = self._loop.time()
        self._timer = self._loop.call_later(heartbeat_s / _LOOKS, self._look)

    def close(self) -> None:
        """Listen no more. Repeatable."""
        self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        if self._current.beats != self._heard:
            self._heard, self._heard_at = self._current.beats, now
        if now - self._heard_at >= self._heartbeat_s:
            self.silent = True
            self._limit.reschedule(now)
        else:
            self._timer = self._loop.call_later(self._heartbeat_s / _LOOKS, self._look)
