"""What a measurement needs of a backend: a store, a raw driver beside it, a count of statements.

Owns the seams between measurements and backends, and how long a run may take.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.rounds import Rate

LeaseCount = 1_000
"""How many leases the keeper renews in the measurement of renewals."""

TTL_S = 30.0
"""The ttl in every measurement: the default of the library."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long to measure. A backend's quick run stays below a minute, a full one below four."""

    # Many and short: other programs on the machine then slow ours and the floor alike.
    rounds: int
    round_s: float
    # A crowd needs a few commits before it is in step.
    crowd_rounds: int
    crowd_s: float
    contention_s: float
    handovers: int
    idle_s: float
    bursts: int


# The idle window is longer than a third of the ttl, so that renewals fall into it.
QUICK = Effort(
    rounds=41,
    round_s=0.05,
    crowd_rounds=15,
    crowd_s=0.15,
    contention_s=2.0,
    handovers=100,
    idle_s=12.0,
    bursts=3,
)
FULL = Effort(
    rounds=201,
    round_s=0.05,
    crowd_rounds=61,
    crowd_s=0.15,
    contention_s=8.0,
    handovers=500,
    idle_s=40.0,
    bursts=9,
)


class Absent(Exception):
    """A server or a peer cannot be had here; the text says why."""


BRACKETS = frozenset({"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE"})
"""First words of statements that only begin, end or divide a transaction."""


@dataclass(slots=True)
class Count:
    """Statements that arrived at a store.

    Attributes:
        statements: Statements that read or write.
        transactions: Transactions; a statement outside of one is a transaction itself.
        brackets: Statements that only begin, end or divide a transaction.
    """

    statements: int = 0
    transactions: int = 0
    brackets: int = 0

    @property
    def sent(self) -> int:
        """All statements."""
        return self.statements + self.brackets


@dataclass(frozen=True, slots=True)
class Floor:
    """The raw driver on the same store: one transaction for each operation.

    Attributes:
        pairs: Acquire and release ``key`` by turns for so many seconds; operations per second.
        renewals: Renew ``LeaseCount`` leases one by one for so many seconds; renewals per second.
        peers: Other ways to do what ``pairs`` or ``renewals`` does, by measurement and name.
    """

    pairs: Callable[[str, float], Awaitable[float]]
    renewals: Callable[[float], Awaitable[float]]
    peers: Mapping[str, Mapping[str, Callable[[float], Awaitable[float]]]] = field(
        default_factory=dict[str, Mapping[str, Callable[[float], Awaitable[float]]]]
    )

    def peers_of(self, measurement: str, seconds: float) -> dict[str, Rate]:
        """The peers of one measurement, each for a round of ``seconds``."""
        found = self.peers.get(measurement, {})
        return {name: _bound(rate, seconds) for name, rate in found.items()}


def _bound(rate: Callable[[float], Awaitable[float]], seconds: float) -> Rate:
    return lambda: rate(seconds)


class Backend(Protocol):
    """A place where leases are kept, ready to be measured."""

    @property
    def name(self) -> str:
        """The first half of its rows' names."""
        ...

    @property
    def bars(self) -> Mapping[str, float]:
        """What is required of its rows, by measurement."""
        ...

    def new_store(self) -> str:
        """The URL of an empty store."""
        ...

    def floor(self, url: str) -> AbstractAsyncContextManager[Floor]:
        """The raw driver beside the store of ``url``: the same server, or the same disk."""
        ...

    def counting(self, url: str) -> AbstractAsyncContextManager[Callable[[], Count]]:
        """Count what hosts that connect inside the block send to the store of ``url``.

        The function that it gives returns the count so far.
        """
        ...
