"""``outlive host``: the living hosts of the namespace, and what each of them owns."""

from __future__ import annotations

from dataclasses import asdict

import click

from outlive.cli import signals
from outlive.cli.invocation import current, global_options
from outlive.cli.output import emit_rows
from outlive.runtime.hosts import HOSTS_MAX, HostInfo

_COLUMNS = {
    "name": "NAME",
    "state": "STATE",
    "version": "VERSION",
    "pid": "PID",
    "hostname": "MACHINE",
    "since": "SINCE",
    "heartbeat_age_s": "HEARTBEAT S",
    "leases": "LEASES",
    "jobs": "JOBS",
    "id": "ID",
}


@click.group()
def host() -> None:
    """List the processes that use the store."""


@host.command("ls")
@click.option(
    "--limit",
    type=click.IntRange(1, HOSTS_MAX),
    default=HOSTS_MAX,
    show_default=True,
    help="Maximum number to show.",
)
@global_options
def list_hosts(limit: int) -> None:
    """List the hosts with a session, the oldest first, and how many leases and jobs each owns."""
    invocation = current()

    async def ask(_: signals.Signals) -> list[HostInfo]:
        async with invocation.host() as connected:
            return await connected.hosts.list(limit=limit)

    rows = [
        {**asdict(info), "state": state_of(info), "heartbeat_age_s": round(info.heartbeat_age_s, 1)}
        for info in signals.run(ask)
    ]
    emit_rows(invocation.output, "hosts", rows, _COLUMNS)


def state_of(info: HostInfo) -> str:
    """What a person looks for first."""
    if not info.alive:
        return "dead"
    return "draining" if info.draining else "alive"
