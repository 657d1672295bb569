"""``outlive work enqueue``: add jobs from the command line or from a file of JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from outlive.cli import signals
from outlive.cli.invocation import SECONDS, create_option, current, global_options
from outlive.cli.output import emit_fields, emit_rows, say
from outlive.errors import NotFound, UsageError
from outlive.flows.checking import near
from outlive.host import Host
from outlive.model.job import ENQUEUE_MAX, OnDuplicate
from outlive.model.retry import Retry
from outlive.work.job import Job

_COLUMNS = {"id": "ID", "queue": "QUEUE", "entry": "ENTRY"}


def json_value(text: str, what: str) -> Any:
    """The value of a JSON text that somebody typed.

    Raises:
        UsageError: It is none.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{what} is not valid JSON (a string needs quotes: '\"word\"'): {error}"
        ) from None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


@click.command()
@click.argument("queue")
@click.argument("payload", default="null")
@click.option("--lines", is_flag=True, help="Add one job for each line of stdin; PAYLOAD is '-'.")
@click.option("--id", "id_", help="Id of the job; a second job with this id is not added.")
@click.option(
    "--priority", default=0, show_default=True, help="Jobs of higher priority are claimed first."
)
@click.option("--delay", type=SECONDS, default=0.0, help="Seconds until the job may be claimed.")
@click.option("--at", help="Instant instead of a delay, in ISO 8601 with its offset.")
@click.option("--unique-key", help="Key of at most one live job in the queue.")
@click.option(
    "--on-duplicate",
    type=click.Choice([each.value for each in OnDuplicate]),
    default=OnDuplicate.REJECT.value,
    show_default=True,
    help="Action if a live job already has the unique key.",
)
@click.option("--ordering-key", help="Jobs with the same key run one at a time, in order.")
@click.option("--max-attempts", type=int, help="Failures after which the job is dead.")
@click.option("--retry", help="Retry policy as JSON, such as '{\"first\": 5}'.")
@click.option("--expires", type=SECONDS, help="Seconds after which an unclaimed job is dead.")
@click.option("--retention", type=SECONDS, help="Seconds to keep the job after its end.")
@click.option("--header", multiple=True, help="Header of the job, as NAME=VALUE.")
@create_option
@global_options
def enqueue(
    queue: str,
    payload: str,
    lines: bool,
    create: bool,
    id_: str | None,
    at: str | None,
    retry: str | None,
    **options: Any,
) -> None:
    """Add a job to QUEUE. PAYLOAD is JSON; '-' reads it from stdin.

    With --lines, up to 10,000 jobs are added in one step, all of them or none. The first job of a
    queue whose name is nearly that of another one needs --create.
    """
    invocation = current()
    header = options.pop("header")
    options["headers"] = _headers(header) if header else None
    options["at"] = None if at is None else instant(at)
    options["retry"] = None if retry is None else _retry(retry)
    options = {name: value for name, value in options.items() if value not in (None, 0.0)}
    if id_ is not None:
        options["id"] = id_
    payloads = _payloads(payload, lines=lines)

    async def add(_: signals.Signals) -> Sequence[Job[Any]]:
        async with invocation.host(create=create) as host:
            if not create:
                await _check_new(host, queue)
            if lines:
                return await host.work.enqueue_many(queue, payloads, **options)
            return [await host.work.enqueue(queue, payloads[0], **options)]

    jobs = signals.run(add)
    rows = [{"id": job.id, "queue": queue, "entry": job.entry.value} for job in jobs]
    for job in jobs:
        if job.payload_differs:
            say(f"job {job.id!r} exists with another payload, which stays")
    if lines:
        emit_rows(invocation.output, "jobs", rows, _COLUMNS)
    else:
        emit_fields(invocation.output, rows[0])


async def _check_new(host: Host, queue: str) -> None:
    """Refuse the first job of a queue whose name is nearly that of another one.

    Raises:
        NotFound: It names the nearest queue.
    """
    if not await host.work.list(queue=queue, limit=1):
        names = {info.name: info for info in await host.work.queues()}
        hint = near(queue, names)
        if queue not in names and hint:
            raise NotFound(f"no queue {queue!r} in this namespace{hint} (--create makes it)")


def _payloads(payload: str, *, lines: bool) -> list[Any]:
    if not lines:
        return [json_value(sys.stdin.read() if payload == "-" else payload, "the payload")]
    if payload != "-":
        raise UsageError("--lines reads stdin: give '-' as the payload")
    found: list[Any] = []
    for number, line in enumerate(sys.stdin, 1):
        if line.strip():
            found.append(json_value(line, f"line {number}"))
        if len(found) > ENQUEUE_MAX:
            raise UsageError(f"more than {ENQUEUE_MAX:,} jobs: send them in several calls")
    return found


def _retry(text: str) -> Retry:
    document = json_value(text, "--retry")
    return Retry().overridden(json.dumps(document))


def _headers(pairs: Sequence[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise UsageError(f"a header must be NAME=VALUE, not {pair!r}")
        headers[name] = value
    return headers


def instant(text: str, option: str = "--at") -> datetime:
    """The instant that somebody typed for ``option``.

    Raises:
        UsageError: It is none, or lacks its offset.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option} must be an instant such as 2030-01-31T03:00+01:00, not {text!r}"
        ) from None
    if at.tzinfo is None:
        raise UsageError(f"{option} needs an offset, or a Z for UTC: {text!r}")
    return at
