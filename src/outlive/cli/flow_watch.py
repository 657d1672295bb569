"""``outlive flow watch``: see what happens to one flow as it happens, until it ends."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import asdict
from typing import Any

import click

from outlive.cli import errors, signals
from outlive.cli.flow_words import commit_row, outcome_lines
from outlive.cli.invocation import Invocation, current, global_options, interval_option
from outlive.cli.output import cell, clean, emit_document, emit_line
from outlive.errors import FlowError, StoreUnavailable
from outlive.flows.info import FlowInfo
from outlive.flows.recording import read_rows
from outlive.host import Host
from outlive.model.instance import FINAL, InstanceStatus

_CODES = {
    InstanceStatus.COMPLETED: errors.OK,
    InstanceStatus.FAILED: errors.FLOW_FAILED,
    InstanceStatus.CANCELLED: errors.FLOW_CANCELLED,
    InstanceStatus.TERMINATED: errors.FLOW_TERMINATED,
}


@click.command()
@click.argument("flow_id", metavar="FLOW")
@interval_option
@global_options
@click.pass_context
def watch(context: click.Context, /, flow_id: str, interval_s: float) -> None:
    """Show each commit of a flow as it is made, and how the flow ends.

    Exits 0 if it completed, 10 if it failed, 11 if it was cancelled and 12 if it was terminated.
    """
    invocation = current()

    async def look(_: signals.Signals) -> FlowInfo:
        async with invocation.host() as host:
            return await _Watch(invocation, host, flow_id).run(interval_s)

    ended = signals.run(look)
    _tell_end(invocation, ended)
    context.exit(_CODES[ended.status])


class _Watch:
    """One flow, seen again and again."""

    def __init__(self, invocation: Invocation, host: Host, flow_id: str) -> None:
        self._invocation = invocation
        self._handle = host.flows.get(flow_id)
        store = host.driver.instances
        assert store is not None
        self._store = store
        self._version = 0
        self._status: InstanceStatus | None = None

    async def run(self, interval_s: float) -> FlowInfo:
        """Show what happens until the flow has ended.

        Raises:
            FlowNotFound: There is none of this id.
        """
        away = False
        while True:
            try:
                info = await self._look()
                away = False
                if info.status in FINAL:
                    return info
                await self._pause(interval_s)
            except StoreUnavailable as error:
                if self._status is None:
                    raise
                if not away:
                    self._invocation.complain(f"{error}; still watching")
                away = True
                await asyncio.sleep(interval_s)

    async def _look(self) -> FlowInfo:
        info = await self._handle.status()
        rows = await read_rows(self._store, self._handle.id, after=self._version)
        known = info
        if rows and rows[-1].version > info.version:
            # A row that came since may be the end, whose error stands beside the history. What is
            # returned stays the status from before the rows: behind these there may be more.
            known = await self._handle.status()
        for row in rows:
            self._tell("commit", commit_row(row, known))
            self._version = row.version
        if info.status is not self._status and info.status not in FINAL:
            self._tell("status", {"at": info.updated_at, "status": info.status.value})
        self._status = info.status
        return info

    async def _pause(self, interval_s: float) -> None:
        """Wait for the next look; less if the flow ends."""
        with contextlib.suppress(TimeoutError, FlowError):
            await self._handle.result(timeout=interval_s)

    def _tell(self, event: str, row: dict[str, Any]) -> None:
        if self._invocation.output == "jsonl":
            emit_line({"event": event, **row})
        elif self._invocation.output == "table":
            what = row["what"] if event == "commit" else f"status: {row['status']}"
            click.echo(f"{cell(row['at'])}  {cell(row.get('host'))}  {clean(what)}")
            sys.stdout.flush()


def _tell_end(invocation: Invocation, info: FlowInfo) -> None:
    document = asdict(info)
    if invocation.output == "json":
        emit_document(document)
    elif invocation.output == "jsonl":
        emit_line({"event": "ended", **document})
    else:
        first, *more = outcome_lines(info) or ("-",)
        click.echo(f"{cell(info.ended_at)}  {info.status.value}: {cell(first)}")
        for line in more:
            click.echo(f"  {cell(line)}")
