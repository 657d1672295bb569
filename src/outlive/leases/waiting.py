"""Waiters of this process: who sleeps until which place in which queue is called.

A wake-up is a hint. Each waiter also wakes by its own timer, so a lost hint costs latency only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from outlive.model.turns import PASS_AFTER_US
from outlive.ports.wakeups import Wakeup, Wakeups

_PASS_AFTER_S = PASS_AFTER_US / 1e6

# A ring may overtake the reply that tells which place it is for. Replies are milliseconds behind,
# so that only the newest few strangers matter; places are never given out twice.
_STRANGERS_MAX = 256


class Waiters:
    """Connects wake-ups of the store with the tasks that wait for them."""

    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._unsubscribe: Callable[[], None] | None = None
        # Rings that came between an attempt and the wait after it, by place.
        self._early: dict[int, int] = {}
        # Rings for places that nobody here knows of yet, oldest first.
        self._strangers: dict[int, int] = {}

    @property
    def deaf(self) -> bool:
        """Whether hints are known not to arrive."""
        return self._wakeups.deaf

    def listen(self) -> None:
        """Begin to listen; called before the first attempt that queues, so no ring is missed."""
        if self._unsubscribe is None:
            self._unsubscribe = self._wakeups.subscribe(self._on_wakeup)

    def expect(self, waiter: int) -> None:
        """Remember rings for this place from now on."""
        self._early.setdefault(waiter, self._strangers.pop(waiter, -1))

    def forget(self, waiter: int) -> None:
        """The place is given up or taken."""
        self._early.pop(waiter, None)

    async def wait(self, waiter: int, seconds: float) -> bool:
        """Sleep until the place is called or ``seconds`` have passed; true if it was called.

        One who stands behind others is called as well, in case the head of the queue is dead:
        it waits its turn before it returns.
        """
        position = await self._called(waiter, seconds)
        if position is None:
            return False
        if position > 0:
            turn_s = min(seconds, position * _PASS_AFTER_S)
            again = await self._called(waiter, turn_s)
            while again is not None and again > 0:
                again = await self._called(waiter, min(seconds, again * _PASS_AFTER_S))
        return True

    async def _called(self, waiter: int, seconds: float) -> int | None:
        early = self._early.get(waiter, -1)
        if early >= 0:
            self._early[waiter] = -1
            return early
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        self._waiting[waiter] = future
        timer = loop.call_later(max(0.0, seconds), _give_up, future)
        try:
            position = await future
        finally:
            timer.cancel()
            self._waiting.pop(waiter, None)
        return position if position >= 0 else None

    def close(self) -> None:
        """Stop listening, and wake everybody who waits."""
        for future in list(self._waiting.values()):
            _give_up(future)
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def _on_wakeup(self, wakeup: Wakeup) -> None:
        if not wakeup.topic.startswith("lease/"):
            return
        position = max(0, wakeup.position)
        future = self._waiting.get(wakeup.waiter)
        if future is not None and not future.done():
            future.set_result(position)
        elif (early := self._early.get(wakeup.waiter)) is not None:
            # Also when the waiter has been called but has not run yet: the head's own call often
            # comes in the same turn of the loop as the one it got while it stood behind another.
            self._early[wakeup.waiter] = position if early < 0 else min(early, position)
        else:
            self._strangers[wakeup.waiter] = position
            if len(self._strangers) > _STRANGERS_MAX:
                del self._strangers[next(iter(self._strangers))]


def _give_up(future: asyncio.Future[int]) -> None:
    if not future.done():
        future.set_result(-1)
