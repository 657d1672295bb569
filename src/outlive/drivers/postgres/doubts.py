"""Doubts of a host that waits: whoever brings something may not have seen its note.

A statement sees the notes of the moment it began at. Between that and the lock by which others know
that it is under way there is a gap, short as a rule and long on a server that has no time: what
passes through it rings nobody. So a host that left a note looks again soon, twice; and while
somebody holds that lock who may have begun before the note, again and again. So does one that saw
something which others were just about to take: nobody rings if they leave it. Pure: time comes in
as an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# After a new note: longer than statements take as a rule, and than they take on a server that has
# no time. Rare enough not to be felt beside the ring that used up the note before.
_LOOKS_S = (0.25, 2.75)

# Who waits no longer than that looks again soon by himself.
_SHORT_S = 6.0

# From one look to the next while somebody is on his way, or ahead: first the time of a commit, then
# longer and longer, because a user may keep his transaction open for minutes.
_BUSY_FIRST_S = 0.02
_BUSY_MOST_S = 1.0

# The same where nothing of what was seen could be had: a stranger may keep a row locked for days,
# and that must not cost a statement a second on each host for as long. Who leaves it rings nobody,
# so it is looked for again before the next poll.
_OUTRUN_MOST_S = 10.0

# Topics that are remembered; HTTP workers name as many as they like. Forgetting costs a wait for
# the next poll, should the gap have been met.
_TOPICS_MAX = 10_000


class Doubts:
    """What one driver has noted lately, and where somebody was on his way or ahead of it then."""

    __slots__ = ("_busy", "_noted", "_outrun")

    def __init__(self) -> None:
        self._noted: dict[str, float] = {}
        self._busy: dict[str, float] = {}
        self._outrun: dict[str, float] = {}

    def noted(self, topics: Iterable[str], now: float) -> None:
        """Notes were left where none were."""
        _remember(self._noted, topics, now)

    def pause_s(self, topics: Sequence[str], now: float, *, wait_us: int) -> float | None:
        """How soon to look again though nobody rings; ``None`` is when the caller likes."""
        if wait_us <= _SHORT_S * 1e6:
            return None
        noted, soonest = self._noted, None
        for topic in topics:
            if (since := noted.get(topic)) is None:
                continue
            left_s = next((since + at - now for at in _LOOKS_S if now < since + at), None)
            if left_s is None:
                del noted[topic]
            elif soonest is None or left_s < soonest:
                soonest = left_s
        return soonest

    def unseen(self, topics: Iterable[str]) -> bool:
        """Whether somebody was on his way at the last look who may not have seen the note."""
        return not self._busy.keys().isdisjoint(topics)

    def busy(self, topics: Sequence[str]) -> float:
        """Somebody is on his way: how soon to look again."""
        return _longer(self._busy, topics, _BUSY_MOST_S)

    def calm(self, topics: Iterable[str]) -> None:
        """Nobody is on his way any more."""
        for topic in topics:
            self._busy.pop(topic, None)

    def outrun(self, topics: Sequence[str]) -> float:
        """Others were taking what was seen: how soon to look whether they left any."""
        return _longer(self._outrun, topics, _OUTRUN_MOST_S)

    def behind(self, topics: Iterable[str]) -> bool:
        """Whether others were ahead at the last look, so that looking often is in vain."""
        return bool(self._outrun) and not self._outrun.keys().isdisjoint(topics)

    def served(self, topics: Iterable[str]) -> None:
        """Whatever was seen was had, or some of it: who is ahead lets others through."""
        if self._outrun:
            for topic in topics:
                self._outrun.pop(topic, None)


def _longer(known: dict[str, float], topics: Sequence[str], most_s: float) -> float:
    before = [known.get(topic, _BUSY_FIRST_S / 2) for topic in topics]
    pause_s = min(most_s, 2 * max(before, default=_BUSY_FIRST_S / 2))
    _remember(known, topics, pause_s)
    return pause_s


def _remember(known: dict[str, float], topics: Iterable[str], value: float) -> None:
    if len(known) > _TOPICS_MAX:
        known.clear()
    known.update(dict.fromkeys(topics, value))
