"""``outlive lease``: look at leases and break them.

Owns the reading verbs and the shape of a record in output; owning verbs join from their own
modules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from outlive.cli import audit, signals
from outlive.cli.invocation import Invocation, current, global_options
from outlive.cli.lease_own import acquire, release
from outlive.cli.lease_run import run
from outlive.cli.lease_watch import watch
from outlive.cli.output import emit_document, emit_fields, emit_line, emit_rows, say
from outlive.errors import LeaseNotFound, UsageError
from outlive.leases.info import LeaseInfo
from outlive.leases.leases import Leases
from outlive.model.lease import HISTORY_MAX, LIST_LIMIT_MAX, Tenancy
from outlive.names import check_key, check_reason

_COLUMNS = {
    "key": "KEY",
    "slot": "SLOT",
    "owner": "OWNER",
    "token": "TOKEN",
    "active": "ACTIVE",
    "remaining_s": "LEFT",
    "waiters": "WAITERS",
}
_HISTORY_COLUMNS = {
    "token": "TOKEN",
    "owner": "OWNER",
    "acquired_at": "ACQUIRED",
    "ended_at": "ENDED",
    "ended": "HOW",
    "detail": "DETAIL",
}


@click.group()
def lease() -> None:
    """Acquire, inspect and break leases."""


for command in (acquire, release, run, watch):
    lease.add_command(command)


@lease.command("ls")
@click.option("--prefix", default="", help="Only keys with this prefix.")
@click.option("--owner", help="Only leases of this owner or host name.")
@click.option("--active/--all", default=True, help="Owned leases only (default), or free keys too.")
@click.option(
    "--limit",
    type=click.IntRange(1, LIST_LIMIT_MAX),
    default=100,
    show_default=True,
    help="Page size.",
)
@click.option("--after", help="Continue after this key, the last of the previous page.")
@global_options
def list_leases(
    prefix: str, owner: str | None, active: bool, limit: int, after: str | None
) -> None:
    """List leases in key order, one page at a time."""
    invocation = current()

    async def work(_: signals.Signals) -> list[LeaseInfo]:
        async with invocation.host() as host:
            return await host.leases.list(
                prefix=prefix, owner=owner, active=active, after=after, limit=limit
            )

    found = signals.run(work)
    rows = [asdict(info) for info in found]
    more = found[-1].key if len(found) >= limit else None
    if invocation.output == "json":
        emit_document({"leases": rows, "next_after": more})
    else:
        emit_rows(invocation.output, "leases", rows, _columns(found))
    if more is not None:
        say(f"there may be more: --after {more!r}")


@lease.command()
@click.argument("key")
@click.option("--history", is_flag=True, help="Add the previous owners.")
@click.option("--raw", is_flag=True, help="Show the stored records of the backend.")
@global_options
def show(key: str, history: bool, raw: bool) -> None:
    """Show one lease: its owner, metadata, state and waiters; for a semaphore, every slot.

    With --raw, show the stored records with the field names of the backend. They are for debugging
    and follow the schema of the driver: scripts should read the output without --raw.
    """
    invocation = current()
    if raw:
        if history:
            raise UsageError("give --raw or --history, not both")
        _show_raw(invocation, key)
        return

    async def work(_: signals.Signals) -> tuple[list[LeaseInfo], list[Tenancy]]:
        async with invocation.host() as host:
            slots = await slots_of(host.leases, key)
            return slots, await host.leases.history(key, limit=HISTORY_MAX) if history else []

    slots, entries = signals.run(work)
    rows = [asdict(info) for info in slots]
    document: dict[str, Any] = {"key": key, "slots": rows}
    if history:
        document["history"] = [asdict(entry) for entry in entries]
    if invocation.output == "json":
        emit_document(document)
    elif invocation.output == "jsonl":
        emit_line(document)
    else:
        for row in rows:
            emit_fields("table", row)
        if history:
            click.echo()
            emit_rows("table", "history", document["history"], _HISTORY_COLUMNS)


def _show_raw(invocation: Invocation, key: str) -> None:
    async def work(_: signals.Signals) -> list[dict[str, Any]]:
        async with invocation.host() as host:
            return await host.leases.raw(key)

    records = signals.run(work)
    if not records:
        raise LeaseNotFound(key)
    if invocation.output == "json":
        emit_document({"key": key, "raw": records})
    elif invocation.output == "jsonl":
        emit_line({"key": key, "raw": records})
    else:
        for number, record in enumerate(records):
            if number:
                click.echo()
            emit_fields("table", record)


@lease.command("history")
@click.argument("key")
@click.option(
    "--limit",
    default=HISTORY_MAX,
    show_default=True,
    help="Maximum number of entries, newest first.",
)
@global_options
def show_history(key: str, limit: int) -> None:
    """Show the owners of a lease, newest first: token, from, to, and the reason of the end."""
    invocation = current()

    async def work(_: signals.Signals) -> list[Tenancy]:
        async with invocation.host() as host:
            entries = await host.leases.history(key, limit=limit)
            if not entries:
                await slots_of(host.leases, key)
            return entries

    rows = [asdict(entry) for entry in signals.run(work)]
    emit_rows(invocation.output, "history", rows, _HISTORY_COLUMNS)


@lease.command("break")
@click.argument("key")
@click.option("--reason", required=True, help="Reason, stored in the history.")
@global_options
def break_lease(key: str, reason: str) -> None:
    """End a lease, regardless of its owner. Later writes of the owner are fenced.

    The owner may continue until it notices, at the latest at its next renewal.
    """
    invocation = current()
    check_reason(reason)
    broken = signals.run(lambda _: _break(invocation, key, reason))
    rows = [asdict(info) for info in broken]
    if invocation.output == "table":
        if rows:
            emit_rows("table", "broken", rows, _columns(broken))
    else:
        emit_rows(invocation.output, "broken", rows, _COLUMNS)
    if not rows:
        say(f"lease {key!r} had no owner; nothing was broken")


async def _break(invocation: Invocation, key: str, reason: str) -> list[LeaseInfo]:
    async with invocation.host() as host:
        await audit.record(host, "lease break", check_key(key))
        return await host.leases.break_lease(key, reason=reason)


async def slots_of(leases: Leases, key: str) -> list[LeaseInfo]:
    """Every slot of ``key``.

    Raises:
        LeaseNotFound: The key was never granted.
    """
    # A key sorts before every longer key that starts with it, and a page ends between keys.
    page = await leases.list(prefix=check_key(key), active=False, limit=1)
    slots = [info for info in page if info.key == key]
    if not slots:
        raise LeaseNotFound(key)
    return slots


def _columns(found: Sequence[LeaseInfo]) -> dict[str, str]:
    # Most keys are locks; the slot is worth its width only where there is a semaphore.
    semaphores = any(info.limit > 1 for info in found)
    return {name: text for name, text in _COLUMNS.items() if name != "slot" or semaphores}
