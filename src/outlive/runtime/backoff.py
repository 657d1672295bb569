"""Pauses between attempts: exponential, bounded, jittered. Pure apart from the injected random."""

from __future__ import annotations

import random


class Backoff:
    """The pauses of one series of attempts."""

    __slots__ = ("_first_s", "_most_s", "_next_s", "_random")

    def __init__(self, first_s: float, most_s: float, rng: random.Random) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s
        self._random = rng

    def next_s(self) -> float:
        """The next pause: the doubled last one, at most the longest, less up to half of it.

        The part taken off is random, so that many clients of one store do not return together.
        """
        pause_s = self._next_s
        self._next_s = min(self._most_s, pause_s * 2)
        return pause_s * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begin a new series."""
        self._next_s = self._first_s
