"""``python -m benchmarks AREA``: measure, print the table, and tell by the exit status.

Owns the command line only. 0: every bar was met. 1: one was missed, or a measurement broke; of
``compare``, a row is worse, missing or dead. 2: the command was wrong.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import baseline
from benchmarks.charts import area as charts
from benchmarks.flows import area as flows
from benchmarks.leases import area as leases
from benchmarks.report import Report, write_json
from benchmarks.work import area as work

_AREAS = {"charts": charts, "flows": flows, "leases": leases, "work": work}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Outlive beside the raw driver doing the same durable work.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in sorted(_AREAS):
        area = commands.add_parser(name, help=f"measure {name}")
        area.add_argument("--quick", action="store_true", help="shorter rounds, wider error")
        area.add_argument("--json", metavar="FILE", type=Path, help="also write the rows to FILE")
        area.add_argument(
            "--only",
            metavar="NAME",
            help="measure only what NAME is part of, for example sqlite/uncontended or idle",
        )
        area.add_argument(
            "--peers", action="store_true", help="install what is measured beside us, in a cache"
        )
    made = commands.add_parser("baseline", help="make the baseline of full runs of the areas")
    beside = commands.add_parser("compare", help="show runs beside the baseline")
    for command, option in ((made, "--to"), (beside, "--baseline")):
        command.add_argument("runs", metavar="RUN.json", nargs="+", type=Path)
        command.add_argument(option, dest="baseline", type=Path, default=baseline.PATH)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.command == "baseline":
        return _make(parser, given)
    if given.command == "compare":
        lines, good = baseline.compared(
            baseline.read(given.baseline), [baseline.read(path) for path in given.runs]
        )
        print("\n".join(lines))
        return 0 if good else 1
    return _measure(parser, given)


def _measure(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    area = _AREAS[given.command]
    if given.only is not None and not area.chosen(given.only):
        parser.error(f"--only {given.only!r} is part of none of: {', '.join(area.names())}")
    if given.json is not None and not given.json.parent.is_dir():
        parser.error(f"--json: the directory {given.json.parent} does not exist")
    report = Report()
    area.run(report, only=given.only, quick=given.quick, peers=given.peers)
    print(report.as_text())
    if given.json is not None:
        document = baseline.document_of(given.command, report, quick=given.quick, only=given.only)
        write_json(given.json, document)
    return report.status


def _make(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    try:
        document = baseline.merged([baseline.read(path) for path in given.runs])
    except ValueError as error:
        parser.error(str(error))
    write_json(given.baseline, document)
    dead = [each for area in document["areas"].values() for each in area["failed"]]
    for failure in dead:
        print(f"dead: {failure}")
    return 1 if dead else 0


if __name__ == "__main__":
    # The raw loops that are measured beside us block the event loop, as is told of at length.
    logging.getLogger("outlive").setLevel(logging.ERROR)
    sys.exit(main())
