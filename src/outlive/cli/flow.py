"""``outlive flow``: look at flows and their histories.

Owns the reading verbs and the shape of a flow in output; the verbs that change something join from
their own modules. No verb makes a store that is not there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from outlive.app import App
from outlive.cli import signals
from outlive.cli.flow_check import lint_flows, replay_check
from outlive.cli.flow_operate import cancel, purge, resume, retry, signal, suspend, terminate
from outlive.cli.flow_start import attributes_of, definition, fork, start
from outlive.cli.flow_watch import watch
from outlive.cli.flow_words import (
    commit_row,
    due_column,
    end_words,
    host_column,
    host_words,
    outcome_lines,
    traceback_of,
    unread_words,
)
from outlive.cli.invocation import current, global_options
from outlive.cli.output import (
    clean_lines,
    emit_document,
    emit_fields,
    emit_line,
    emit_rows,
    say,
)
from outlive.cli.work_enqueue import instant
from outlive.cli.worker import load_app
from outlive.errors import OutliveError
from outlive.flows.info import FlowInfo
from outlive.flows.recording import (
    Recording,
    awaited_by,
    awaited_words,
    record_flow,
    replayed,
)
from outlive.host import Host
from outlive.model.instance import InstanceStatus, Letter
from outlive.model.lease import LIST_LIMIT_MAX
from outlive.names import InstanceId
from outlive.ports.instance_store import InstanceStore

_COLUMNS = {
    "id": "ID",
    "name": "FLOW",
    "status": "STATUS",
    "host": "HOST",
    "token": "TOKEN",
    "version": "VERSION",
    "created_at": "CREATED",
    "due_at": "DUE",
}
_HISTORY_COLUMNS = {
    "version": "VERSION",
    "token": "TOKEN",
    "host": "HOST",
    "at": "AT",
    "what": "WHAT",
}

# The place of a flow in a page is for programs, and its running steps are known to its host alone.
_NOT_IN_TABLES = ("cursor", "steps")

# Unread letters are read to be counted, and each may be as long as a payload.
_UNREAD_MAX = 10

_STATUSES = [status.value for status in InstanceStatus]


@click.group()
def flow() -> None:
    """Start, watch, inspect and operate flows."""


for command in (
    *(start, watch, signal, cancel, terminate, suspend, resume, retry, fork),
    *(purge, replay_check, lint_flows),
):
    flow.add_command(command)


@flow.command("ls")
@click.option("--name", help="Only runs of this flow.")
@click.option(
    "--status", type=click.Choice(_STATUSES), multiple=True, help="Only flows with this status."
)
@click.option("--prefix", help="Only ids with this prefix.")
@click.option("--attribute", multiple=True, help="Only flows with this attribute, as NAME=VALUE.")
@click.option("--stuck", is_flag=True, help="Only live flows that no host can continue.")
@click.option("--parent", help="Only children of this flow.")
@click.option(
    "--created-after", help="Only flows created at this instant or later; form as for `start --at`."
)
@click.option(
    "--limit",
    type=click.IntRange(1, LIST_LIMIT_MAX),
    default=100,
    show_default=True,
    help="Page size.",
)
@click.option("--after", help="Continue after this flow, the last of the previous page.")
@global_options
def list_flows(
    status: tuple[str, ...],
    attribute: tuple[str, ...],
    created_after: str | None,
    limit: int,
    **wanted: Any,
) -> None:
    """List flows, the oldest first, one page at a time."""
    invocation = current()
    attributes = attributes_of(attribute)
    if created_after is not None:
        wanted["created_after"] = instant(created_after, "--created-after")

    async def ask(_: signals.Signals) -> list[FlowInfo]:
        async with invocation.host() as host:
            return await host.flows.list(
                status=status or None, attributes=attributes, limit=limit, **wanted
            )

    found = signals.run(ask)
    rows = [document_of(info) for info in found]
    if invocation.output == "table":
        now = datetime.now(UTC)
        for info, row in zip(found, rows, strict=True):
            row["host"] = host_column(info, now)
            row["due_at"] = due_column(info)
            if info.stuck is not None:
                row["status"] = f"{info.status.value} (stuck)"
    more = found[-1].id if len(found) >= limit else None
    if invocation.output == "json":
        emit_document({"flows": rows, "next_after": more})
    else:
        emit_rows(invocation.output, "flows", rows, _COLUMNS)
    if more is not None:
        say(f"there may be more: --after {more!r}")


@flow.command()
@click.argument("flow_id", metavar="FLOW")
@click.option("--input", "with_input", is_flag=True, help="Add its arguments.")
@click.option("--history", "with_history", is_flag=True, help="Add its history.")
@click.option("--traceback", is_flag=True, help="Add the traceback of its error.")
@click.option("--app", help="MODULE:NAME of its app; adds the names that the flow waits for.")
@global_options
def show(
    flow_id: str, with_input: bool, with_history: bool, traceback: bool, app: str | None
) -> None:
    """Show one flow: its status, outcome, custom status, attributes and host."""
    invocation = current()
    loaded = None if app is None else load_app(app)

    async def ask(
        _: signals.Signals,
    ) -> tuple[FlowInfo, Sequence[Letter], Recording | None]:
        async with invocation.host() as host:
            info = await host.flows.get(flow_id).status()
            letters = await _unread(host, info) if invocation.output == "table" else ()
            wanted = with_history or loaded is not None
            return info, letters, await _record(host, flow_id) if wanted else None

    info, letters, recording = signals.run(ask)
    document = document_of(info, with_input=with_input)
    commits: list[dict[str, Any]] | None = None
    if recording is not None and loaded is not None:
        document["waits_for"] = _awaited(loaded, recording)
    if recording is not None and with_history:
        commits = [commit_row(row, info) for row in recording.rows]
    if invocation.output != "table":
        if commits is not None:
            document["history"] = commits
        (emit_document if invocation.output == "json" else emit_line)(document)
        return
    _for_people(document, info, letters)
    emit_fields("table", document)
    raised = traceback_of(info)
    if traceback and raised is not None:
        click.echo(f"\n{clean_lines(raised)}")
    if commits is not None:
        click.echo()
        emit_rows("table", "history", commits, _HISTORY_COLUMNS)


def _for_people(document: dict[str, Any], info: FlowInfo, letters: Sequence[Letter]) -> None:
    """Say in words what stands in the fields of a flow, and leave out what programs need."""
    for field in _NOT_IN_TABLES:
        del document[field]
    if info.stuck is None:
        del document["stuck"]
    document["outcome"] = outcome_lines(info)
    document["host"] = host_words(info, letters, datetime.now(UTC))
    document["due_at"] = due_column(info)
    waits: list[dict[str, str]] | None = document.get("waits_for")
    if waits is not None:
        pairs = [(each["kind"], each["name"]) for each in waits]
        document["waits_for"] = awaited_words(pairs) or "(no signal, step or child)"
    if letters:
        document["unread"] = unread_words(letters, _UNREAD_MAX)


def _awaited(app: App, recording: Recording) -> list[dict[str, str]] | None:
    """What the code of a flow waits for, by a copy of it; ``None`` if that is not known.

    Waiting for a signal is recorded nowhere: only the code knows the name.
    """
    if recording.status not in (InstanceStatus.RUNNING, InstanceStatus.SUSPENDED):
        # It has ended, or its code has not begun.
        return None
    try:
        found = definition(app, recording.name)
        # What the code prints is none of the document that is.
        with redirect_stdout(sys.stderr), replayed(found, recording) as run:
            return [{"kind": kind, "name": name} for kind, name in awaited_by(run)]
    except OutliveError as error:
        say(f"cannot find out what flow {recording.id!r} waits for: {error}")
        return None


@flow.command()
@click.argument("flow_id", metavar="FLOW")
@global_options
def history(flow_id: str) -> None:
    """Show every commit of a flow's current run, the oldest first.

    With --json, the output is all that `outlive flow replay-check` needs: save it to a file to
    check changed code where the store is not reachable.
    """
    invocation = current()

    async def ask(_: signals.Signals) -> tuple[Recording, FlowInfo]:
        async with invocation.host() as host:
            recording = await _record(host, flow_id)
            return recording, await host.flows.get(flow_id).status()

    recording, info = signals.run(ask)
    if invocation.output == "json":
        emit_document(recording.document())
        return
    rows = [commit_row(row, info) for row in recording.rows]
    emit_rows(invocation.output, "history", rows, _HISTORY_COLUMNS)
    ended = end_words(info, recording.rows)
    if ended is not None:
        say(ended)


async def _record(host: Host, flow_id: str) -> Recording:
    # Asked for first: a backend that keeps no flows says so.
    handle = host.flows.get(flow_id)
    return await record_flow(_store(host), InstanceId(handle.id))


async def _unread(host: Host, info: FlowInfo) -> Sequence[Letter]:
    return await _store(host).letters(info.id, after=0, limit=_UNREAD_MAX)


def _store(host: Host) -> InstanceStore:
    store = host.driver.instances
    assert store is not None
    return store


def document_of(info: FlowInfo, *, with_input: bool = False) -> dict[str, Any]:
    """A flow as one flat record; its input may be large, and is shown to those who ask."""
    document = asdict(info) | {"stuck": info.stuck}
    if not with_input:
        del document["input"]
    return document
