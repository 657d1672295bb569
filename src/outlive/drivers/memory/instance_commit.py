"""How an instance advances: one commit, all of it or nothing, in an ``InstanceStep``."""

from __future__ import annotations

from msgspec.structs import replace

from outlive.drivers.memory.instance_rows import InstanceRow
from outlive.drivers.memory.instance_step import InstanceStep
from outlive.model.instance import Commit, Committed, Entry, InstanceStatus, NewInstance
from outlive.names import HostId, InstanceId


def advance(step: InstanceStep, commit: Commit, host: HostId) -> Committed:
    """Apply a commit under its token and version, or recognise it by its id."""
    row = step.table.rows.get(commit.id)
    if row is None:
        return Committed(ok=False, at_us=step.now_us)
    written = row.row_of(commit.version)
    if written is not None and written.commit == commit.commit:
        taken = tuple(new.id for new in commit.starts if _is_of_others(step, new))
        return Committed(True, written.row.at_us, row.suspended, taken, repeated=True)
    if row.owner is None or row.token != commit.token or row.version + 1 != commit.version:
        return Committed(ok=False, at_us=step.now_us)
    _apply(step, row, commit)
    taken = _send_out(step, commit, host)
    return Committed(ok=True, at_us=step.now_us, suspended=row.suspended, taken=taken)


def _is_of_others(step: InstanceStep, new: NewInstance) -> bool:
    row = step.table.rows.get(new.id)
    return row is not None and row.new.request != new.request


def _apply(step: InstanceStep, row: InstanceRow, commit: Commit) -> None:
    """Change the instance itself."""
    assert row.owner is not None
    if commit.restart is not None:
        row.history.clear()
        row.base = row.version
        row.began_us = step.now_us
        row.input = commit.restart
    step.record(row, commit.events, commit.commit, row.owner.worker)
    row.due_us = commit.due_at_us
    row.custom = row.custom if commit.custom is None else commit.custom
    row.attributes = row.attributes if commit.attributes is None else commit.attributes
    for number in commit.consumed:
        row.letters.pop(number, None)
    for reply in commit.replies:
        row.replies[reply.message] = reply.payload
    if commit.status is not InstanceStatus.RUNNING:
        step.end(row, commit.status, commit.outcome)
        return
    if commit.replies:
        step.call_watchers(row)
    if commit.release:
        step.leave(row)
        step.place(row)


def _send_out(step: InstanceStep, commit: Commit, host: HostId) -> tuple[InstanceId, ...]:
    """Start, enqueue and send what the commit says; the ids that others had already."""
    starts = [step.add(replace(new, session=None), host) for new in commit.starts]
    for job in commit.jobs:
        step.jobs.add(job)
    for message in commit.sends:
        # A sender that has committed cannot be told to wait: no mailbox is too full for it.
        step.send(message, limit=None)
    return tuple(started.id for started in starts if started.entry is Entry.EXISTING)
