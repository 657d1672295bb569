"""Judges what workers recorded: who claimed an item twice, what nobody claimed, how long it took.

Pure: numbers in, a verdict out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outlive.telemetry import plural

# What a claim may take at the 95th percentile before it is called slow.
P95_MS_MAX = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What one worker did in one run.

    ``claims`` are the items it believes to own and how many seconds each took, from the first
    attempt at it; ``attempts`` are all, without the last look that found nothing left.
    """

    worker: str
    attempts: int
    claims: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """All runs of one strategy with so many workers.

    ``duplicates`` counts claims of an item that somebody had claimed already, ``lost`` the items
    that nobody claimed.
    """

    store: str
    strategy: str
    sound: bool
    workers: int
    items: int
    runs: int
    attempts: int
    wins: int
    duplicates: int
    lost: int
    p50_ms: float
    p95_ms: float
    p99_ms: float

    @property
    def label(self) -> str:
        """Store and strategy."""
        return f"{self.store}/{self.strategy}"

    @property
    def success_rate(self) -> float:
        """Wins for each attempt."""
        return self.wins / self.attempts if self.attempts else 0.0

    @property
    def fault(self) -> str | None:
        """What is wrong with it, if it must not be so."""
        if self.sound and (self.duplicates or self.lost):
            return f"duplicates: {self.duplicates}, lost items: {self.lost}"
        if not self.sound and self.workers > 1 and not self.duplicates:
            return "the control shows no duplicates, so this contest proves nothing"
        return None

    @property
    def is_slow(self) -> bool:
        """Whether a sound strategy takes longer than it should."""
        return self.sound and self.p95_ms >= P95_MS_MAX

    def as_json(self) -> dict[str, Any]:
        """The tally as scripts read it; the keys are a promise."""
        return {
            "store": self.store,
            "strategy": self.strategy,
            "sound": self.sound,
            "workers": self.workers,
            "items": self.items,
            "runs": self.runs,
            "attempts": self.attempts,
            "wins": self.wins,
            "success_rate": self.success_rate,
            "duplicates": self.duplicates,
            "lost": self.lost,
            "p50_ms": self.p50_ms,
            "p95_ms": self.p95_ms,
            "p99_ms": self.p99_ms,
            "fault": self.fault,
        }


def judge(
    runs: Sequence[Sequence[Record]], *, store: str, strategy: str, sound: bool, items: int
) -> Tally:
    """Count what the records of all workers, run by run, say together."""
    duplicates = lost = 0
    for records in runs:
        claimed = Counter(item for record in records for item, _ in record.claims)
        duplicates += sum(times - 1 for times in claimed.values())
        lost += sum(item not in claimed for item in range(items))
    records = [record for run in runs for record in run]
    times_ms = [seconds * 1000 for record in records for _, seconds in record.claims]
    return Tally(
        store=store,
        strategy=strategy,
        sound=sound,
        workers=len({record.worker for record in records}),
        items=items,
        runs=len(runs),
        attempts=sum(record.attempts for record in records),
        wins=len(times_ms),
        duplicates=duplicates,
        lost=lost,
        p50_ms=percentile(times_ms, 50),
        p95_ms=percentile(times_ms, 95),
        p99_ms=percentile(times_ms, 99),
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of ``values`` that at least ``percent`` of them do not exceed; 0 of none."""
    if not values:
        return 0.0
    rank = math.ceil(len(values) * percent / 100)
    return sorted(values)[max(0, rank - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is said in the end; ``ok`` decides the exit code, ``winner`` is a label."""

    ok: bool
    lines: tuple[str, ...]
    winner: str | None = None


def sum_up(tallies: Sequence[Tally], skipped: Mapping[str, str]) -> Verdict:
    """Judge a whole benchmark. One that measured nothing is not ok.

    Strategies compete with the most workers, because that is where they differ most.
    """
    sound = [tally for tally in tallies if tally.sound]
    faults = [
        f"FAULT: {tally.label} with {plural(tally.workers, 'worker')}: {tally.fault}"
        for tally in tallies
        if tally.fault is not None
    ]
    lines: list[str] = []
    if sound:
        wins, items = sum(t.wins for t in sound), sum(t.runs * t.items for t in sound)
        lines.append(
            f"sound strategies: {wins:,} claims of {items:,} items, "
            f"{sum(t.duplicates for t in sound)} duplicates, {sum(t.lost for t in sound)} lost"
        )
    controls = [tally for tally in tallies if not tally.sound]
    if controls:
        doubled = sum(tally.duplicates for tally in controls)
        lines.append(f"controls: {doubled:,} duplicates, as expected of them")
    lines += faults
    slow = [tally for tally in sound if tally.is_slow]
    lines += [
        f"SLOW: {t.label} with {plural(t.workers, 'worker')}: p95 {t.p95_ms:.1f} ms, not below "
        f"{P95_MS_MAX:g} ms"
        for t in slow
    ]
    if sound and not slow:
        worst = max(sound, key=lambda tally: tally.p95_ms)
        lines.append(
            f"slowest p95: {worst.p95_ms:.1f} ms ({worst.label} with "
            f"{plural(worst.workers, 'worker')}), "
            f"below {P95_MS_MAX:g} ms"
        )
    lines += [f"skipped: {name}: {reason}" for name, reason in skipped.items()]
    most = max((tally.workers for tally in sound), default=0)
    rivals = [tally for tally in sound if tally.workers == most and tally.fault is None]
    rivals.sort(key=lambda tally: tally.p95_ms)
    if rivals:
        first, then = rivals[0], rivals[1:2]
        lines.append(
            f"winner: {first.label}, because with {plural(most, 'worker')} it claimed every item "
            f"once and had the lowest p95: {first.p95_ms:.1f} ms"
            + "".join(f", before {other.label} with {other.p95_ms:.1f} ms" for other in then)
        )
    ok = bool(tallies) and not faults
    if not tallies:
        said = "nothing was measured"
    elif faults:
        said = "NOT OK"
    elif sound:
        said = "every item was claimed exactly once by every sound strategy"
    else:
        said = "only controls took part, and they claim items twice"
    lines.append(f"verdict: {said}")
    return Verdict(ok=ok, lines=tuple(lines), winner=rivals[0].label if rivals else None)
