"""What a run has recorded and decided since it was last asked, in order, with what follows from it.

While a history is replayed, only decisions are put here, and each is struck out when the history
turns out to hold it: what remains at the end was decided and never written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from outlive.flows.calls import StepCall
from outlive.flows.events import DECIDED, Event, StepIntended, StepSent, failure_in
from outlive.model.instance import Message, NewInstance, Reply
from outlive.model.job import NewJob
from outlive.names import JobId

Effect = NewJob | NewInstance | Message | StepCall[object]
"""What is done once the event beside it is committed."""

Entry = tuple[Event, Effect | None]


class _Places:
    """Where entries stand: found by what they are, however many there are.

    Made when one behind the first is asked for, which only a replay does. ``known`` is how many of
    the entries it has seen; ``struck`` are places, behind the first entry, that do not count.
    """

    __slots__ = ("begun", "events", "known", "others", "struck")

    def __init__(self) -> None:
        self.known = 0
        self.events: dict[int, int] = {}
        self.begun: dict[str, deque[int]] = {}
        self.others: deque[int] = deque()
        self.struck: set[int] = set()

    def learn(self, entries: Sequence[Entry], since: int) -> None:
        """See what was added."""
        for place in range(max(self.known, since), len(entries)):
            event = entries[place][0]
            self.events[id(event)] = place
            if isinstance(event, (StepSent, StepIntended)):
                self.begun.setdefault(event.step, deque()).append(place)
            else:
                self.others.append(place)
        self.known = len(entries)

    def first(self, places: deque[int], since: int) -> int | None:
        """The first of ``places`` that counts; those before it are never asked for again."""
        while places and (places[0] < since or places[0] in self.struck):
            places.popleft()
        return places[0] if places else None


class Outbox:
    """The entries of one run."""

    __slots__ = (
        "_entries",
        "_places",
        "_struck",
        "events",
        "replies",
        "sends",
        "stopped",
        "stopped_jobs",
        "urgent",
    )

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        # So many of the first ones do not count any more.
        self._struck = 0
        self._places: _Places | None = None
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
        behind = 0 if self._places is None else len(self._places.struck)
        return len(self._entries) - self._struck - behind

    def __iter__(self) -> Iterator[Entry]:
        """The entries as they are now, whatever is put or struck meanwhile."""
        if self._places is None or not self._places.struck:
            return iter(self._entries[self._struck :])
        struck = self._places.struck
        places = range(self._struck, len(self._entries))
        return iter([self._entries[place] for place in places if place not in struck])

    def first(self) -> Entry | None:
        """The oldest entry."""
        return self._entries[self._struck] if len(self._entries) > self._struck else None

    def first_other(self) -> Entry | None:
        """The oldest entry that is not the beginning of a step, in a queue or with ``once``."""
        first = self.first()
        if first is None or not isinstance(first[0], (StepSent, StepIntended)):
            return first
        places = self._known()
        place = places.first(places.others, self._struck)
        return None if place is None else self._entries[place]

    def begun(self, step: str) -> Entry | None:
        """The oldest entry that begins this step, in a queue or with ``once``."""
        first = self.first()
        if first is None:
            return None
        if isinstance(first[0], (StepSent, StepIntended)) and first[0].step == step:
            # The usual one.
            return first
        places = self._known()
        found = places.begun.get(step)
        place = None if found is None else places.first(found, self._struck)
        return None if place is None else self._entries[place]

    def _known(self) -> _Places:
        if self._places is None:
            self._places = _Places()
        self._places.learn(self._entries, self._struck)
        return self._places

    def strike_first(self) -> None:
        """The oldest entry stands in the history already."""
        self._struck += 1
        if self._places is not None:
            # Those behind it that were struck out before it are none of the first either.
            while self._struck in self._places.struck:
                self._places.struck.remove(self._struck)
                self._struck += 1

    def strike(self, event: Event) -> None:
        """This entry counts no more."""
        self.events -= 1
        first = self.first()
        if first is not None and first[0] is event:
            self.strike_first()
        else:
            places = self._known()
            places.struck.add(places.events[id(event)])

    def failed_last(self) -> str | None:
        """The step or child whose failure was the last thing that happened, if it was one."""
        for event, _ in reversed(list(self)):
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

    def is_plain(self) -> bool:
        """Whether there is nothing that leaves no event."""
        return not (self.sends or self.replies or self.stopped or self.stopped_jobs)

    def emptied(self) -> Sequence[Entry]:
        """All entries, which are not here any more."""
        entries = self._entries
        if self._struck or self._places is not None:
            entries = list(self)
            self._places = None
        self._entries, self._struck = [], 0
        self.urgent = False
        return entries
