"""What others say to a running flow: signals, which wait to be read; updates; queries.

Owns the order in which signals are read: first come, first read, each once, also those that came
before anybody waited for them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from holdfast.errors import InvalidPayload, UpdateRejected, UsageError
from holdfast.flows.arguments import Arguments, encoded, text_of
from holdfast.flows.calls import SignalWait
from holdfast.flows.events import SignalReceived, UpdateReceived
from holdfast.flows.letters import rejection, reply
from holdfast.model.instance import Reply
from holdfast.work.payload import decode_plain

if TYPE_CHECKING:
    from holdfast.flows.run import FlowRun

# Signals that a run has read from its mailbox and its code has not asked for. They are kept in
# memory; whoever is ahead by more has found a flow that never asks, and fills its mailbox.
SIGNALS_MAX = 10_000


class Answerer:
    """A function of flow code that answers queries or takes updates."""

    __slots__ = ("arguments", "function", "validator")

    def __init__(
        self, function: Callable[..., Any], what: str, validator: Callable[..., Any] | None = None
    ) -> None:
        self.function = function
        self.arguments = Arguments(function, what)
        self.validator = validator

    def call(self, payload: str) -> Any:
        """Call the function with the arguments in ``payload``."""
        args, kwargs = self.arguments.decode(self.arguments.from_json(decode_plain(payload)))
        return self.function(*args, **kwargs)

    def validate(self, payload: str) -> None:
        """Let the arguments be checked: that they fit, and by the validator."""
        args, kwargs = self.arguments.decode(self.arguments.from_json(decode_plain(payload)))
        if self.validator is not None:
            self.validator(*args, **kwargs)


class Inbox:
    """Signals, updates and queries of one run."""

    def __init__(self, run: FlowRun) -> None:
        self._run = run
        self._arrived = 0
        self._unread: dict[str, deque[tuple[int, SignalReceived]]] = {}
        self._waiting: dict[str, dict[int, SignalWait[Any]]] = {}
        self.unread = 0
        self.queries: dict[str, Answerer] = {}
        self.updates: dict[str, Answerer] = {}
        # Messages of updates that were taken and not replied to yet.
        self._updating: dict[str, str] = {}

    # -- signals ----------------------------------------------------------------------------------

    def wait(self, name: str, kind: Any, timeout_s: float | None) -> SignalWait[Any]:
        """Wait for the next signal of this name that nobody has read."""
        waiting = SignalWait[Any](self._run, name, kind)
        unread = self._unread.get(name)
        if unread:
            _, event = unread.popleft()
            self.unread -= 1
            if not unread:
                del self._unread[name]
            waiting.deliver(event)
            return waiting
        self._waiting.setdefault(name, {})[waiting.number] = waiting
        if timeout_s is not None:
            waiting.expire_in(timeout_s)
        return waiting

    def awaits(self, name: str) -> bool:
        """Whether the code waits for a signal of this name now."""
        return name in self._waiting

    def forget(self, waiting: SignalWait[Any]) -> None:
        """Nobody waits there any more."""
        others = self._waiting.get(waiting.name)
        if others is not None:
            others.pop(waiting.number, None)
            if not others:
                del self._waiting[waiting.name]

    def receive(self, event: SignalReceived) -> None:
        """Give a signal to whoever has waited longest, or keep it."""
        waiting = self._waiting.get(event.name)
        if waiting:
            first = next(iter(waiting.values()))
            self.forget(first)
            first.deliver(event)
            return
        self._arrived += 1
        self.unread += 1
        self._unread.setdefault(event.name, deque()).append((self._arrived, event))

    def carried(self) -> list[SignalReceived]:
        """The signals that nobody has read, in the order in which they came."""
        unread = [entry for entries in self._unread.values() for entry in entries]
        return [event for _, event in sorted(unread, key=lambda entry: entry[0])]

    # -- queries and updates ----------------------------------------------------------------------

    def query(self, name: str, args: tuple[Any, ...]) -> Any:
        """What the flow's code answers: a copy, so that nobody can change what the flow knows.

        Raises:
            UsageError: It answers no such query, or with what is no JSON.
        """
        answerer = self.queries.get(name)
        if answerer is None:
            known = ", ".join(sorted(self.queries)) or "none"
            raise UsageError(f"the flow answers no query {name!r}; it has: {known}")
        answer = encoded(answerer.function(*args), f"the answer to query {name!r}")
        return answerer.arguments.returns.decode(text_of(answer))

    def accept(self, name: str, payload: str) -> None:
        """Let an update be checked before it is recorded.

        Raises:
            UpdateRejected: The flow takes no such update, or the arguments do not fit.
        """
        answerer = self.updates.get(name)
        if answerer is None:
            known = ", ".join(sorted(self.updates)) or "none"
            raise UpdateRejected(name, f"the flow takes no such update; it has: {known}")
        try:
            answerer.validate(payload)
        except InvalidPayload as error:
            raise UpdateRejected(name, str(error)) from error

    def update(self, event: UpdateReceived) -> bool:
        """Let an update be handled as a task of the flow, and be replied to.

        False if nobody handles it: it is rejected, and nothing is to be recorded.
        """
        if event.name not in self.updates:
            unknown = UsageError("the flow takes no such update")
            self._run.out.replies.append(rejection(event.id, event.name, unknown))
            return False
        self._updating[event.id] = event.name
        self._run.loop.create_task(self._handle(event), context=Context())
        return True

    async def _handle(self, event: UpdateReceived) -> None:
        try:
            answer = self.updates[event.name].call(text_of(event.payload))
            if inspect.isawaitable(answer):
                answer = await answer
            result = encoded(answer, f"the answer to update {event.name!r}")
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError):
                # The flow has ended around it; ``refuse_unfinished`` tells.
                raise
            self._reply(reply(event.id, error=error))
            return
        self._reply(reply(event.id, result=result))

    def _reply(self, answer: Reply) -> None:
        del self._updating[answer.message]
        self._run.out.replies.append(answer)

    def refuse_unfinished(self) -> None:
        """The flow ends: tell those whose update it does not finish."""
        for id_, name in self._updating.items():
            ended = UpdateRejected(name, "the flow ended before the update did")
            self._run.out.replies.append(reply(id_, error=ended))
        self._updating.clear()
