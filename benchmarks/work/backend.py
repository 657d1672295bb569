"""What a measurement of work needs of a backend, and the raw claims beside it.

The places (a folder, private servers) are those of the measurements of leases.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Backend(Protocol):
    """A place where jobs are kept."""

    @property
    def name(self) -> str:
        """The first half of its rows' names."""
        ...

    def new_store(self) -> str:
        """The URL of an empty store."""
        ...


class Floor(Protocol):
    """The raw driver on a store of its own, whose jobs the library itself enqueued."""

    async def batches(self, limit: int, seconds: float) -> float:
        """Claim ``limit`` jobs by one statement, again and again; jobs a second."""
        ...


class OpenFloor(Protocol):
    """Opens the raw driver on the empty store of a URL."""

    def __call__(self, url: str) -> AbstractAsyncContextManager[Floor]:
        """The floor, for as long as the block lasts."""
        ...
