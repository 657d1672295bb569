"""``outlive migrate``: bring the schema of a store to this release, or ask whether it must be."""

from __future__ import annotations

import click

from outlive.cli import signals
from outlive.cli.invocation import Invocation, current, global_options
from outlive.cli.output import emit_fields, say


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; exit 78 if a migration is needed.")
@global_options
def migrate(check: bool) -> None:
    """Bring the schema of the store to this release, under a lock.

    Hosts of the previous release can keep running, because a schema serves that release as well.
    """
    invocation = current()
    signals.run(lambda _: _check(invocation) if check else _migrate(invocation))


async def _migrate(invocation: Invocation) -> None:
    target = invocation.target(migrate=True)
    done = await target.factory.migrate(target.location, target.context)
    changed = done.before != done.after
    emit_fields(
        invocation.output,
        {
            "url": str(target.location),
            "before": done.before,
            "after": done.after,
            "changed": changed,
        },
    )
    say("the schema was migrated" if changed else "the schema is up to date")


async def _check(invocation: Invocation) -> None:
    # Opening judges the schema and, told not to migrate, refuses one that is not this release's.
    target = invocation.target(migrate=False, create=False)
    async with invocation.open(target):
        emit_fields(invocation.output, {"url": str(target.location), "up_to_date": True})
