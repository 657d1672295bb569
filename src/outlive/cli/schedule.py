"""``outlive schedule``: look at schedules and steer them.

Schedules are made by programs, with ``App.cron`` and ``host.schedules``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

import click

from outlive.cli import audit, signals
from outlive.cli.invocation import current, global_options
from outlive.cli.output import emit_document, emit_fields, emit_rows, say
from outlive.model.schedule import LIST_MAX, check_schedule
from outlive.work.schedules import ScheduleInfo, Schedules

_COLUMNS = {
    "name": "NAME",
    "when": "WHEN",
    "tz": "TZ",
    "queue": "QUEUE",
    "paused": "PAUSED",
    "next_at": "NEXT",
    "last_at": "LAST",
    "fired": "FIRED",
}


@click.group()
def schedule() -> None:
    """Show, pause, resume, run and remove schedules."""


@schedule.command("ls")
@click.option(
    "--limit",
    type=click.IntRange(1, LIST_MAX),
    default=100,
    show_default=True,
    help="Page size.",
)
@click.option("--after", help="Continue after this name, the last of the previous page.")
@global_options
def list_schedules(limit: int, after: str | None) -> None:
    """List schedules by name, one page at a time, with their ticks and queues."""
    invocation = current()
    found = _ask(lambda schedules: schedules.list(after=after, limit=limit))
    rows = [_row(info) for info in found]
    more = found[-1].name if len(found) >= limit else None
    if invocation.output == "json":
        emit_document({"schedules": rows, "next_after": more})
    else:
        emit_rows(invocation.output, "schedules", rows, _COLUMNS)
    if more is not None:
        say(f"there may be more: --after {more!r}")


@schedule.command()
@click.argument("name")
@global_options
def show(name: str) -> None:
    """Show one schedule: when it ticks, what it enqueues, and its last and next tick."""
    emit_fields(current().output, _row(_ask(lambda schedules: schedules.get(name))))


@schedule.command()
@click.argument("name")
@global_options
def pause(name: str) -> None:
    """Pause a schedule: it does not fire until resume."""
    paused = _act("pause", name, lambda schedules: schedules.pause(name))
    emit_fields(current().output, _row(paused))


@schedule.command()
@click.argument("name")
@global_options
def resume(name: str) -> None:
    """Resume a paused schedule; it fires again at its next tick."""
    resumed = _act("resume", name, lambda schedules: schedules.resume(name))
    emit_fields(current().output, _row(resumed))


@schedule.command()
@click.argument("name")
@global_options
def run(name: str) -> None:
    """Enqueue a job of a schedule now; its ticks do not change."""
    job = _act("run", name, lambda schedules: schedules.run_now(name))
    emit_fields(current().output, {"id": job.id, "entry": job.entry.value})


@schedule.command()
@click.argument("name")
@global_options
def rm(name: str) -> None:
    """Remove a schedule. If an app defines it, the next host of that app creates it again."""
    _act("rm", name, lambda schedules: schedules.delete(name))
    say(f"schedule {name!r} is removed")


def _ask(question: Callable[[Schedules], Awaitable[Any]]) -> Any:
    invocation = current()

    async def ask(_: signals.Signals) -> Any:
        async with invocation.host() as host:
            return await question(host.schedules)

    return signals.run(ask)


def _act(verb: str, name: str, act: Callable[[Schedules], Awaitable[Any]]) -> Any:
    invocation = current()

    async def record_and_act(_: signals.Signals) -> Any:
        async with invocation.host() as host:
            schedules = host.schedules
            await audit.record(host, f"schedule {verb}", check_schedule(name))
            return await act(schedules)

    return signals.run(record_and_act)


def _row(info: ScheduleInfo) -> dict[str, Any]:
    when = info.cron if info.cron is not None else f"every {info.every_s:g} s"
    return {"name": info.name, "when": when, **asdict(info)}
