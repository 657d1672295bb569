"""The mailbox of a live flow as its host knows it: when to look into it, what was seen. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from outlive.model.instance import LETTERS_MAX, Letter

# A timer that is fired so late tells of a host that stood still: rings that came meanwhile may not
# have been handled. One that is fired sooner costs no look into the mailbox.
_LATE_US = 200_000


class Mailbox:
    """What one host knows of one mailbox.

    ``rung``: there may be letters that were not read. ``looking``: a look is under way.
    """

    __slots__ = ("_after", "_asked_us", "_seen_us", "looking", "rung")

    def __init__(self, at_us: int) -> None:
        self.rung = self.looking = False
        # Those up to this number stay there, and must not hide what stands behind them.
        self._after = 0
        # The instants at which the last look began that saw all of it, and the one that is under
        # way. A claim is such a look; a flow that was just started has no deadline yet.
        self._seen_us, self._asked_us = at_us, 0

    def forget(self) -> None:
        """What was read has to be read again, from the first."""
        self.rung = True
        self.see_anew()

    def see_anew(self) -> None:
        """What was seen says nothing of the timers that are set, and the code that waits, now."""
        self._seen_us = self._after = 0

    def look(self, now_us: int) -> int:
        """A look begins; returns the number behind which it does."""
        self.rung, self.looking = False, True
        if not self._after:
            self._asked_us = now_us
        return self._after

    def looked(self, letters: Sequence[Letter], *, heard: bool, took: bool) -> None:
        """A look has ended with these letters; whether they were heard of, and any was taken."""
        more = len(letters) >= LETTERS_MAX
        if heard and not more:
            self._seen_us = self._asked_us
        self.rung = self.rung or more
        # What nobody has heard of is still to be taken.
        self._after = letters[-1].number if heard and more and not took else 0

    def comes_first(self, due_us: int, now_us: int) -> bool:
        """Whether letters that were sent before ``due_us`` may be unread.

        After a look that began behind it there are none, whatever comes meanwhile.
        """
        if self._seen_us >= due_us:
            return False
        return self.looking or self.rung or now_us - due_us > _LATE_US
