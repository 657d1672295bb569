"""``outlive work top``: watch the queues live: what waits, what runs, and how fast it goes."""

from __future__ import annotations

import sys
from typing import Any

import click

from outlive.cli import signals
from outlive.cli.invocation import Invocation, current, global_options, interval_option
from outlive.cli.output import cell, emit_line, emit_rows
from outlive.errors import StoreUnavailable, UsageError
from outlive.host import Host
from outlive.model.job import JobState
from outlive.runtime.runtime import Runtime
from outlive.work.work import QueueInfo

_COLUMNS = {
    "queue": "QUEUE",
    "mode": "MODE",
    "ready": "READY",
    "claimed": "CLAIMED",
    "scheduled": "SCHEDULED",
    "retrying": "RETRYING",
    "dead": "DEAD",
    "ended_per_s": "ENDED/S",
    "oldest_ready_s": "OLDEST S",
}


def queue_row(queue: QueueInfo) -> dict[str, Any]:
    """A queue as one flat record."""
    return {
        "queue": queue.name,
        "mode": queue.mode.value,
        **{state.value: queue.counts.get(state, 0) for state in JobState},
        "oldest_ready_s": queue.oldest_ready_s,
        "concurrency": queue.concurrency,
        "rate": queue.rate,
        "per_s": queue.per_s,
        "limits_by": queue.limits_by,
    }


@click.command()
@click.option("--queue", help="Only this queue.")
@click.option("--once", is_flag=True, help="Show the present state once and end.")
@interval_option
@global_options
def top(queue: str | None, once: bool, interval_s: float) -> None:
    """Watch the queues: jobs by state, and jobs that end per second."""
    invocation = current()
    if invocation.output == "json" and not once:
        raise UsageError(
            "a watch does not end, so it cannot be one JSON document: use -o jsonl or --once"
        )

    async def watch(_: signals.Signals) -> None:
        async with invocation.host() as host:
            look = _Looks(host, queue, interval_s)
            if once:
                emit_rows(invocation.output, "queues", await look.now(), _COLUMNS)
            else:
                await _watch(invocation, look)

    signals.run(watch)


class _Looks:
    """Looks at the queues, each compared with the one before."""

    def __init__(self, host: Host, queue: str | None, interval_s: float) -> None:
        self._host = host
        self._queue = queue
        self._before: dict[str, int] = {}
        self._asked_at: float | None = None
        self.clock = Runtime().clock
        self.interval_s = interval_s

    async def now(self) -> list[dict[str, Any]]:
        """Every queue that is watched, with the jobs that ended per second since the last look."""
        found = await self._host.work.queues()
        asked_at, before_at = self.clock.monotonic(), self._asked_at
        rows: list[dict[str, Any]] = []
        for each in found:
            if self._queue is not None and each.name != self._queue:
                continue
            row = queue_row(each)
            ended = sum(row[name] for name in ("done", "dead", "cancelled"))
            rate = None
            if before_at is not None and each.name in self._before:
                # Pruning takes away what had ended; that is no work undone.
                rate = max(0, ended - self._before[each.name]) / (asked_at - before_at)
            self._before[each.name] = ended
            rows.append({**row, "ended_per_s": rate})
        self._asked_at = asked_at
        return rows


async def _watch(invocation: Invocation, look: _Looks) -> None:
    if invocation.output == "jsonl" or not sys.stdout.isatty():
        while True:
            rows = await _patiently(invocation, look)
            if invocation.output == "jsonl":
                for row in rows:
                    emit_line({"at": look.clock.now(), **row})
            else:
                emit_rows("table", "queues", rows, _COLUMNS)
            sys.stdout.flush()
            await look.clock.sleep(look.interval_s)
    from rich.live import Live

    with Live(screen=True, auto_refresh=False) as screen:
        while True:
            screen.update(_picture(await _patiently(invocation, look)), refresh=True)
            await look.clock.sleep(look.interval_s)


async def _patiently(invocation: Invocation, look: _Looks) -> list[dict[str, Any]]:
    """The next look, also when the store is away for a while."""
    away = False
    while True:
        try:
            return await look.now()
        except StoreUnavailable as error:
            if not away:
                invocation.complain(f"{error}; still watching")
            away = True
            await look.clock.sleep(look.interval_s)


def _picture(rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in _COLUMNS.values():
        table.add_column(heading)
    for row in rows:
        # Text, not str: a queue named "[red]" is a queue, not markup.
        table.add_row(*(Text(cell(row.get(field))) for field in _COLUMNS))
    return table
