"""How the outcome of the benchmark looks on a terminal. Pure; prints nothing."""

from __future__ import annotations

from collections.abc import Sequence

from outlive.bench.judging import Tally

# Fits beside labels on a terminal of eighty columns.
_BAR_WIDTH = 40

COLUMNS = {
    "claimed": "STRATEGY",
    "workers": "WORKERS",
    "attempts": "ATTEMPTS",
    "wins": "WINS",
    "success": "SUCCESS",
    "duplicates": "DUPLICATES",
    "lost": "LOST",
    "p50_ms": "P50 MS",
    "p95_ms": "P95 MS",
    "p99_ms": "P99 MS",
}


def rows_of(tallies: Sequence[Tally]) -> list[dict[str, str]]:
    """The table: one row for each strategy and number of workers."""
    return [
        {
            "claimed": tally.label,
            "workers": str(tally.workers),
            "attempts": f"{tally.attempts:,}",
            "wins": f"{tally.wins:,}",
            "success": f"{tally.success_rate:.0%}",
            "duplicates": f"{tally.duplicates:,}" + ("" if tally.sound else " (control)"),
            "lost": f"{tally.lost:,}",
            "p50_ms": f"{tally.p50_ms:.2f}",
            "p95_ms": f"{tally.p95_ms:.2f}",
            "p99_ms": f"{tally.p99_ms:.2f}",
        }
        for tally in tallies
    ]


def chart_of(tallies: Sequence[Tally], *, block: str = "#") -> list[str]:
    """Bars of the 95th percentile, a group for each number of workers."""
    if not tallies:
        return []
    longest = max(tally.p95_ms for tally in tallies) or 1.0
    width = max(len(tally.label) for tally in tallies)
    lines: list[str] = []
    for workers in sorted({tally.workers for tally in tallies}):
        lines += ["", f"p95 of a claim, {workers} workers"]
        for tally in tallies:
            if tally.workers == workers:
                bar = block * max(1, round(tally.p95_ms / longest * _BAR_WIDTH))
                doubled = f"  {tally.duplicates:,} claimed twice" if tally.duplicates else ""
                lines.append(f"  {tally.label.ljust(width)}  {bar} {tally.p95_ms:.2f} ms{doubled}")
    return lines
