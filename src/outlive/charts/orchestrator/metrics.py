"""Numbers about events that were handled: counted where they happen, added up when asked.

Each event loop counts for itself, without locks; reading adds the counts of all loops. Latency is
measured on every request and on a sample of the sends, in buckets that are a fifth wide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

# Four buckets for each doubling, from a microsecond to more than an hour.
_BUCKETS = 4 * 33

_PERCENTILES = (50, 95, 99)


class Histogram:
    """How often each latency was seen. Keeps no values, so that it never grows."""

    __slots__ = ("buckets", "count")

    def __init__(self) -> None:
        self.buckets = [0] * _BUCKETS
        self.count = 0

    def add(self, value_s: float) -> None:
        """Count one latency."""
        self.buckets[_bucket(value_s)] += 1
        self.count += 1

    def merge(self, other: Histogram) -> None:
        """Add what ``other`` has seen."""
        pairs = zip(self.buckets, other.buckets, strict=True)
        self.buckets = [mine + theirs for mine, theirs in pairs]
        self.count += other.count

    def percentile(self, percent: float) -> float | None:
        """The upper end of the bucket that ``percent`` of all latencies do not exceed."""
        if not self.count:
            return None
        left = self.count * percent / 100
        for index, seen in enumerate(self.buckets):
            left -= seen
            if seen and left <= 0:
                return _upper_end_s(index)
        return _upper_end_s(_BUCKETS - 1)


def _bucket(value_s: float) -> int:
    value_us = max(1, int(value_s * 1_000_000))
    doublings = value_us.bit_length() - 1
    # The two bits below the highest one tell the quarter of the doubling.
    quarter = (value_us << 2 >> doublings) & 3
    return min(4 * doublings + quarter, _BUCKETS - 1)


def _upper_end_s(index: int) -> float:
    doublings, quarter = divmod(index, 4)
    return (1 << doublings) * (5 + quarter) / 4 / 1_000_000


class Counts:
    """What happened on one event loop. Only its own thread writes."""

    __slots__ = (
        "active",
        "dead_letters",
        "discarded",
        "failed",
        "grown",
        "handled",
        "latency",
        "queue_age_s",
        "shrunk",
        "skipped",
        "throttled",
        "timeouts",
    )

    def __init__(self) -> None:
        self.handled = 0
        self.failed = 0
        self.skipped = 0
        self.timeouts = 0
        self.throttled = 0
        self.dead_letters = 0
        self.discarded = 0
        self.grown = 0
        self.shrunk = 0
        self.active = 0
        self.queue_age_s = 0.0
        self.latency = Histogram()

    def merge(self, other: Counts) -> None:
        """Add what ``other`` has counted."""
        for name in self.__slots__:
            if name == "latency":
                self.latency.merge(other.latency)
            elif name == "queue_age_s":
                self.queue_age_s = max(self.queue_age_s, other.queue_age_s)
            else:
                setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """An orchestrator at one moment. Counts are since it was made.

    ``succeeded`` and ``failed`` are events that were handled; ``timeouts`` are requests whose
    sender gave up; ``throttled`` are events that met a full mailbox; ``discarded`` are events that
    were accepted and then dropped by a release, a stop without draining, or ``drop-oldest``.
    ``queue_depth`` is machines that have something to do; ``queue_age_s`` is how long the last one
    measured waited for its turn. Latencies are seconds from acceptance to the end of handling.
    """

    succeeded: int
    failed: int
    timeouts: int
    throttled: int
    dead_letters: int
    discarded: int
    latency_s: Mapping[str, float | None]
    queue_depth: int
    queue_age_s: float
    machines: int
    active_machines: int
    groups: int
    loops: int
    pool_size: int
    pool_size_max: int
    grown: int
    shrunk: int

    @property
    def processed(self) -> int:
        """Events that were handled, well or badly."""
        return self.succeeded + self.failed

    def as_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {**asdict(self), "processed": self.processed}


def total(counts: Iterable[Counts]) -> Counts:
    """All of them together."""
    together = Counts()
    for each in counts:
        together.merge(each)
    return together


def percentiles(latency: Histogram) -> dict[str, float | None]:
    """The latencies that ``Metrics`` tells: ``p50``, ``p95``, ``p99``."""
    return {f"p{percent}": latency.percentile(percent) for percent in _PERCENTILES}
