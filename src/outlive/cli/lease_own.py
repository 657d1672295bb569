"""``outlive lease acquire`` and ``release``: owned by one process, given up by another.

The lease lives in the store alone: nobody renews it, and its ttl ends it if nobody releases it.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

import click

from outlive.cli import signals
from outlive.cli.invocation import SECONDS, Invocation, Seconds, Target, current, global_options
from outlive.cli.output import emit_fields, say
from outlive.errors import UsageError
from outlive.leases.acquiring import Acquirer
from outlive.leases.ownership import Ownership
from outlive.leases.requesting import Requests
from outlive.leases.waiting import Waiters
from outlive.model.lease import Grant
from outlive.model.options import duration, seconds
from outlive.names import Owner, Token, check_key
from outlive.ports.driver import Driver
from outlive.telemetry import Telemetry


class Timeout(Seconds):
    """Seconds to wait, or ``forever``."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | None:
        """Read a duration, or ``forever`` as ``None``."""
        if value == "forever":
            return None
        try:
            return seconds(duration(value), "timeout")
        except (ValueError, UsageError):
            self.fail(f"{value!r} is neither a number of seconds nor 'forever'", param, ctx)


timeout_option = click.option(
    "--timeout",
    type=Timeout(),
    default="0",
    show_default=True,
    help="Seconds to wait for the lease, or 'forever'.",
)

limit_option = click.option(
    "--limit",
    default=1,
    show_default=True,
    help="Number of slots of the key; more than 1 makes a semaphore.",
)


@click.command()
@click.argument("key")
@click.option("--ttl", type=SECONDS, help="Seconds until the lease expires.")
@timeout_option
@limit_option
@global_options
def acquire(key: str, ttl: float | None, timeout: float | None, limit: int) -> None:
    """Acquire a lease for its ttl and leave it owned; print its token and owner.

    The lease is not renewed. Release it early with `outlive lease release`. To own a lease while a
    command runs, use `outlive lease run`.
    """
    invocation = current()
    target = invocation.target()

    async def work(_: signals.Signals) -> dict[str, Any]:
        async with invocation.open(target) as driver:
            return await _acquire(target, driver, key, ttl=ttl, timeout=timeout, limit=limit)

    emit_fields(invocation.output, signals.run(work))


async def _acquire(
    target: Target,
    driver: Driver,
    key: str,
    *,
    ttl: float | None,
    timeout: float | None,
    limit: int,
) -> dict[str, Any]:
    runtime, settings = target.runtime, target.settings
    host_name = settings.name or socket.gethostname()
    requests = Requests(
        driver.capabilities,
        settings.leases,
        host_name=host_name,
        host_id=target.context.host,
        metadata={"host": host_name, "instance": target.context.host, "tool": "outlive"},
    )
    plan = requests.plan(ttl, {"auto_renew": False})
    request = requests.request(key, plan, None, limit=limit, resume=False)
    ownership = Ownership(runtime, driver.leases, host=host_name, telemetry=Telemetry())
    waiters = Waiters(driver.wakeups)
    try:
        # The grant never enters the books of ``ownership``, so closing does not release it.
        acquired = await Acquirer(driver.leases, ownership, waiters).wait_for(
            request, plan, timeout
        )
    finally:
        waiters.close()
        await ownership.close(None)
    grant = acquired.grant
    left_s = acquired.asked_at + plan.ttl_s - runtime.clock.monotonic()
    return {
        "key": grant.key,
        "slot": grant.slot,
        "token": grant.token,
        "owner": grant.owner,
        "ttl_s": plan.ttl_s,
        "expires_at": runtime.clock.now() + timedelta(seconds=left_s),
    }


@click.command()
@click.argument("key")
@click.option("--owner", required=True, help="Owner that `acquire` printed.")
@click.option("--token", required=True, type=int, help="Token that `acquire` printed.")
@click.option("--slot", default=0, show_default=True, help="Slot that `acquire` printed.")
@global_options
def release(key: str, owner: str, token: int, slot: int) -> None:
    """Release a lease that `acquire` left owned. Exits 76 if it has already ended."""
    invocation = current()
    grant = Grant(check_key(key), slot, Owner(owner), Token(token), version=0, ttl_us=0)
    signals.run(lambda _: _release(invocation, grant))
    say(f"lease {key!r} is released")


async def _release(invocation: Invocation, grant: Grant) -> None:
    async with invocation.open(invocation.target(create=False)) as driver:
        await driver.leases.release(grant)
