"""``python -m benchmarks AREA``: measure, print the table, and tell by the exit status.

Owns the command line only. 0: every bar was met. 1: one was missed, or a measurement broke.
2: the command was wrong.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.charts import area as charts
from benchmarks.flows import area as flows
from benchmarks.leases import area as leases
from benchmarks.report import Report
from benchmarks.work import area as work

_AREAS = {"charts": charts, "flows": flows, "leases": leases, "work": work}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Outlive beside the raw driver doing the same durable work.",
    )
    parser.add_argument("area", choices=sorted(_AREAS))
    parser.add_argument("--quick", action="store_true", help="shorter rounds, wider error")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the rows to FILE")
    parser.add_argument(
        "--only",
        metavar="NAME",
        help="measure only what NAME is part of, for example sqlite/uncontended, sqlite/ or idle",
    )
    parser.add_argument(
        "--peers", action="store_true", help="install what is measured beside us, in a cache"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    area = _AREAS[given.area]
    if given.only is not None and not area.chosen(given.only):
        parser.error(f"--only {given.only!r} is part of none of: {', '.join(area.names())}")
    if given.json is not None and not given.json.parent.is_dir():
        parser.error(f"--json: the directory {given.json.parent} does not exist")
    report = Report()
    area.run(report, only=given.only, quick=given.quick, peers=given.peers)
    print(report.as_text())
    if given.json is not None:
        report.write_json(given.json)
    return report.status


if __name__ == "__main__":
    # The raw loops that are measured beside us block the event loop, as is told of at length.
    logging.getLogger("outlive").setLevel(logging.ERROR)
    sys.exit(main())
