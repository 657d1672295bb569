"""Whose turn it is when a key is free: first come, first served, without waiting for the dead.

Pure. SQL drivers restate ``free_since + PASS_AFTER_US * ahead <= now`` in their statements, and
the conformance suite checks that they mean the same.
"""

from __future__ import annotations

# A healthy waiter answers its wake-up in about a millisecond. A quarter of a second is long
# enough for a busy event loop, and short enough that a dead head of the queue is hardly felt.
PASS_AFTER_US = 250_000

# A place in the queue outlives this much silence of its owner. Waiters refresh it three times as
# often; a crashed waiter costs one PASS_AFTER at most, because passing marks it.
WAITER_TTL_US = 15_000_000

# How many of the queue are told when a key becomes free: the head acts at once, the others wait
# their turn by their own timers, in case the head is dead.
RING_DEPTH = 3


def may_take(now_us: int, free_since_us: int, *, ahead: int, free_slots: int) -> bool:
    """Whether an attempt with ``ahead`` live waiters before it may take one of ``free_slots``.

    With as many free slots as people ahead, nobody is overtaken. Otherwise each of those ahead
    that finds no slot left over gets ``PASS_AFTER_US`` to answer, counted from when the key
    became free.
    """
    if free_slots <= 0:
        return False
    excess = max(0, ahead - free_slots + 1)
    return now_us >= free_since_us + PASS_AFTER_US * excess


def turn_in_us(now_us: int, free_since_us: int, *, ahead: int, free_slots: int) -> int:
    """How long until ``may_take`` turns true, if nothing else changes."""
    excess = max(0, ahead - max(free_slots, 1) + 1)
    return max(0, free_since_us + PASS_AFTER_US * excess - now_us)
