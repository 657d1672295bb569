"""``outlive flow replay-check`` and ``lint``: hold recorded flows, and rules, against the code.

Read only: no store is made, migrated or written to.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from outlive.app import App
from outlive.cli import errors, signals
from outlive.cli.invocation import Invocation, current, global_options
from outlive.cli.output import cell, clean, emit_document, emit_line, say
from outlive.cli.worker import load_app
from outlive.errors import FlowNotFound, InvalidPayload, UsageError
from outlive.flows.checking import check_recording
from outlive.flows.recording import Recording, read_document, record_flow
from outlive.flows.tools import lint
from outlive.model.instance import FINAL, LIVE, InstanceFilter, InstanceStatus
from outlive.names import InstanceId, check_key
from outlive.ports.instance_store import InstanceStore

# One that failed, or was stopped, goes on only if somebody retries it; until then changed code
# does no harm, and may be the very reason to retry.
_STATUSES = (*LIVE, InstanceStatus.COMPLETED)

# Of those that have ended: enough to meet every path of most programs, and a few seconds of work.
_ENDED_MAX = 1000

# Each record brings its input along.
_PAGE = 100

# Live flows that were started later than this after the check began are none of its business:
# where they are started as fast as they are checked, it would never end. Not the moment itself:
# the store's clock may be ahead of this machine's, and then the newest flows would be passed over.
_STARTED_WITHIN = timedelta(seconds=60)


@click.command("replay-check")
@click.argument("app")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--status",
    type=click.Choice([status.value for status in InstanceStatus]),
    multiple=True,
    help="Only flows with this status; default live and completed ones.",
)
@click.option("--name", help="Only runs of this flow.")
@click.option(
    "--only-defined",
    is_flag=True,
    help="Skip live flows that the app does not define (flows of another app).",
)
@click.option("--id", "ids", multiple=True, help="Only the flow with this id. May be repeated.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    help=f"Maximum number, live flows first; default all live and {_ENDED_MAX:,} ended flows.",
)
@global_options
@click.pass_context
def replay_check(
    context: click.Context,
    /,
    app: str,
    files: tuple[Path, ...],
    ids: tuple[str, ...],
    limit: int | None,
    **wanted: Any,
) -> None:
    """Replay the histories of stored flows with the code of an app, and list mismatches.

    APP is MODULE:NAME. With FILEs from `outlive flow history FLOW --json`, no store is needed. No
    step is run, and nothing is written. Exits 1 if a history does not fit the code, if the app does
    not define a live flow, or if --limit left out a live flow.
    """
    invocation = current()
    loaded = _with_flows(app)
    chosen = bool(ids) or wanted["name"] is not None
    if files and (chosen or limit is not None or any(wanted.values())):
        raise UsageError("all FILEs are checked: leave out options that select flows")
    if chosen and wanted["only_defined"]:
        raise UsageError("--name and --id already select flows: leave out --only-defined")
    if files:
        checked = _Checked([_row(loaded, _read(file), file=str(file)) for file in files])
    else:
        checked = signals.run(lambda _: _check_stored(invocation, loaded, ids, limit, wanted))
    _tell(invocation, checked)
    lacking = any(row["name"] not in loaded.flows for row in checked.rows)
    if lacking and not (files or chosen or wanted["only_defined"]):
        say("if the store holds flows of other apps, --only-defined skips them")
    context.exit(errors.OK if checked.passed else errors.UNEXPECTED)


@click.command("lint")
@click.argument("app")
@global_options
@click.pass_context
def lint_flows(context: click.Context, /, app: str) -> None:
    """Name calls in the source of flows that a replay could not repeat.

    APP is MODULE:NAME. Clocks, random numbers, files, the network, processes and threads are found
    by their names, each with its place and with what to use instead. Exits 1 if there are any.
    """
    output, flows = current().output, _with_flows(app)
    found = [replace(each, file=_from_here(each.file)) for each in lint(flows)]
    if output == "json":
        rows = [asdict(each) for each in found]
        emit_document({"checked": len(flows.flows), "findings": rows})
    for each in found:
        if output == "jsonl":
            emit_line(asdict(each))
        elif output != "json":
            click.echo(clean(str(each)))
    say(f"{len(flows.flows)} flows checked, {len(found)} calls found")
    context.exit(errors.UNEXPECTED if found else errors.OK)


def _from_here(file: str) -> str:
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file


def _with_flows(name: str) -> App:
    app = load_app(name)
    if not app.flows:
        raise UsageError(f"{app!r} has no flows")
    return app


@dataclass(slots=True)
class _Checked:
    """A row for each flow that was checked, and whether there are more."""

    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    live_left: bool = False
    ended_left: bool = False

    @property
    def wrong(self) -> list[dict[str, Any]]:
        """Those that do not fit."""
        return [row for row in self.rows if not row["fits"]]

    @property
    def passed(self) -> bool:
        """Whether every flow that will go on fits, as far as it was asked for."""
        return not self.wrong and not self.live_left


def _read(file: Path) -> Recording:
    try:
        return read_document(file.read_bytes())
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except InvalidPayload as error:
        raise UsageError(f"{file}: {error}") from None


async def _check_stored(
    invocation: Invocation,
    app: App,
    ids: Sequence[str],
    limit: int | None,
    wanted: Mapping[str, Any],
) -> _Checked:
    async with invocation.host(migrate=False) as host:
        # Asked for first: a backend that keeps no flows says so.
        _ = host.flows
        store = host.driver.instances
        assert store is not None
        if ids:
            known = [InstanceId(check_key(each, "the id of a flow")) for each in ids]
            return _Checked([_row(app, await record_flow(store, each)) for each in known])
        statuses = tuple(map(InstanceStatus, wanted["status"])) or _STATUSES
        named = () if wanted["name"] is None else (wanted["name"],)
        defined = tuple(app.flows)
        # A live one that no app defines any more waits for ever; one that has ended needs no code.
        live = _meant(statuses, LIVE, named or (defined if wanted["only_defined"] else ()))
        if live is not None:
            until = datetime.now(UTC) + _STARTED_WITHIN
            live = replace(live, created_before_us=round(until.timestamp() * 1e6))
        ended = _meant(statuses, FINAL, named or defined)
        return await _check_matching(store, app, live, ended, limit)


def _meant(
    wanted: Sequence[InstanceStatus], statuses: Sequence[InstanceStatus], names: tuple[str, ...]
) -> InstanceFilter | None:
    """Flows with those of ``statuses`` that are wanted, if one is."""
    both = tuple(status for status in wanted if status in statuses)
    return InstanceFilter(kind="flow", names=names, statuses=both) if both else None


async def _check_matching(
    store: InstanceStore,
    app: App,
    live: InstanceFilter | None,
    ended: InstanceFilter | None,
    limit: int | None,
) -> _Checked:
    """Check those that live before those that have ended: only they are to go on by this code."""
    checked = _Checked()
    seen = set[str]()
    if live is not None:
        listing = _Listing(store, live)
        async for recording in listing.read(limit):
            seen.add(recording.id)
            checked.rows.append(_row(app, recording))
        checked.live_left = await listing.has_more()
    if ended is not None:
        listing = _Listing(store, ended)
        async for recording in listing.read(_ENDED_MAX if limit is None else limit - len(seen)):
            # It may have ended since it was checked.
            if recording.id not in seen:
                checked.rows.append(_row(app, recording))
        checked.ended_left = await listing.has_more()
    return checked


class _Listing:
    """Stored flows as they are recorded, the oldest first, and how far they were read."""

    def __init__(self, store: InstanceStore, wanted: InstanceFilter) -> None:
        self._store = store
        self._wanted = wanted
        self._cursor: str | None = None
        self._through = False

    async def read(self, limit: int | None) -> AsyncIterator[Recording]:
        """All of them, or so many at most."""
        found = 0
        while limit is None or found < limit:
            most = _PAGE if limit is None else min(_PAGE, limit - found)
            page = await self._store.list(self._wanted, after=self._cursor, limit=most)
            for record in page:
                self._cursor = record.cursor
                try:
                    yield await record_flow(self._store, record.id)
                except FlowNotFound:
                    # Pruned since it was listed.
                    continue
            if len(page) < most:
                self._through = True
                return
            found += len(page)

    async def has_more(self) -> bool:
        """Whether there is one behind those that were read.

        Not by a count of all: that goes through the whole store, and is another one when flows
        end meanwhile.
        """
        if self._through:
            return False
        return bool(await self._store.list(self._wanted, after=self._cursor, limit=1))


def _row(app: App, recording: Recording, *, file: str | None = None) -> dict[str, Any]:
    mismatch = check_recording(app.flows, recording)
    return {
        "id": recording.id,
        "name": recording.name,
        "status": recording.status.value,
        "commits": len(recording.rows),
        **({} if file is None else {"file": file}),
        "fits": mismatch is None,
        "expected": None if mismatch is None else mismatch.expected,
        "found": None if mismatch is None else mismatch.found,
    }


def _tell(invocation: Invocation, checked: _Checked) -> None:
    rows, wrong = checked.rows, checked.wrong
    if invocation.output == "json":
        emit_document(
            {
                "checked": len(rows),
                "mismatched": len(wrong),
                "left_out": {"live": checked.live_left, "ended": checked.ended_left},
                "flows": rows,
            }
        )
    elif invocation.output == "jsonl":
        for row in rows:
            emit_line(row)
    else:
        for row in wrong:
            click.echo(f"{clean(row['id'])} ({clean(row['name'])}, {row['status']})")
            click.echo(f"  expected  {cell(row['expected'])}")
            click.echo(f"  found     {cell(row['found'])}")
    live = sum(row["status"] in LIVE for row in rows)
    say(f"checked flows: {live} live, {len(rows) - live} ended; mismatches: {len(wrong)}")
    if checked.ended_left:
        say("some ended flows were not checked; --limit N sets the total, live flows first")
    if checked.live_left:
        say("some live flows were NOT checked: leave out --limit to check all of them")
