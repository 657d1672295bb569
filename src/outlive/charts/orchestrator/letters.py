"""Dead letters: events that nobody took, kept for a while so that somebody can look at them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from outlive.charts.events import Event
from outlive.charts.listening import Unsubscribe
from outlive.clock import Clock

# Enough to see a pattern; a flood of them must not fill the memory.
LETTERS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """An event that was not handled: whom it was for, why not, and when that was found out."""

    machine: str
    group: str
    event: Event
    reason: str
    at: datetime


class DeadLetters:
    """The last dead letters of an orchestrator. May be written by any thread."""

    def __init__(self, clock: Clock, log: logging.Logger) -> None:
        self._clock = clock
        self._log = log
        self._recent: deque[DeadLetter] = deque(maxlen=LETTERS_MAX)
        self._listeners: tuple[Callable[[DeadLetter], None], ...] = ()

    def __len__(self) -> int:
        return len(self._recent)

    def recent(self) -> tuple[DeadLetter, ...]:
        """Those that are kept, the oldest first."""
        return tuple(self._recent)

    def listen(self, function: Callable[[DeadLetter], None]) -> Unsubscribe:
        """Call ``function`` with each from now on; the result ends that."""
        self._listeners = (*self._listeners, function)

        def forget() -> None:
            self._listeners = tuple(each for each in self._listeners if each is not function)

        return forget

    def add(self, machine: str, group: str, event: Event, reason: str) -> None:
        """Keep one. The listeners hear of it; one that raises is logged."""
        letter = DeadLetter(
            machine=machine,
            group=group,
            event=event,
            reason=reason,
            at=self._clock.now(),
        )
        self._recent.append(letter)
        self._log.warning(
            "dead letter %r for %s: %s",
            *(event.type, machine, reason),
            extra={"machine": machine, "group": group},
        )
        for listener in self._listeners:
            try:
                listener(letter)
            except Exception:
                logging.getLogger("outlive.charts").exception("a dead letter listener failed")
