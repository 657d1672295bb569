"""The signals that others send to a running flow, which wait until its code reads them.

Owns the order in which signals are read: first come, first read, each once, also those that came
before anybody waited for them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from outlive.flows.calls import SignalWait
from outlive.flows.events import SignalReceived

if TYPE_CHECKING:
    from outlive.flows.run import FlowRun

# Signals that a run has read from its mailbox and its code has not asked for. They are kept in
# memory; whoever is ahead by more has found a flow that never asks, and fills its mailbox.
SIGNALS_MAX = 10_000


class Inbox:
    """The signals of one run."""

    def __init__(self, run: FlowRun) -> None:
        self._run = run
        self._arrived = 0
        self._unread: dict[str, deque[tuple[int, SignalReceived]]] = {}
        # Who waits, by the name of the signal and in the order of their numbers.
        self.waiting: dict[str, dict[int, SignalWait[Any]]] = {}
        self.unread = 0

    def wait(self, name: str, kind: Any, timeout_s: float | None) -> SignalWait[Any]:
        """Wait for the next signal of this name that nobody has read."""
        waiting: SignalWait[Any] = SignalWait(self._run, name, kind)
        unread = self._unread.get(name)
        if unread:
            _, event = unread.popleft()
            self.unread -= 1
            if not unread:
                del self._unread[name]
            waiting.deliver(event)
            return waiting
        self.waiting.setdefault(name, {})[waiting.number] = waiting
        if timeout_s is not None:
            waiting.expire_in(timeout_s)
        return waiting

    @property
    def full(self) -> bool:
        """Whether as many signals were read as may be without the code asking for them.

        Leave further ones in the mailbox, where they are counted against those who send them.
        """
        return self.unread >= SIGNALS_MAX

    def awaits(self, name: str) -> bool:
        """Whether the code waits for a signal of this name now."""
        return name in self.waiting

    @property
    def unawaited(self) -> list[str]:
        """The names of signals that the code asked for without ever awaiting one."""
        return [
            name
            for name, waiting in self.waiting.items()
            if any(not each.awaited for each in waiting.values())
        ]

    def forget(self, waiting: SignalWait[Any]) -> None:
        """Nobody waits there any more."""
        others = self.waiting.get(waiting.name)
        if others is not None:
            others.pop(waiting.number, None)
            if not others:
                del self.waiting[waiting.name]

    def receive(self, event: SignalReceived) -> None:
        """Give a signal to whoever has waited longest, or keep it."""
        waiting = self.waiting.get(event.name)
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
