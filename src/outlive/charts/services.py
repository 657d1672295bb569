"""Children of a machine that are no machines: coroutines, callbacks and async iterators.

Owns their life from start to stop. What a child has to say becomes an event for its parent:
``xstate.done.actor.<id>``, ``xstate.error.actor.<id>``, ``xstate.snapshot.<id>``. After ``stop`` it
says nothing more.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Protocol

from outlive.charts.convention import SERVICE, adapt, parameters_of
from outlive.charts.events import Event, EventLike, as_event, done_actor, error_actor, snapshot_of
from outlive.errors import ChartError, UsageError
from outlive.telemetry import PROCESS

_log = PROCESS.logger("outlive.charts")

Tell = Callable[[Event], None]


class Child(Protocol):
    """A running child, whatever it is."""

    @property
    def ended(self) -> bool:
        """Whether it has finished, failed or was stopped."""
        ...

    def begin(self) -> None:
        """Start. What goes wrong is told to the parent, not raised."""
        ...

    def deliver(self, item: Any, /) -> None:
        """Hand it an event; one that has ended hears nothing."""
        ...

    def stop(self) -> None:
        """End it. Safe to repeat."""
        ...


class Service:
    """A function of the user, inspected once. ``callback`` ones ask for ``send`` or ``receive``."""

    __slots__ = ("call", "callback")

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.call = adapt(function, SERVICE, f"service {name!r}")
        self.callback = bool({"send", "receive"} & set(parameters_of(function)))


class ServiceChild:
    """A service, run as a child.

    ``async def`` and anything that returns an awaitable runs as a task; its result is the output.
    An async iterator is consumed; each value is the ``context`` of a snapshot. A plain function
    that asks for ``send`` or ``receive`` is a callback: it may return a function that is called
    when it is stopped. Any other plain function gives its output at once.
    """

    def __init__(
        self,
        service: Service,
        *,
        child: str,
        given: Any,
        watched: bool,
        tell: Tell,
        actor: Any,
    ) -> None:
        self._service = service
        self._id = child
        self._given = given
        self._watched = watched
        self._tell_parent = tell
        self._actor = actor
        self._task: asyncio.Task[None] | None = None
        self._work: Any = None
        self._receivers: list[Callable[[Event], Any]] = []
        self._clean_up: Callable[[], Any] | None = None
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether it has nothing more to say."""
        return self._ended

    def begin(self) -> None:
        """Call the function; a coroutine begins when the loop turns next."""
        if self._watched:
            self._show({"status": "active", "context": None})
        try:
            result = self._service.call(
                self._given, self._send_back, self._receive, self._id, self._actor
            )
        except Exception as error:  # noqa: BLE001 - the parent is told, whatever it is
            self._fail(error)
            return
        if isinstance(result, AsyncIterator):
            self._spawn(self._consume, result)  # pyright: ignore[reportUnknownArgumentType]
        elif inspect.isawaitable(result):
            self._spawn(self._await, result)
        elif self._service.callback:
            self._clean_up = result if callable(result) else None
        else:
            self._finish(result)

    def deliver(self, item: Event, /) -> None:
        """Pass ``item`` to whatever the function gave to ``receive``."""
        if not self._ended:
            for receiver in tuple(self._receivers):
                receiver(item)

    def stop(self) -> None:
        """Cancel the task, or call the clean-up function."""
        if self._ended:
            return
        self._ended = True
        # A task of a loop that was closed never goes on, and cannot be told.
        if self._task is not None and not self._task.get_loop().is_closed():
            self._task.cancel()
            _drop(self._work)
        if self._clean_up is not None:
            self._clean_up()

    def _send_back(self, event: EventLike, /, **data: Any) -> None:
        if not self._ended:
            self._tell_parent(as_event({"type": event, **data} if data else event))

    def _receive(self, receiver: Callable[[Event], Any]) -> None:
        self._receivers.append(receiver)

    def _spawn(self, run: Callable[[Any], Coroutine[Any, Any, None]], given: Any) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            _drop(given)
            self._fail(UsageError(f"service {self._id!r} is async; it needs a running event loop"))
            return
        self._work = given
        self._task = loop.create_task(run(given), name=f"outlive service {self._id}")

    async def _await(self, work: Awaitable[Any]) -> None:
        try:
            result = await work
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            self._fail(ChartError(f"service {self._id!r} was cancelled"))
        except Exception as error:  # noqa: BLE001 - the parent is told, whatever it is
            self._fail(error)
        else:
            self._finish(result)

    async def _consume(self, values: AsyncIterator[Any]) -> None:
        try:
            async for value in values:
                if self._watched and not self._ended:
                    self._show({"status": "active", "context": value})
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            self._fail(ChartError(f"service {self._id!r} was cancelled"))
        except Exception as error:  # noqa: BLE001 - the parent is told, whatever it is
            self._fail(error)
        else:
            self._finish(None)
        finally:
            close = getattr(values, "aclose", None)
            if close is not None:
                await close()

    def _show(self, snapshot: dict[str, Any]) -> None:
        self._tell_parent(Event(snapshot_of(self._id), {"snapshot": snapshot}))

    def _finish(self, output: Any) -> None:
        if not self._ended:
            self._ended = True
            self._tell_parent(Event(done_actor(self._id), {"output": output}))

    def _fail(self, error: BaseException) -> None:
        if self._ended:
            _log.warning("service %s failed after it was stopped: %r", self._id, error)
            return
        self._ended = True
        self._tell_parent(Event(error_actor(self._id), {"error": error}))


def is_cancelled() -> bool:
    """Whether the running task was cancelled itself, and not only what it awaited."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _drop(work: Any) -> None:
    """Give up work that nobody will await: a task cancelled before its first turn never does."""
    if inspect.iscoroutine(work):
        if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
            work.close()
    elif isinstance(work, asyncio.Future):
        work.cancel()  # pyright: ignore[reportUnknownMemberType]
