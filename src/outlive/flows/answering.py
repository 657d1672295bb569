"""What others ask of a running flow, and its code answers: queries, and updates.

A query only looks. An update is checked before anything of it is recorded, is then handled as a
task of the flow, and is replied to once, also if the flow ends before it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import Context
from typing import TYPE_CHECKING, Any

from outlive.errors import InvalidPayload, UpdateRejected, UsageError
from outlive.flows.arguments import Arguments, encoded, text_of
from outlive.flows.events import UpdateReceived
from outlive.flows.letters import rejection, reply, unfinished
from outlive.model.instance import Reply
from outlive.serialization import decode_plain

if TYPE_CHECKING:
    from outlive.flows.run import FlowRun


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


class Answering:
    """The queries and updates of one run."""

    __slots__ = ("_run", "queries", "updates", "updating")

    def __init__(self, run: FlowRun) -> None:
        self._run = run
        self.queries: dict[str, Answerer] = {}
        self.updates: dict[str, Answerer] = {}
        # Messages of updates that were taken and not replied to yet.
        self.updating: dict[str, None] = {}

    def query(self, name: str, *args: Any) -> Any:
        """What the code answers from the state it is in: a copy, so that nobody can change that.

        The arguments are handed over as they are, once it is known that they fit.

        Raises:
            UsageError: It answers no such query, or not with these arguments, or with what is no
                JSON or does not fit its type; or the query tries to do something.
        """
        of = f"flow {self._run.id!r}"
        with self._only_looking():
            answerer = self.queries.get(name)
            if answerer is None:
                known = ", ".join(sorted(self.queries)) or "none"
                raise UsageError(f"{of} has no query {name!r}; known queries: {known}")
            arguments, what = answerer.arguments, f"the answer to query {name!r}"
            with _saying(of):
                arguments.checked(arguments.encode(args, {}))
            answer = answerer.function(*args)
            with _saying(of):
                text = text_of(encoded(answer, what))
            with _saying(f"{of}: {what} does not fit its type"):
                return arguments.returns.decode(text)

    def accept(self, name: str, payload: str) -> None:
        """Let the code check an update before it is recorded.

        Raises:
            UpdateRejected: The flow takes no such update, or the arguments do not fit.
            Exception: What the validator raises. Nothing is recorded: tell the sender.
        """
        with self._only_looking():
            answerer = self.updates.get(name)
            if answerer is None:
                known = ", ".join(sorted(self.updates)) or "none"
                raise UpdateRejected(name, f"the flow has no such update; known updates: {known}")
            try:
                answerer.validate(payload)
            except InvalidPayload as error:
                raise UpdateRejected(name, str(error)) from error

    @contextmanager
    def _only_looking(self) -> Generator[None, None, None]:
        """Let flow code look at its state, with its loop running and nothing to decide."""
        run = self._run
        dice = run.chances.state
        try:
            with run.loop.only_looking():
                yield
        finally:
            run.chances.restore(dice)
            if run.loop.disturbed:
                # Some of its code was to be woken and was not: only a replay can mend that.
                run.differs(
                    "queries and validators that change nothing",
                    "a query or a validator that woke waiting flow code",
                )

    def update(self, event: UpdateReceived) -> bool:
        """Let an update be handled as a task of the flow, and be replied to.

        False if nobody handles it: it is rejected, and nothing is to be recorded.
        """
        if event.name not in self.updates:
            unknown = UsageError("the flow has no such update")
            self._run.out.replies.append(rejection(event.id, event.name, unknown))
            return False
        self.updating[event.id] = None
        self._run.loop.create_task(self._handle(event), context=Context())
        return True

    async def _handle(self, event: UpdateReceived) -> None:
        try:
            answer = self.updates[event.name].call(text_of(event.payload))
            if inspect.isawaitable(answer):
                answer = await answer
            result = encoded(answer, f"the answer to update {event.name!r}")
        except (Exception, asyncio.CancelledError) as error:
            over = self._run.code.ending is not None
            if isinstance(error, asyncio.CancelledError) and over:
                # The flow has ended around it; ``refuse_unfinished`` tells.
                raise
            self._reply(reply(event.id, error=error))
            return
        self._reply(reply(event.id, result=result))

    def _reply(self, answer: Reply) -> None:
        del self.updating[answer.message]
        self._run.out.replies.append(answer)

    def refuse_unfinished(self, *, anew: bool) -> None:
        """The run ends: tell those whose update it does not finish."""
        did = "continued as a new run (continue_as_new)" if anew else "ended"
        for id_ in self.updating:
            self._run.out.replies.append(unfinished(id_, f"the flow {did} before the update ended"))
        self.updating.clear()


@contextmanager
def _saying(whose: str) -> Generator[None, None, None]:
    """Let what is refused in the block say whose it is."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{whose}: {error}") from None
