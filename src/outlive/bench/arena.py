"""What a way of claiming is to the benchmark: an arena where items lie and claimants take them.

Owns the words between the contest, the workers and the stores; does no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

# Every table, schema and key of a benchmark begins with this, so that people know what they see.
PREFIX = "outlive_bench_"


class Miss(Enum):
    """An attempt that got nothing: ``beaten`` by somebody else, or there was nothing left."""

    BEATEN = "beaten"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where one benchmark takes place.

    Attributes:
        folder: Of the SQLite files.
        tag: Unique to this benchmark; part of every name that it makes.
        urls: The servers, by store.
    """

    folder: Path
    tag: str
    urls: dict[str, str] = field(default_factory=dict[str, str], repr=False)


class Arena(Protocol):
    """One strategy on one store, as one process sees it.

    The contest builds, lays out and demolishes; workers claim and tidy. Raises errors of
    ``outlive.errors`` where a store is away.
    """

    async def build(self) -> str:
        """Make tables or whatever is needed, and say how durable a write is here. Repeatable."""
        ...

    async def lay_out(self, run: int, items: int) -> None:
        """Make ``items`` items of this run free to be claimed."""
        ...

    async def claim(self, run: int, claimant: str) -> int | Miss:
        """Try once to claim the next free item of this run; which one it was."""
        ...

    async def tidy(self, run: int) -> None:
        """After a run, outside of what is measured: put away what this process claimed."""
        ...

    async def demolish(self) -> None:
        """Remove everything that ``build`` made."""
        ...

    async def close(self) -> None:
        """Give the connection back."""
        ...
