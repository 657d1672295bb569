"""``outlive work``: look at jobs and queues.

Owns the reading verbs and the shape of a job in output; the verbs that change something join from
their own modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

import click

from outlive.cli import signals
from outlive.cli.invocation import current, global_options
from outlive.cli.output import clean_lines, emit_document, emit_fields, emit_line, emit_rows, say
from outlive.cli.work_claim import claim, complete, fail, release
from outlive.cli.work_enqueue import enqueue
from outlive.cli.work_operate import cancel, check_known, drain, limit, pause, resume, retry
from outlive.cli.work_run import run
from outlive.cli.work_top import queue_row, top
from outlive.model.job import JobState
from outlive.serialization import decode_plain
from outlive.work.job import JobInfo
from outlive.work.operations import PAGE_MAX

_COLUMNS = {
    "id": "ID",
    "queue": "QUEUE",
    "state": "STATE",
    "attempts": "FAILURES",
    "token": "TOKEN",
    "claimed_by": "CLAIMED BY",
    "claimed_at": "CLAIMED AT",
}
_UNCLAIMED = {"token": None, "claimed_by": None, "claimed_at": None}
_DEAD_COLUMNS = {
    "id": "ID",
    "queue": "QUEUE",
    "attempts": "FAILURES",
    "losses": "LOSSES",
    "ended_at": "ENDED",
    "reason": "REASON",
}
_ATTEMPT_COLUMNS = {
    "token": "TOKEN",
    "outcome": "OUTCOME",
    "worker": "WORKER",
    "claimed_at": "CLAIMED AT",
    "ended_at": "ENDED",
    "reason": "REASON",
}
_QUEUE_COLUMNS = {
    "queue": "QUEUE",
    "mode": "MODE",
    "ready": "READY",
    "claimed": "CLAIMED",
    "scheduled": "SCHEDULED",
    "retrying": "RETRYING",
    "done": "DONE",
    "dead": "DEAD",
    "cancelled": "CANCELLED",
    "oldest_ready_s": "OLDEST S",
}

STATES = [state.value for state in JobState]


@click.group()
def work() -> None:
    """Enqueue, claim, inspect and operate jobs."""


for command in (
    *(enqueue, claim, complete, fail, release, run),
    *(retry, cancel, pause, resume, drain, limit, top),
):
    work.add_command(command)


@work.command("ls")
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--state", type=click.Choice(STATES), multiple=True, help="Only jobs in this state.")
@click.option("--unique-key", help="Only the job with this unique key.")
@click.option("--ordering-key", help="Only jobs with this ordering key.")
@click.option(
    "--limit",
    type=click.IntRange(1, PAGE_MAX),
    default=100,
    show_default=True,
    help="Page size.",
)
@click.option("--after", help="Continue after this cursor, the last of the previous page.")
@global_options
def list_jobs(
    queue: str | None,
    state: tuple[str, ...],
    unique_key: str | None,
    ordering_key: str | None,
    limit: int,
    after: str | None,
) -> None:
    """List jobs in order of enqueueing, one page at a time."""
    found, more = _page(
        queue=queue,
        state=state or None,
        unique_key=unique_key,
        ordering_key=ordering_key,
        limit=limit,
        after=after,
    )
    rows = [asdict(info) for info in found]
    if current().output == "table":
        # Those of a claim that has ended read as if somebody had the job.
        rows = [row if row["state"] == JobState.CLAIMED else {**row, **_UNCLAIMED} for row in rows]
    _emit_page(rows, more, _COLUMNS)


@work.command()
@click.option("--queue", help="Only jobs of this queue.")
@click.option(
    "--limit",
    type=click.IntRange(1, PAGE_MAX),
    default=100,
    show_default=True,
    help="Page size.",
)
@click.option("--after", help="Continue after this cursor, the last of the previous page.")
@global_options
def dead(queue: str | None, limit: int, after: str | None) -> None:
    """List the dead letters: jobs that failed, were lost too often or expired, and why.

    `outlive work retry` starts them again.
    """
    found, more = _page(queue=queue, state=JobState.DEAD, limit=limit, after=after)
    rows = [{**asdict(info), "reason": reason_of(info.error)} for info in found]
    _emit_page(rows, more, _DEAD_COLUMNS)


@work.command()
@click.argument("job")
@click.option("--traceback", is_flag=True, help="Add the traceback of its error.")
@global_options
def show(job: str, traceback: bool) -> None:
    """Show one job: state, claim, payload, result, and the errors of its attempts."""
    invocation = current()

    async def ask(_: signals.Signals) -> dict[str, Any]:
        async with invocation.host() as host:
            info = await host.work.get(job)
            attempts = await host.work.attempts(job)
            return {**asdict(info), "history": [_attempt_row(asdict(each)) for each in attempts]}

    document = signals.run(ask)
    if invocation.output != "table":
        (emit_document if invocation.output == "json" else emit_line)(document)
        return
    history, error = document.pop("history"), document["error"]
    _for_people(document)
    emit_fields("table", document)
    if traceback and isinstance(error, Mapping):
        click.echo(f"\n{clean_lines(str(cast('Mapping[str, Any]', error).get('traceback', '')))}")
    if history:
        click.echo()
        emit_rows("table", "history", history, _ATTEMPT_COLUMNS)


@work.command()
@click.option("--queue", help="Only this queue.")
@global_options
def stats(queue: str | None) -> None:
    """Show every queue: mode, jobs by state, age of the oldest ready job; as JSON also limits."""
    invocation = current()

    async def ask(_: signals.Signals) -> list[dict[str, Any]]:
        async with invocation.host() as host:
            await check_known(host, queue)
            return [queue_row(each) for each in await host.work.queues()]

    rows = [row for row in signals.run(ask) if queue is None or row["queue"] == queue]
    emit_rows(invocation.output, "queues", rows, _QUEUE_COLUMNS)


def _page(**wanted: Any) -> tuple[list[JobInfo], str | None]:
    invocation = current()

    async def ask(_: signals.Signals) -> list[JobInfo]:
        async with invocation.host() as host:
            found = await host.work.list(**wanted)
            if not found:
                await check_known(host, wanted["queue"])
            return found

    found = signals.run(ask)
    return found, found[-1].cursor if len(found) >= wanted["limit"] else None


def _emit_page(rows: list[dict[str, Any]], more: str | None, columns: dict[str, str]) -> None:
    invocation = current()
    if invocation.output == "json":
        emit_document({"jobs": rows, "next_after": more})
    else:
        emit_rows(invocation.output, "jobs", rows, columns)
    if more is not None:
        say(f"there may be more: --after {more!r}")


def _for_people(document: dict[str, Any]) -> None:
    """Say in words what stands in the fields of a job, and leave out what programs need."""
    del document["cursor"], document["session"]
    document["error"] = reason_of(document["error"])
    # What the job does not say itself is taken from the handler that runs it.
    if "max_attempts" not in document["retry"]:
        document["max_attempts"] = "of its handler"
    document["retry"] = document["retry"] or "of its handler"


def reason_of(error: Any) -> str | None:
    """What went wrong, in one line."""
    if isinstance(error, Mapping):
        told = cast("Mapping[str, Any]", error)
        parts = (told.get("type"), told.get("message"))
        return ": ".join(str(part) for part in parts if part) or None
    return None if error is None else str(error)


def _attempt_row(attempt: dict[str, Any]) -> dict[str, Any]:
    attempt["error"] = decode_plain(attempt["error"])
    return {**attempt, "reason": reason_of(attempt["error"])}
