"""What operators do to instances: each function changes one in an ``InstanceStep``."""

from __future__ import annotations

from collections.abc import Sequence

from outlive.drivers.memory.instance_rows import InstanceRow
from outlive.drivers.memory.instance_step import InstanceStep
from outlive.model.instance import InstanceStatus, Message, Opened

# What the rows of operators have for a commit id, which no host gives to a commit of its own.
_REOPENED = "\x00reopened"


def terminate(
    step: InstanceStep,
    row: InstanceRow | None,
    outcome: str,
    sends: Sequence[Message],
    below: str | None,
) -> Opened:
    """End an instance, whoever owns it, and with ``below`` those that are not to outlive it."""
    if row is None:
        return Opened.NOT_FOUND
    if row.ended is not None:
        # Asked again after a lost reply, it is as was wished.
        return Opened.CHANGED if row.ended is InstanceStatus.TERMINATED else Opened.REFUSED
    family = [row] if below is None else _family(step, row)
    for each in family:
        step.call_owner(each, "operate")
        each.token += 1
        step.end(
            each, InstanceStatus.TERMINATED, outcome if each is row or below is None else below
        )
    for message in sends:
        step.send(message, limit=None)
    return Opened.CHANGED


def _family(step: InstanceStep, first: InstanceRow) -> list[InstanceRow]:
    """An instance and all that it takes with it."""
    family = [first]
    for row in family:
        for id_ in step.table.children.get(row.id, ()):
            child = step.table.rows[id_]
            # A run that began anew has left those of the run before alone.
            of_this_run = row.base == 0 or child.created_us > row.began_us
            if child.ended is None and not child.new.outlives and of_this_run:
                family.append(child)
    return family


def suspend(step: InstanceStep, row: InstanceRow | None) -> Opened:
    """Let an instance begin nothing new."""
    if row is None or row.ended is not None:
        return Opened.NOT_FOUND if row is None else Opened.REFUSED
    _set_suspended(step, row, suspended=True)
    return Opened.CHANGED


def resume(step: InstanceStep, row: InstanceRow | None) -> Opened:
    """Let an instance go on."""
    if row is None or row.ended is not None:
        return Opened.NOT_FOUND if row is None else Opened.REFUSED
    if row.suspended:
        if row.owner is None and row.token:
            # What its owner left undone is known to nobody else: let somebody look. One that never
            # ran has left nothing, and keeps the time that it was started for.
            row.due_us = step.now_us
        _set_suspended(step, row, suspended=False)
    return Opened.CHANGED


def _set_suspended(step: InstanceStep, row: InstanceRow, *, suspended: bool) -> None:
    row.suspended = suspended
    row.updated_us = step.now_us
    step.place(row)
    step.call_owner(row, "operate")


def reopen(step: InstanceStep, row: InstanceRow | None, version: int, events: str) -> Opened:
    """Let an ended instance live again."""
    if row is None:
        return Opened.NOT_FOUND
    written = row.row_of(version)
    if written is not None and written.commit == _REOPENED and written.row.events == events:
        return Opened.CHANGED
    if row.ended is None or version != row.version + 1:
        return Opened.REFUSED
    step.table.kept.remove(row.id)
    row.ended = row.ended_us = row.outcome = None
    row.due_us = step.now_us
    step.begin_by_now(row)
    step.record(row, events, _REOPENED, None)
    step.place(row)
    return Opened.CHANGED


def purge(step: InstanceStep, row: InstanceRow | None) -> Opened:
    """Nobody wants to know of the instance any more."""
    if row is None or row.ended is None:
        return Opened.NOT_FOUND if row is None else Opened.REFUSED
    step.table.remove(row)
    return Opened.CHANGED
