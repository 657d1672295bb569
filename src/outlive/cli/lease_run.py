"""``outlive lease run``: a command that runs only while a lease is owned.

The lease is released only after the last process of the command's group is gone, and the group is
stopped early enough that it is gone before the store would let somebody else in.
"""

from __future__ import annotations

import asyncio
import shlex

import click

from outlive.cli import errors, signals
from outlive.cli.child import Child, exit_code_of
from outlive.cli.invocation import SECONDS, Invocation, current, global_options
from outlive.cli.lease_own import limit_option, timeout_option
from outlive.errors import AcquireTimeout, LeaseHeld, StoreError, UsageError
from outlive.host import Host
from outlive.leases.events import Lost, Renewed
from outlive.leases.lease import Lease
from outlive.model.options import LeaseOptions, seconds
from outlive.names import check_key
from outlive.runtime.runtime import Runtime
from outlive.serialization import masked

# Most programs end within five seconds of a SIGTERM, and it costs a sixth of the default ttl.
STOP_GRACE_S = 5.0

# Of a command line, for people: without secrets that show as such, and cut.
_SHOWN_MAX = 200

# How often the deadline is looked at, should every event fail to arrive.
_LOOK_S = 1.0


class _Run(click.Command):
    """Knows whose option an unknown one probably is."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and say where the options of the command go."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            said = f"{error.message}; options of the command to run go after `--`"
            raise click.NoSuchOption(error.option_name, said, error.possibilities, ctx) from None


@click.command(cls=_Run)
@click.argument("key")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--ttl", type=SECONDS, help="Seconds until others take over if this machine dies.")
@timeout_option
@limit_option
@click.option(
    "--metadata",
    multiple=True,
    metavar="NAME=VALUE",
    help="Shown with the lease, beside the host, its pid and the command; repeatable.",
)
@click.option(
    "--stop-grace",
    type=SECONDS,
    default=STOP_GRACE_S,
    show_default=True,
    help="Seconds between SIGTERM and SIGKILL, limited to a third of the ttl.",
)
@global_options
def run(
    key: str,
    command: tuple[str, ...],
    ttl: float | None,
    timeout: float | None,
    limit: int,
    metadata: tuple[str, ...],
    stop_grace: float,
) -> None:
    """Own a lease while a command runs: outlive lease run KEY [OPTIONS] -- COMMAND [ARGS]...

    OUTLIVE_LEASE_KEY, OUTLIVE_LEASE_TOKEN and OUTLIVE_LEASE_OWNER are in the environment of the
    command. Exits with the command's code; 75 if the lease was not available, 76 if it was lost
    and the command was stopped.
    """
    invocation = current()
    check_key(key)
    said = dict(_pair(text) for text in metadata)
    grace_s = seconds(stop_grace, "stop-grace")
    target = invocation.target()
    leases = target.settings.leases.with_(ttl=ttl)
    grace_s, margin_s = _shares(leases, grace_s)
    # Forked here, while no thread exists yet.
    child = Child(command, Runtime().clock)
    holding = _Holding(invocation, child, grace_s)

    async def work(heard: signals.Signals) -> int:
        async with invocation.host(create=True) as host:
            try:
                lease = await host.leases.acquire(
                    key,
                    timeout=timeout if timeout is not None else _FOREVER_S,
                    ttl=ttl,
                    limit=limit,
                    safety_margin=margin_s,
                    auto_renew=True,
                    metadata={"command": masked(shlex.join(command), _SHOWN_MAX), **said},
                )
            except (LeaseHeld, AcquireTimeout):
                await _show_owner(invocation, host, key)
                raise
            return await holding.run(lease, heard)

    try:
        code = signals.run(work)
    finally:
        child.close()
    click.get_current_context().exit(code)


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise UsageError(f"--metadata must be NAME=VALUE, not {text!r}")
    return name, value


async def _show_owner(invocation: Invocation, host: Host, key: str) -> None:
    """Say what to look for, and where, before the error says that the lease is owned."""
    info = await host.leases.get(key)
    if info is not None and info.active:
        about = info.metadata
        where = f"pid {about.get('pid', '?')} on {about.get('hostname', info.host)}"
        invocation.complain(f"lease {key!r} is used by {where}: {about.get('command', '?')}")


# Longer than any process lives; the option's own default might be shorter than "forever".
_FOREVER_S = 10 * 365 * 86_400.0


def _shares(leases: LeaseOptions, grace_s: float) -> tuple[float, float]:
    """How the end of the ttl is shared out: the grace, and the safety margin that contains it."""
    ttl_s = seconds(leases.ttl, "ttl", zero=False)
    grace_s = min(grace_s, ttl_s / 3)
    own_s = min(0.5, ttl_s / 10)
    given_s = 0.0 if leases.safety_margin is None else seconds(leases.safety_margin, "margin")
    return grace_s, max(given_s, own_s) + grace_s


class _Holding:
    """The time between acquire and release, with the command inside it."""

    def __init__(self, invocation: Invocation, child: Child, grace_s: float) -> None:
        self._invocation = invocation
        self._child = child
        self._grace_s = grace_s
        self._clock = Runtime().clock
        self._lost = asyncio.Event()

    async def run(self, lease: Lease, heard: signals.Signals) -> int:
        """Start the command, keep watch, end its group, release; return the exit code."""
        lease.on(Renewed, lambda _: self._extend(lease))
        lease.on(Lost, lambda _: self._lost.set())
        self._extend(lease)
        try:
            code = await self._command(lease, heard)
        finally:
            # Whatever happened, from here on nothing of the command may be left.
            heard.forward = None
            self._child.close()
        try:
            await lease.release()
        except StoreError as error:
            self._invocation.complain(
                f"could not release lease {lease.key!r}: {error}; it expires by its ttl"
            )
        return code

    async def _command(self, lease: Lease, heard: signals.Signals) -> int:
        variables = {
            "OUTLIVE_LEASE_KEY": lease.key,
            "OUTLIVE_LEASE_TOKEN": str(lease.token),
            "OUTLIVE_LEASE_OWNER": lease.owner,
        }
        heard.forward = self._child.signal
        try:
            await self._child.go(variables)
        except OSError as error:
            self._invocation.complain(f"{error.filename!r} cannot be started: {error.strerror}")
            return exit_code_of(error)
        waiting = asyncio.ensure_future(self._child.wait())
        held = await self._watch(lease, waiting)
        if not held:
            # Which lease, and why, the library's own warning has said.
            self._invocation.complain("stopping the command because its lease was lost")
        if not held or self._child.is_alive:
            await self._child.stop(self._grace_s)
        code = await waiting
        await self._child.gone()
        return code if held else errors.LOST

    async def _watch(self, lease: Lease, waiting: asyncio.Future[int]) -> bool:
        """Wait for the end of the command or of the lease; whether the lease was held all along."""
        lost = asyncio.ensure_future(self._lost.wait())
        try:
            while lease.is_held and not waiting.done():
                pause_s = min(_LOOK_S, lease.remaining_s + 0.001)
                await asyncio.wait(
                    {waiting, lost}, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED
                )
            return lease.is_held
        finally:
            lost.cancel()

    def _extend(self, lease: Lease) -> None:
        self._child.extend(self._clock.monotonic() + lease.remaining_s + self._grace_s)
