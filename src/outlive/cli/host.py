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
    "alive": "ALIVE",
    "draining": "DRAINING",
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

    emit_rows(invocation.output, "hosts", [asdict(info) for info in signals.run(ask)], _COLUMNS)
