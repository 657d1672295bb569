"""The figures of one run of all areas, kept in the repository, and later runs beside them.

Owns the description of the machine and the versions of a run, and the verdict on a row that became
worse. A ratio carries over to another machine better than a time does: where a row has
a floor, ratios are compared.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import outlive
from benchmarks.charts.peers import cache
from benchmarks.report import Report, shown, table

PATH = Path(__file__).parent / "baseline.json"

WORSE = 0.10
"""A row that is worse by more than this part is marked; runs on a quiet machine differ by less."""

_LIBRARIES = ("asyncpg", "hiredis", "msgspec", "redis", "uvloop")

# Where the packages of a peer lie in the cache, and which of them is the peer.
_PEERS = {
    "dbos": ("dbos",),
    "procrastinate": ("procrastinate",),
    "python": ("transitions", "xstate-statemachine"),
}

Document = dict[str, Any]


def document_of(area: str, report: Report, *, quick: bool, only: str | None) -> Document:
    """The document that ``--json`` writes of one run."""
    return {
        "area": area,
        "quick": quick,
        "only": only,
        "machine": _machine(),
        "versions": _versions() | report.servers,
        **report.as_json(),
    }


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu(),
        "python": platform.python_version(),
        "os": platform.platform(),
    }


def _cpu() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor())


def _versions() -> dict[str, str]:
    """Versions of the library, and of its clients and the peers as far as they are installed."""
    found = {"outlive": outlive.__version__, "sqlite": sqlite3.sqlite_version}
    found |= dict(_of_packages(_LIBRARIES, None))
    for folder, names in _PEERS.items():
        found |= dict(_of_packages(names, cache() / folder))
    xstate = cache() / "node_modules" / "xstate" / "package.json"
    if xstate.exists():
        found["xstate"] = json.loads(xstate.read_text(encoding="utf-8"))["version"]
    return found


def _of_packages(names: Sequence[str], folder: Path | None) -> Iterator[tuple[str, str]]:
    path = {} if folder is None else {"path": [str(folder)]}
    for name in names:
        for each in metadata.distributions(name=name, **path):
            yield name, each.version
            break


def merged(runs: Sequence[Document]) -> Document:
    """The baseline that full runs of the areas make.

    Raises:
        ValueError: One of them is no full run, an area is there twice, or they were made on
            different machines or with different versions.
    """
    areas: dict[str, Document] = {}
    versions: dict[str, str] = {}
    for run in runs:
        name = run["area"]
        if run["quick"] or run["only"] is not None:
            raise ValueError(f"{name}: a run with --quick or --only is no baseline")
        if name in areas:
            raise ValueError(f"{name}: given twice")
        if run["machine"] != runs[0]["machine"]:
            raise ValueError(f"{name}: was run on another machine than {runs[0]['area']}")
        for program, version in run["versions"].items():
            if versions.setdefault(program, version) != version:
                raise ValueError(f"{name}: was run with {program} {version}, another area was not")
        areas[name] = {key: run[key] for key in ("rows", "failed", "left_out")}
    return {"machine": runs[0]["machine"], "versions": versions, "areas": areas}


def compared(baseline: Document, runs: Sequence[Document]) -> tuple[list[str], bool]:
    """Lines that show each row of ``runs`` beside the baseline, and whether all is as good.

    Of a run with ``--only``, the rows that it does not have were not asked for.
    """
    cells: list[tuple[str, ...]] = []
    below: list[str] = []
    for run in runs:
        area = run["area"]
        before = {row["name"]: row for row in baseline["areas"].get(area, {}).get("rows", [])}
        now = {row["name"]: row for row in run["rows"]}
        asked = [name for name in before if run["only"] is None or name in now]
        names = [*asked, *(name for name in now if name not in before)]
        cells += [_cells(f"{area} {name}", before.get(name), now.get(name)) for name in names]
        below += [f"dead: {area} {failure}" for failure in run["failed"]]
        below += [f"left out: {area} {reason}" for reason in run["left_out"]]
    lines = [*_differences(baseline, runs), *table(_HEADINGS, cells), *below]
    good = not any(row[-1] in _BAD for row in cells) and not any(run["failed"] for run in runs)
    return lines, good


_HEADINGS = ("measurement", "baseline", "now", "quotient", "")
_WORSE, _MISSING, _NEW = "WORSE", "MISSING", "new"
_BAD = (_WORSE, _MISSING)


def _cells(name: str, before: Document | None, now: Document | None) -> tuple[str, ...]:
    if before is None:
        return name, "-", _figure(now), "-", _NEW
    if now is None or (now["floor"] is None) != (before["floor"] is None):
        # Without its floor, a row says another thing.
        return name, _figure(before), _figure(now), "-", _MISSING
    old, new = _value(before), _value(now)
    quotient = shown(new / old) if old > 0 else "-"
    margin = abs(old) * WORSE
    worse = new > old + margin if now["at_most"] else new < old - margin
    return name, _figure(before), _figure(now), quotient, _WORSE if worse else ""


def _value(row: Document) -> float:
    return row["ours"] if row["floor"] is None else row["ours"] / row["floor"]


def _figure(row: Document | None) -> str:
    if row is None:
        return "-"
    return f"{shown(_value(row))} {'x' if row['floor'] is not None else row['unit']}"


def _differences(baseline: Document, runs: Sequence[Document]) -> list[str]:
    """Reasons of a difference other than the code: the machine, versions, a quick run."""
    found: dict[str, None] = {}
    for run in runs:
        if run["quick"]:
            found[f"{run['area']}: --quick, a look and no verdict"] = None
        for group in ("machine", "versions"):
            known: Mapping[str, Any] = baseline[group]
            for name, value in run[group].items():
                if known.get(name, value) != value:
                    found[f"{name} is {value}, in the baseline {known[name]}"] = None
    return [*found, ""] if found else []


def read(path: Path) -> Document:
    """A run, or the baseline."""
    return json.loads(path.read_text(encoding="utf-8"))
