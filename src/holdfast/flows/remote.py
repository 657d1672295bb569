"""Remote steps: the handlers of queues in which flows run steps, on any host whose app has them.

A step that was put into a queue is a job like any other: claimed, retried and fenced like any
other. Its payload is the input, its headers name the step; what it returns goes back to the flow
by the store, with the end of the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from typing import Any

import msgspec

from holdfast.errors import UsageError
from holdfast.flows.step import Step
from holdfast.runtime.runtime import Runtime
from holdfast.work.current import STEP_NAME_HEADER, current
from holdfast.work.handler import Handler, HandlerOptions

# How many steps of one queue a host runs at once, unless one of them says otherwise.
_CONCURRENCY = 10


class RemoteSteps:
    """Runs the steps of an app that others put into queues."""

    def __init__(self, steps: Mapping[str, Step[..., Any]], runtime: Runtime, threads: int) -> None:
        self._runtime = runtime
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
                    f"queue {queue!r} has a handler and steps; give the steps a queue of their own"
                )
        return [self._handler(queue, steps) for queue, steps in self._queues.items()]

    def close(self) -> None:
        """Take no more work into threads. Repeatable."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _handler(self, queue: str, steps: Mapping[str, Step[..., Any]]) -> Handler[Any, Any]:
        wanted = [step.options.concurrency or _CONCURRENCY for step in steps.values()]

        async def run(payload: Any) -> Any:
            name = current().headers.get(STEP_NAME_HEADER)
            step = steps.get(name) if isinstance(name, str) else None
            if step is None:
                raise UsageError(f"this app has no step {name!r} for queue {queue!r}")
            args, kwargs = step.arguments.decode(msgspec.json.encode(payload).decode())
            return await self._timed(step, partial(step.function, *args, **kwargs))

        return Handler[Any, Any](run, queue, HandlerOptions(concurrency=max(wanted)))

    async def _timed(self, step: Step[..., Any], call: Callable[[], Any]) -> Any:
        timeout_s = step.options.timeout_s
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                return await (call() if step.is_async else self._in_thread(call))
        except TimeoutError as error:
            if not limit.expired():
                raise
            current().cancelled = True
            raise TimeoutError(f"the step did not end within {timeout_s:g} s") from error

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        if self._pool is None:
            self._pool = self._runtime.start_pool(self._threads, name="holdfast-step")
        return await asyncio.wrap_future(self._pool.submit(copy_context().run, call))
