"""Those who look at a machine from outside: subscribers, listeners to emitted events, waiters.

A listener that raises is logged and harms nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from outlive.charts.events import Event
from outlive.charts.snapshot import Snapshot
from outlive.errors import ChartError, WaitTimeout
from outlive.telemetry import PROCESS

if TYPE_CHECKING:
    from outlive.charts.interpreter import Interpreter

_log = PROCESS.logger("outlive.charts")

Unsubscribe = Callable[[], None]


class Listeners:
    """The listeners of one machine."""

    __slots__ = ("_emitted", "_snapshots")

    def __init__(self) -> None:
        self._snapshots: list[Callable[[Snapshot], Any]] = []
        self._emitted: list[tuple[str, Callable[[Event], Any]]] = []

    def subscribe(self, function: Callable[[Snapshot], Any]) -> Unsubscribe:
        """Call ``function`` with the snapshot after each event."""
        self._snapshots.append(function)
        return lambda: _forget(self._snapshots, function)

    def on(self, event_type: str, function: Callable[[Event], Any]) -> Unsubscribe:
        """Call ``function`` with each emitted event of this type; ``*`` is all of them."""
        entry = (event_type, function)
        self._emitted.append(entry)
        return lambda: _forget(self._emitted, entry)

    def changed(self, snapshot: Snapshot) -> None:
        """Tell the subscribers."""
        for function in tuple(self._snapshots):
            _call(function, snapshot)

    def emitted(self, event: Event) -> None:
        """Tell those who listen to the event."""
        for wanted, function in tuple(self._emitted):
            if wanted in ("*", event.type):
                _call(function, event)


def _call(function: Callable[[Any], Any], value: object) -> None:
    try:
        function(value)
    except Exception:  # noqa: BLE001 - a listener must not harm the machine it looks at
        _log.exception("a machine listener failed")


def _forget(entries: list[Any], entry: object) -> None:
    if entry in entries:
        entries.remove(entry)


async def wait_for(
    actor: Interpreter, predicate: Callable[[Snapshot], bool], timeout_s: float | None
) -> Snapshot:
    """The first snapshot that satisfies ``predicate``, from now on; see ``Actor.wait_for``."""
    if predicate(actor.snapshot):
        return actor.snapshot
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Snapshot] = loop.create_future()

    def look(snapshot: Snapshot) -> None:
        if found.done():
            return
        try:
            if predicate(snapshot):
                found.set_result(snapshot)
            elif snapshot.status != "active":
                found.set_exception(
                    ChartError(
                        f"machine {actor.id!r} ended ({snapshot.status}) before it reached the "
                        "expected state"
                    )
                )
        except Exception as error:  # noqa: BLE001 - the waiter's own function; it hears of it
            found.set_exception(error)

    def give_up() -> None:
        if not found.done():
            assert timeout_s is not None
            found.set_exception(WaitTimeout(actor.id, timeout_s))

    unsubscribe = actor.subscribe(look)
    timers = actor.environment.timers
    timer = None if timeout_s is None else timers.call_later(timeout_s, give_up)
    try:
        look(actor.snapshot)
        return await found
    finally:
        unsubscribe()
        if timer is not None:
            timer.cancel()
