"""What flow code awaits: the end of a step, of a child, a signal.

Futures, not coroutines: each is known by its number, has its identity from the moment of the call,
and can be awaited, gathered, waited for or made a task. Cancelling one is told to its run.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from outlive.errors import InvalidPayload
from outlive.flows.arguments import text_of
from outlive.flows.events import NULL, SignalReceived
from outlive.flows.numbered import NumberedFuture, init_future
from outlive.names import InstanceId, JobId
from outlive.serialization import codec_of

R = TypeVar("R")

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from outlive.flows.flow import Flow
    from outlive.flows.run import FlowRun
    from outlive.flows.step import Step

    class _Awaited(NumberedFuture[R], Coroutine[Any, Any, R]):
        """For type checkers: asyncio declares ``create_task`` for coroutines, and for them only.

        The loop of a flow takes anything that can be awaited.
        """

        def send(self, value: Any, /) -> Any: ...
        def throw(self, *args: Any) -> Any: ...
        def close(self) -> None: ...

else:
    _Awaited = NumberedFuture


class StepCall(_Awaited[R]):
    """One call of a step. ``identity`` is its name and which call of it this is: ``charge#0``."""

    __slots__ = (
        "_run",
        "attempt",
        "called_at_us",
        "details",
        "identity",
        "input",
        "intended",
        "job",
        "key",
        "step",
    )

    def __init__(
        self,
        run: FlowRun,
        step: Step[..., R],
        identity: str,
        input: msgspec.Raw,  # noqa: A002 - it is one
    ) -> None:
        # As ``NumberedFuture`` does it, which is asked for nothing else here.
        loop = run.loop
        self.number = loop.next_number()
        init_future(self, loop=loop)
        self.identity = identity
        self.step = step
        self.input = input
        self.attempt = 1
        self.details = NULL
        self.called_at_us = run.at_us
        # What its effects are known by, if that is not its identity.
        self.key: str | None = None
        # Where its end comes from: a job, or an attempt that was recorded before it began.
        self.job: JobId | None = None
        self.intended = False
        self._run = run

    def cancel(self, msg: Any = None) -> bool:
        """Stop waiting for it, and let its body be cancelled. What it still returns is dropped."""
        cancelled = super().cancel(msg)
        if cancelled and not self._run.closed:
            self._run.calling.step_cancelled(self)
        return cancelled


class ChildCall(_Awaited[R]):
    """One child flow. ``id`` is its own, by which it can be signalled and looked at."""

    def __init__(
        self,
        run: FlowRun,
        flow: Flow[..., R],
        identity: str,
        *,
        id: InstanceId,  # noqa: A002 - it is one
        input: msgspec.Raw,  # noqa: A002 - it is one
        abandon: bool = False,
    ) -> None:
        super().__init__(run.loop.next_number(), loop=run.loop)
        self.identity = identity
        self.flow = flow
        self.id = id
        self.input = input
        self.abandon = abandon
        self._run = run

    def cancel(self, msg: Any = None) -> bool:
        """Stop waiting for it, and ask it to cancel itself, unless it is to be abandoned."""
        cancelled = super().cancel(msg)
        if cancelled and not self._run.closed:
            self._run.children.cancelled(self)
        return cancelled


class SignalWait(_Awaited[R]):
    """One wait for a signal. ``awaited``: somebody has waited for its end."""

    awaited = False

    def __init__(self, run: FlowRun, name: str, kind: Any) -> None:
        super().__init__(run.loop.next_number(), loop=run.loop)
        self.name = name
        self._codec = codec_of(kind)
        self._run = run
        self._timer: asyncio.TimerHandle | None = None

    def add_done_callback(self, fn: Any, /, *, context: Context | None = None) -> None:
        """Call ``fn`` when it has ended; so does everybody who awaits it."""
        self.awaited = True
        super().add_done_callback(fn, context=context)

    def deliver(self, event: SignalReceived) -> None:
        """End the wait with a signal, as the type that was asked for."""
        if self._timer is not None:
            self._timer.cancel()
        try:
            value = self._codec.decode(text_of(event.payload))
        except InvalidPayload as error:
            self.set_exception(InvalidPayload(f"signal {self.name!r}: {error}"))
        else:
            self.set_result(value)

    def expire_in(self, timeout_s: float) -> None:
        """Let the wait end with ``TimeoutError``, by a durable timer."""
        self._timer = self._run.loop.call_later(timeout_s, self._expire)

    def _expire(self) -> None:
        if not self.done():
            self._run.inbox.forget(self)
            self.set_exception(TimeoutError(f"no signal {self.name!r} arrived before the timeout"))

    def cancel(self, msg: Any = None) -> bool:
        """Stop waiting; the next signal goes to somebody else, or waits."""
        cancelled = super().cancel(msg)
        if cancelled and not self._run.closed:
            self._run.inbox.forget(self)
            if self._timer is not None:
                self._timer.cancel()
        return cancelled
