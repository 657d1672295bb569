"""``outlive lease watch``: a line each time a lease changes hands, is renewed or ends.

It polls and compares versions, so that it works on every backend; changes that follow each other
within one interval are seen as one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from outlive.cli import signals
from outlive.cli.invocation import Invocation, current, global_options, interval_option
from outlive.cli.output import cell, emit_line
from outlive.errors import StoreUnavailable, UsageError
from outlive.leases.info import LeaseInfo
from outlive.leases.leases import Leases
from outlive.model.lease import LIST_LIMIT_MAX
from outlive.names import check_key
from outlive.runtime.runtime import Runtime

# What is remembered of each key to notice a change is small, but a watch runs for days.
KEYS_MAX = 10_000

_Seen = dict[tuple[str, int], LeaseInfo]


@click.command()
@click.argument("key", required=False)
@click.option("--prefix", help="Watch every key with this prefix.")
@interval_option
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many lines.")
@global_options
def watch(key: str | None, prefix: str | None, interval_s: float, count: int | None) -> None:
    """Print a line each time a lease changes. Without KEY or --prefix: all leases.

    Events: seen (at the start), acquired, renewed, freed (released or broken), expired.
    """
    invocation = current()
    if invocation.output == "json":
        raise UsageError("a watch does not end, so it cannot be one JSON document: use -o jsonl")
    if key is not None and prefix is not None:
        raise UsageError("give a KEY or a --prefix, not both")
    wanted = check_key(key) if key is not None else prefix or ""
    signals.run(
        lambda _: _watch(invocation, wanted, exact=key is not None, pause_s=interval_s, count=count)
    )


async def _watch(
    invocation: Invocation, prefix: str, *, exact: bool, pause_s: float, count: int | None
) -> None:
    clock, seen, printed = Runtime().clock, _Seen(), 0
    away = False
    async with invocation.host() as host:
        first = True
        while True:
            try:
                now = await _look(host.leases, prefix, exact=exact)
            except StoreUnavailable as error:
                if not away:
                    invocation.complain(f"{error}; still watching")
                away = True
            else:
                away = False
                for event in changes(seen, now, first=first):
                    _print(invocation.output, {"at": clock.now(), **event})
                    printed += 1
                    if printed == count:
                        return
                first = False
            await clock.sleep(pause_s)


async def _look(leases: Leases, prefix: str, *, exact: bool) -> list[LeaseInfo]:
    if exact:
        page = await leases.list(prefix=prefix, active=False, limit=1)
        return [info for info in page if info.key == prefix]
    found: list[LeaseInfo] = []
    after: str | None = None
    while len(found) < KEYS_MAX:
        page = await leases.list(prefix=prefix, active=False, after=after, limit=LIST_LIMIT_MAX)
        found += page
        if len(page) < LIST_LIMIT_MAX:
            return found
        after = page[-1].key
    raise UsageError(f"more than {KEYS_MAX} leases to watch: narrow it down with --prefix")


def changes(seen: _Seen, now: list[LeaseInfo], *, first: bool) -> Iterator[dict[str, Any]]:
    """What differs between ``seen`` and ``now``, as events; ``seen`` is brought up to date."""
    for info in now:
        place = info.key, info.slot
        before = seen.get(place)
        seen[place] = info
        event = "seen" if first else _event(before, info)
        if event is not None:
            yield {"event": event, **asdict(info)}


def _event(before: LeaseInfo | None, info: LeaseInfo) -> str | None:
    if before is not None and (before.version, before.owner, before.active) == (
        info.version,
        info.owner,
        info.active,
    ):
        return None
    if info.active:
        same = before is not None and before.token == info.token and before.owner == info.owner
        return "renewed" if same else "acquired"
    return "freed" if info.owner is None else "expired"


def _print(output: str, event: dict[str, Any]) -> None:
    if output == "jsonl":
        emit_line(event)
        return
    owner = f" owner {cell(event['owner'])}" if event["owner"] is not None else ""
    until = f" until {cell(event['expires_at'])}" if event["active"] else ""
    # The text is flushed line by line: somebody watches it live.
    click.echo(
        f"{cell(event['at'])} {event['event']} {cell(event['key'])} token {event['token']}"
        f" version {event['version']}{owner}{until}"
    )
    sys.stdout.flush()
