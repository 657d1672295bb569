"""What a measurement of flows needs of a backend, and the raw writes beside it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from benchmarks.leases.backend import Count


class Backend(Protocol):
    """A place where flows are kept."""

    @property
    def name(self) -> str:
        """The first half of its rows' names."""
        ...

    def new_store(self) -> str:
        """The URL of an empty store."""
        ...

    def counting(self, url: str) -> AbstractAsyncContextManager[Callable[[], Count]]:
        """Count what hosts that connect inside the block send to the store of ``url``."""
        ...


class Floor(Protocol):
    """The raw driver doing the writes of flows: a row, then for each step the row and a record.

    Each of these is a transaction of its own. Nobody is woken, and nothing runs.
    """

    async def rate(self, steps: int, in_flight: int, seconds: float) -> float:
        """Flows a second, so many at a time."""
        ...

    async def latencies(self, steps: int, times: int) -> list[float]:
        """Milliseconds of flows one after the other."""
        ...


class OpenFloor(Protocol):
    """Opens the raw driver on the empty store of a URL."""

    def __call__(self, url: str) -> AbstractAsyncContextManager[Floor]:
        """The floor, for as long as the block lasts."""
        ...
