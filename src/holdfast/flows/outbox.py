"""What a run has recorded and decided since it was last asked, in order, with what follows from it.

While a history is replayed, only decisions are put here, and each is struck out when the history
turns out to hold it: what remains at the end was decided and never written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.flows.calls import StepCall
from holdfast.flows.events import DECIDED, Event, failure_in
from holdfast.model.instance import Message, NewInstance, Reply
from holdfast.model.job import NewJob
from holdfast.names import JobId

Effect = NewJob | NewInstance | Message | StepCall[object]
"""What is done once the event beside it is committed."""


class Outbox:
    """The entries of one run."""

    __slots__ = (
        "_entries",
        "_struck",
        "events",
        "replies",
        "sends",
        "stopped",
        "stopped_jobs",
        "urgent",
    )

    def __init__(self) -> None:
        self._entries: list[tuple[Event, Effect | None]] = []
        # So many of the first ones do not count any more.
        self._struck = 0
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
        return len(self._entries) - self._struck

    def __iter__(self) -> Iterator[tuple[Event, Effect | None]]:
        return iter(self._entries[self._struck :])

    def first(self) -> tuple[Event, Effect | None] | None:
        """The oldest entry."""
        return self._entries[self._struck] if len(self._entries) > self._struck else None

    def strike_first(self) -> None:
        """The oldest entry stands in the history already."""
        self._struck += 1

    def strike(self, event: Event) -> None:
        """This entry counts no more."""
        self.events -= 1
        self._entries = [entry for entry in self if entry[0] is not event]
        self._struck = 0

    def failed_last(self) -> str | None:
        """The step or child whose failure was the last thing that happened, if it was one."""
        for event, _ in reversed(self._entries[self._struck :]):
            if not isinstance(event, DECIDED):
                return failure_in(event)
        return None

    def replayed(self) -> None:
        """Look at what the replay left: only that is still to be written."""
        self.urgent = len(self) > 0

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

    def emptied(self) -> Sequence[tuple[Event, Effect | None]]:
        """All entries, which are not here any more."""
        entries = self._entries[self._struck :] if self._struck else self._entries
        self._entries, self._struck = [], 0
        self.urgent = False
        return entries
