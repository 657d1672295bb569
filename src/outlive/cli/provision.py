"""``outlive provision``: make what an Azure driver keeps its leases in, or delete it."""

from __future__ import annotations

from typing import Any, cast

import click

from outlive.cli import signals
from outlive.cli.invocation import Invocation, Target, current, global_options
from outlive.cli.output import emit_fields, say
from outlive.errors import ConfigurationError, UsageError


@click.command()
@click.argument("backend", type=click.Choice(["azblob", "cosmos"]))
@click.option("--remove", is_flag=True, help="Delete the container, with all leases in it.")
@click.option("--force", is_flag=True, help="With --remove: also while a lease is owned.")
@global_options
def provision(backend: str, remove: bool, force: bool) -> None:
    """Create the container of the URL (and its database, on Cosmos DB), or delete the container.

    The account must exist, and the caller must be allowed to do it; if not, the error names the
    command of `az` that does the same. Repeatable. A database is not deleted.
    """
    invocation = current()
    target = invocation.target(create=not remove)
    if target.location.scheme != backend:
        raise ConfigurationError(
            f"the URL is {target.location.scheme}://, not {backend}://: give --url, or set "
            "OUTLIVE_URL"
        )
    signals.run(lambda _: _provision(invocation, target, remove=remove, force=force))


async def _provision(invocation: Invocation, target: Target, *, remove: bool, force: bool) -> None:
    async with invocation.open(target) as driver:
        if remove:
            owned = await driver.leases.list(
                prefix="", owner=None, active=True, after=None, limit=1
            )
            if owned and not force:
                raise UsageError(
                    f"lease {owned[0].key!r} is owned by {owned[0].owner}: stop its host first, or "
                    "say --force"
                )
            await cast("Any", driver).remove()
    emit_fields(invocation.output, {"url": str(target.location), "exists": not remove})
    say("the container is deleted" if remove else "the container is ready")
