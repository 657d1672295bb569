"""``outlive flow signal``, ``cancel``, ``suspend``, ``retry``…: what is done from outside.

Each verb asks ``host.flows`` for one flow after the other; what may be done is decided there. One
that is refused keeps no other from being asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import click

from outlive.cli import audit, errors, signals
from outlive.cli.invocation import SECONDS, current, global_options
from outlive.cli.output import emit_fields
from outlive.cli.work_enqueue import json_value
from outlive.errors import Conflict, OutliveError, StoreError, UsageError
from outlive.flows.flows import Flows
from outlive.model.instance import FINAL
from outlive.names import check_key, check_reason

_FINAL = [status.value for status in FINAL]

_reason = click.option("--reason", help="Reason, stored with the flow.")
_flows = click.argument("flow_ids", metavar="FLOW...", nargs=-1, required=True)


@click.command()
@click.argument("flow_id", metavar="FLOW")
@click.argument("name")
@click.argument("payload", default="null")
@click.option("--id", "id_", help="Id of the signal; a second signal with this id is ignored.")
@global_options
def signal(flow_id: str, name: str, payload: str, id_: str | None) -> None:
    """Send the signal NAME to a flow. PAYLOAD is JSON; '-' reads it from stdin."""
    invocation = current()
    value = json_value(sys.stdin.read() if payload == "-" else payload, "the payload")

    async def send(_: signals.Signals) -> None:
        async with invocation.host() as host:
            await host.flows.get(flow_id).signal(name, value, id=id_)

    signals.run(send)
    emit_fields(invocation.output, {"id": flow_id, "signal": name})


@click.command()
@_flows
@_reason
@global_options
def cancel(flow_ids: tuple[str, ...], reason: str | None) -> None:
    """Request the cancellation of flows; their code may clean up before they end."""
    why = check_reason(reason or "cancelled from the command line")
    _each(flow_ids, lambda flows, each: flows.get(each).cancel(why), ("cancel", "cancelled"))


@click.command()
@_flows
@_reason
@global_options
def terminate(flow_ids: tuple[str, ...], reason: str | None) -> None:
    """End flows immediately, without running their code."""
    why = check_reason(reason or "terminated from the command line")
    _each(flow_ids, lambda flows, each: flows.get(each).terminate(why), ("terminate", "terminated"))


@click.command()
@_flows
@global_options
def suspend(flow_ids: tuple[str, ...]) -> None:
    """Suspend flows: running steps continue, and nothing new begins until resume."""
    _each(flow_ids, lambda flows, each: flows.get(each).suspend(), ("suspend", "suspended"))


@click.command()
@_flows
@global_options
def resume(flow_ids: tuple[str, ...]) -> None:
    """Resume suspended flows."""
    _each(flow_ids, lambda flows, each: flows.get(each).resume(), ("resume", "resumed"))


@click.command()
@_flows
@click.option(
    "--rerun-unknown",
    is_flag=True,
    help="Rerun a step with once=True although its outcome is unknown.",
)
@global_options
def retry(flow_ids: tuple[str, ...], rerun_unknown: bool) -> None:
    """Continue ended flows from before the failed step or the cancellation request."""

    def act(flows: Flows, flow_id: str) -> Awaitable[None]:
        return flows.get(flow_id).retry(rerun_unknown=rerun_unknown)

    _each(flow_ids, act, ("retry", "retried"))


@click.command()
@click.argument("flow_ids", metavar="[FLOW]...", nargs=-1)
@click.option("--name", help="Select ended runs of this flow.")
@click.option(
    "--status",
    type=click.Choice(_FINAL),
    multiple=True,
    help="Select flows that ended with this status.",
)
@click.option(
    "--older-than", type=SECONDS, help="Select flows that ended at least this many seconds ago."
)
@global_options
def purge(flow_ids: tuple[str, ...], status: tuple[str, ...], **wanted: Any) -> None:
    """Delete ended flows: the given ids, or all selected flows."""
    invocation = current()
    matching = bool(status) or any(value is not None for value in wanted.values())
    if bool(flow_ids) == matching:
        raise UsageError(
            "give either ids of flows, or --name, --status or --older-than to select them"
        )

    if flow_ids:
        _each(flow_ids, _forget, ("purge", "purged"))
        return

    async def forget(_: signals.Signals) -> int:
        async with invocation.host() as host:
            said = [f"{name} {value}" for name, value in wanted.items() if value is not None]
            which = ", ".join(["all", *said, *(f"status {each}" for each in status)])
            await audit.record(host, "flow purge", check_reason(which))
            return await host.flows.purge(status=status or None, **wanted)

    emit_fields(invocation.output, {"purged": signals.run(forget)})


async def _forget(flows: Flows, flow_id: str) -> None:
    if not await flows.purge(flow_id):
        raise Conflict(f"flow {flow_id!r} has not ended: terminate it first")


def _each(
    flow_ids: tuple[str, ...],
    act: Callable[[Flows, str], Awaitable[None]],
    words: tuple[str, str],
) -> None:
    """Do it to one after the other, and tell of each that it could not be done to.

    The last of these decides how the command ends.
    """
    invocation = current()
    verb, done = words
    failed: list[tuple[str, OutliveError]] = []

    async def change(_: signals.Signals) -> None:
        async with invocation.host() as host:
            flows = host.flows
            # Nothing is done if one of them cannot be a flow.
            for each in [check_key(flow_id, "the id of a flow") for flow_id in flow_ids]:
                try:
                    await audit.record(host, f"flow {verb}", each)
                    await act(flows, each)
                except OutliveError as error:
                    # The others were meant as well.
                    failed.append((each, error))

    signals.run(change)
    if len(failed) < len(flow_ids):
        emit_fields(invocation.output, {done: len(flow_ids) - len(failed)})
    for flow_id, error in failed:
        said = errors.line_of(error)
        # What a store says of itself names no flow.
        invocation.complain(f"flow {flow_id!r}: {said}" if isinstance(error, StoreError) else said)
    if failed:
        click.get_current_context().exit(errors.exit_code_of(failed[-1][1]))
