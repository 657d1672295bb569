"""``holdfast flow replay-check``: hold recorded flows against the code as it is now.

Reads only: no store is made, migrated or written to.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from holdfast.app import App
from holdfast.cli import errors, signals
from holdfast.cli.invocation import Invocation, current, global_options
from holdfast.cli.output import cell, clean, emit_document, emit_line, say
from holdfast.cli.worker import load_app
from holdfast.errors import FlowNotFound, InvalidPayload, UsageError
from holdfast.flows.checking import check_recording
from holdfast.flows.recording import Recording, read_document, record_flow
from holdfast.model.instance import LIVE, InstanceFilter, InstanceStatus
from holdfast.names import InstanceId, check_key
from holdfast.ports.instance_store import InstanceStore

# One that failed, or was stopped, goes on only if somebody retries it; until then changed code
# does no harm, and may be the very reason to retry.
_STATUSES = (*LIVE, InstanceStatus.COMPLETED)

# Enough to meet every path of most programs, and a few seconds of work.
_LIMIT = 1000

# Each record brings its input along.
_PAGE = 100


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
@click.option("--id", "ids", multiple=True, help="Only the flow of this id; may be repeated.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=_LIMIT,
    show_default=True,
    help="At most so many, the oldest first.",
)
@global_options
@click.pass_context
def replay_check(
    context: click.Context,
    /,
    app: str,
    files: tuple[Path, ...],
    ids: tuple[str, ...],
    limit: int,
    **wanted: Any,
) -> None:
    """Run the histories of stored flows by the code of an app, and name those that do not fit.

    APP is MODULE:NAME. With FILEs, which `holdfast flow history FLOW --json` wrote, no store is
    needed. No step is run, and nothing is written. Exits 1 if a flow does not fit.
    """
    invocation = current()
    loaded = load_app(app)
    if not loaded.flows:
        raise UsageError(f"{loaded!r} has no flows")
    narrowed = bool(ids) or any(wanted.values())
    if files and narrowed:
        raise UsageError("FILEs are checked all of them: leave --id, --name and --status away")
    if files:
        rows = [_checked(loaded, _read(file), file=str(file)) for file in files]
    else:
        rows = signals.run(lambda _: _check_stored(invocation, loaded, ids, limit, wanted))
    mismatched = _tell(invocation, rows)
    context.exit(errors.UNEXPECTED if mismatched else errors.OK)


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
    limit: int,
    wanted: Mapping[str, Any],
) -> list[dict[str, Any]]:
    async with invocation.host(migrate=False) as host:
        # Asked for first: a backend that keeps no flows says so.
        _ = host.flows
        store = host.driver.instances
        assert store is not None
        if ids:
            return [
                _checked(app, await record_flow(store, InstanceId(check_key(each)))) for each in ids
            ]
        names = tuple(app.flows) if wanted["name"] is None else (wanted["name"],)
        statuses = tuple(map(InstanceStatus, wanted["status"])) or _STATUSES
        wished = InstanceFilter(kind="flow", names=names, statuses=statuses)
        return [_checked(app, each) async for each in _stored(store, wished, limit)]


async def _stored(
    store: InstanceStore, wanted: InstanceFilter, limit: int
) -> AsyncIterator[Recording]:
    cursor = None
    while limit > 0:
        page = await store.list(wanted, after=cursor, limit=min(limit, _PAGE))
        for record in page:
            try:
                yield await record_flow(store, record.id)
            except FlowNotFound:
                # Pruned since it was listed.
                continue
        if len(page) < min(limit, _PAGE):
            return
        limit -= len(page)
        cursor = page[-1].cursor


def _checked(app: App, recording: Recording, *, file: str | None = None) -> dict[str, Any]:
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


def _tell(invocation: Invocation, rows: Sequence[Mapping[str, Any]]) -> int:
    """Write what was found; how many do not fit."""
    wrong = [row for row in rows if not row["fits"]]
    if invocation.output == "json":
        emit_document({"checked": len(rows), "mismatched": len(wrong), "flows": rows})
    elif invocation.output == "jsonl":
        for row in rows:
            emit_line(row)
    else:
        for row in wrong:
            click.echo(f"{clean(row['id'])} ({clean(row['name'])}, {row['status']})")
            click.echo(f"  expected  {cell(row['expected'])}")
            click.echo(f"  found     {cell(row['found'])}")
    say(f"{len(rows)} flows checked, {len(wrong)} do not fit")
    return len(wrong)
