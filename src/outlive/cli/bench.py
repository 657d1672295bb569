"""``outlive bench``: measures on your machine and your servers what others only claim.

Owns the options and how the outcome is written; what is measured is ``outlive.bench``'s.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from outlive.bench.contest import ITEMS_MAX, RUNS_MAX, WORKERS_MAX, Outcome, Plan, hold
from outlive.bench.judging import Verdict, sum_up
from outlive.bench.showing import COLUMNS, chart_of, rows_of
from outlive.bench.strategies import NAMES, STORES, STRATEGIES, Strategy
from outlive.cli import errors, signals
from outlive.cli.invocation import Invocation, current, global_options
from outlive.cli.output import clean, emit_document, emit_line, emit_rows, say
from outlive.errors import UsageError
from outlive.runtime.runtime import Runtime

# As in the settings: a URL may name the variable that holds it.
_REFERENCE = "env:"


@click.group()
def bench() -> None:
    """Measure on this machine, with real processes and the stores you name."""


@bench.command("claims")
@click.option(
    "--store", "stores", multiple=True, type=click.Choice(STORES), help="Only this store."
)
@click.option(
    "--strategy", "names", multiple=True, type=click.Choice(NAMES), help="Only this strategy."
)
@click.option(
    "--sqlite",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder for the SQLite files; default the folder for temporary files.",
)
@click.option("--postgres", help="URL of a PostgreSQL server, or env:NAME.")
@click.option("--redis", help="URL of a Redis server, or env:NAME.")
@click.option(
    "--workers",
    multiple=True,
    type=click.IntRange(1, WORKERS_MAX),
    default=(2, 10),
    show_default=True,
    help="Number of processes that compete. May be repeated.",
)
@click.option("--items", type=click.IntRange(1, ITEMS_MAX), default=10, show_default=True)
@click.option("--runs", type=click.IntRange(1, RUNS_MAX), default=50, show_default=True)
@global_options
@click.pass_context
def claims(context: click.Context, /, **options: Any) -> None:
    """Measure claims: several processes race for the same items, one strategy after the other.

    A sound strategy gives every item to one process. The control reads and then writes, so that it
    gives some items to several processes; if it does not, the contest proves nothing. Exits 1 if a
    sound strategy claimed an item twice or lost one, or if a control claimed no item twice.
    """
    invocation = current()
    urls: dict[str, str] = {}
    for store in ("postgres", "redis"):
        if options[store] is not None:
            urls[store] = _resolve(store, options[store])
            invocation.secrets |= errors.secrets_in(urls[store])
    plan = Plan(
        strategies=_chosen(options["stores"], options["names"]),
        workers=tuple(dict.fromkeys(options["workers"])),
        items=options["items"],
        runs=options["runs"],
        folder=options["sqlite"],
        urls=urls,
    )
    tell = say if invocation.output == "table" else _tell_nobody
    outcome = signals.run(lambda _: hold(plan, Runtime(), tell))
    skipped = {
        name: errors.scrub(reason, invocation.secrets) for name, reason in outcome.skipped.items()
    }
    verdict = sum_up(outcome.tallies, skipped)
    _write(invocation, outcome, verdict, skipped)
    context.exit(errors.OK if verdict.ok else errors.UNEXPECTED)


def _resolve(store: str, url: str) -> str:
    if not url.startswith(_REFERENCE):
        return url
    variable = url.removeprefix(_REFERENCE)
    found = os.environ.get(variable, "")
    if not found:
        raise UsageError(f"--{store} refers to the variable {variable}, which is not set")
    return found


def _chosen(stores: tuple[str, ...], names: tuple[str, ...]) -> tuple[Strategy, ...]:
    chosen = tuple(
        strategy
        for strategy in STRATEGIES
        if (not stores or strategy.store in stores) and (not names or strategy.name in names)
    )
    if not chosen:
        known = ", ".join(strategy.label for strategy in STRATEGIES)
        raise UsageError(f"no chosen store has a chosen strategy (known: {known})")
    return chosen


def _tell_nobody(_: str) -> None:
    """Progress is for people."""


def _write(
    invocation: Invocation, outcome: Outcome, verdict: Verdict, skipped: dict[str, str]
) -> None:
    results = [tally.as_json() for tally in outcome.tallies]
    document = {
        "results": results,
        "stores": outcome.stores,
        "skipped": skipped,
        "winner": verdict.winner,
        "verdict": list(verdict.lines),
        "ok": verdict.ok,
    }
    if invocation.output == "json":
        emit_document(document)
        return
    if invocation.output == "jsonl":
        for result in results:
            emit_line(result)
        emit_line(
            {name: document[name] for name in ("stores", "skipped", "winner", "verdict", "ok")}
        )
        return
    for said in outcome.stores.values():
        click.echo(clean(said))
    click.echo()
    emit_rows("table", "results", rows_of(outcome.tallies), COLUMNS)
    lines = [*chart_of(outcome.tallies, block=_block()), "", *verdict.lines]
    for line in lines:
        click.echo(clean(line))


def _block() -> str:
    encoding = (sys.stdout.encoding or "").lower()
    return "\N{FULL BLOCK}" if encoding.replace("-", "") == "utf8" else "#"
