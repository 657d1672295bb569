"""What every port behind a faulty network has in common: one host, one network.

Must never answer by itself: what the store decided is passed on, late, twice or not at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from outlive.testing.faults import Faults
from outlive.testing.simulation import SimHost

T = TypeVar("T")


class FaultyPort:
    """Sends what it is asked through the network of one simulated host."""

    def __init__(self, faults: Faults, host: SimHost) -> None:
        self._faults = faults
        self._host = host

    async def _call(
        self, operation: Callable[[], Awaitable[T]], *, answered_once: bool = False
    ) -> T:
        return await self._faults.call(self._host, operation, answered_once=answered_once)

    @property
    def _now(self) -> float:
        return self._faults.simulation.now


def only_once(apply: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
    """``apply`` for what is no message: delivered a second time, it gives its first answer."""
    answers: list[T] = []

    async def once() -> T:
        if not answers:
            answers.append(await apply())
        return answers[0]

    return once
