"""What a run has recorded and decided since it was last asked, in order, with what follows from it.

While a history is replayed, only decisions are put here, and each is struck out when the history
turns out to hold it: what remains at the end was decided and never written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from holdfast.flows.calls import StepCall
from holdfast.flows.events import Event
from holdfast.model.instance import Message, NewInstance, Reply
from holdfast.model.job import NewJob
from holdfast.names import JobId

Effect = NewJob | NewInstance | Message | StepCall[object]
"""What is done once the event beside it is committed."""


class Outbox:
    """The entries of one run."""

    __slots__ = ("_entries", "events", "replies", "sends", "stopped", "stopped_jobs", "urgent")

    def __init__(self) -> None:
        self._entries: deque[tuple[Event, Effect | None]] = deque()
        # Whether something here must be committed before it takes effect.
        self.urgent = False
        # How much the history holds, with what is to be written.
        self.events = 0
        # These leave no event: sent a second time under the same id, they are nothing.
        self.sends: list[Message] = []
        self.replies: list[Reply] = []
        self.stopped: list[str] = []
        self.stopped_jobs: list[JobId] = []

    def put(self, event: Event, effect: Effect | None = None) -> None:
        """Add one event."""
        self.events += 1
        self._entries.append((event, effect))
        self.urgent = True

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[Event, Effect | None]]:
        return iter(self._entries)

    def first(self) -> tuple[Event, Effect | None] | None:
        """The oldest entry."""
        return self._entries[0] if self._entries else None

    def strike_first(self) -> None:
        """The oldest entry stands in the history already."""
        self._entries.popleft()

    def strike(self, event: Event) -> None:
        """This entry counts no more."""
        self.events -= 1
        self._entries = deque(entry for entry in self._entries if entry[0] is not event)

    def replayed(self) -> None:
        """Look at what the replay left: only that is still to be written."""
        self.urgent = bool(self._entries)

    def forget_unrecorded(self) -> None:
        """What leaves no event went out with a later commit, which the history holds."""
        self.sends.clear()
        self.replies.clear()
        self.stopped.clear()
        self.stopped_jobs.clear()

    @property
    def plain(self) -> bool:
        """Whether there is nothing that leaves no event."""
        return not (self.sends or self.replies or self.stopped or self.stopped_jobs)

    def emptied(self) -> deque[tuple[Event, Effect | None]]:
        """All entries, which are not here any more."""
        entries = self._entries
        self._entries = deque()
        self.urgent = False
        return entries
