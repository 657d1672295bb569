"""What a measurement says, and how a run of them is shown: a table for people, JSON for scripts.

Owns the form of a row, the verdict on it, and the exit status. Every area of the benchmarks reports
through here. It must never round before it judges.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_HEADINGS = ("measurement", "ours", "floor", "ratio", "bar", "")
_MISSED = "MISSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured number.

    Attributes:
        name: ``backend/measurement``.
        unit: Of ``ours``, ``floor`` and ``peers`` alike.
        ours: What Outlive did.
        floor: What the raw driver did in the same run, or ``None`` where there is none.
        peers: What others did in the same run, by name; the name says in what they differ.
        bar: What is required: of ``ours / floor`` where there is a floor, else of ``ours``.
        at_most: Whether less is better: the bar is an upper limit.

    Raises:
        ValueError: A number is not finite, or the floor is not above zero.
    """

    name: str
    unit: str
    ours: float
    floor: float | None = None
    peers: Mapping[str, float] = field(default_factory=dict[str, float])
    bar: float | None = None
    at_most: bool = False

    def __post_init__(self) -> None:
        numbers = (self.ours, self.floor, self.bar, *self.peers.values())
        if not all(number is None or math.isfinite(number) for number in numbers):
            raise ValueError(f"{self.name}: a measured number is not finite")
        if self.floor is not None and self.floor <= 0:
            raise ValueError(f"{self.name}: a floor of {self.floor:g} measured nothing")

    @property
    def ratio(self) -> float | None:
        """Ours for each one of the floor's."""
        return None if self.floor is None else self.ours / self.floor

    @property
    def ok(self) -> bool | None:
        """Whether the bar is met; ``None`` where there is no bar."""
        if self.bar is None:
            return None
        judged = self.ours if self.ratio is None else self.ratio
        return judged <= self.bar if self.at_most else judged >= self.bar

    def as_json(self) -> dict[str, Any]:
        """The row as scripts read it; the keys are a promise."""
        return {
            "name": self.name,
            "unit": self.unit,
            "ours": self.ours,
            "floor": self.floor,
            "peers": dict(self.peers),
            "bar": self.bar,
            "at_most": self.at_most,
            "ok": self.ok,
        }


@dataclass(slots=True)
class Report:
    """The rows of one run, and what could not be measured."""

    rows: list[Row] = field(default_factory=list[Row])
    # Under what conditions it was measured; shown first.
    conditions: list[str] = field(default_factory=list[str])
    # Measurements that broke. They count as missed: a number that is not there meets no bar.
    failures: list[str] = field(default_factory=list[str])
    # What was left out because it cannot be had here. Shown last; no reason to fail.
    absent: list[str] = field(default_factory=list[str])
    # Of the servers that were measured, by name.
    servers: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def status(self) -> int:
        """The exit status: 1 if a bar was missed or a measurement broke."""
        return 1 if self.failures or any(row.ok is False for row in self.rows) else 0

    def as_text(self) -> str:
        """The conditions, the table, then what broke, then what was left out."""
        lines = [*self.conditions, "", *_table(self.rows)]
        missed = sum(row.ok is False for row in self.rows)
        if missed:
            lines += ["", f"{missed} bar(s) missed"]
        lines += [f"failed: {failure}" for failure in self.failures]
        lines += [f"left out: {reason}" for reason in self.absent]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The run as scripts read it; the keys are a promise."""
        return {
            "rows": [row.as_json() for row in self.rows],
            "failed": self.failures,
            "left_out": self.absent,
        }


def write_json(path: Path, document: object) -> None:
    """Write ``document`` to ``path``."""
    path.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def shown(value: float | None) -> str:
    """A number with three digits that matter; thousands are separated."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _bar(row: Row) -> str:
    if row.bar is None:
        return "-"
    return f"{'<=' if row.at_most else '>='} {row.bar:g}"


def _cells(row: Row) -> tuple[str, ...]:
    verdict = {True: "ok", False: _MISSED, None: ""}[row.ok]
    ours = f"{shown(row.ours)} {row.unit}"
    return row.name, ours, shown(row.floor), shown(row.ratio), _bar(row), verdict


def _table(rows: Sequence[Row]) -> list[str]:
    lines = table(_HEADINGS, [_cells(row) for row in rows])
    found = lines[:2]
    for row, line in zip(rows, lines[2:], strict=True):
        found.append(line)
        found += [
            f"    beside it: {name}: {shown(value)} {row.unit}"
            for name, value in sorted(row.peers.items())
        ]
    return found


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Two lines of headings, and one for each row: a name, numbers, and a verdict."""
    cells = [headings, *rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(headings))]
    rule = "  ".join("-" * width for width in widths).rstrip()
    first, *rest = (_line(line, widths) for line in cells)
    return [first, rule, *rest]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    name = cells[0].ljust(widths[0])
    numbers = [cell.rjust(width) for cell, width in zip(cells[1:-1], widths[1:-1], strict=True)]
    return "  ".join([name, *numbers, cells[-1]]).rstrip()
