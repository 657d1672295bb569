"""Schedules in memory, beside the jobs that they make.

Owns the rows of schedules. Every method is one step of the jobs, under the one lock of the space,
so that a firing and its job are one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from outlive.drivers.memory.job_step import JobStep
from outlive.drivers.memory.rows import ScheduleTable, Space
from outlive.model.schedule import (
    DUE_MAX,
    LIST_MAX,
    Due,
    Fired,
    Firing,
    NewSchedule,
    ScheduleRecord,
    clock_went_back,
)

Steps = Callable[[], AbstractContextManager[JobStep]]


class MemoryScheduleStore:
    """The ``ScheduleStore`` of one namespace. ``steps`` begins a step of its jobs."""

    def __init__(self, space: Space, steps: Steps) -> None:
        self._table: ScheduleTable = space.schedules
        self._steps = steps

    async def put(self, schedule: NewSchedule) -> ScheduleRecord:
        """Keep a schedule; see the port."""
        with self._steps() as step:
            row = self._table.rows.get(schedule.name)
            if row is None:
                row = ScheduleRecord(
                    name=schedule.name,
                    definition=schedule.definition,
                    version=0,
                    paused=False,
                    next_at_us=schedule.next_at_us,
                    last_at_us=None,
                    fired=0,
                    created_at_us=step.now_us,
                    changed_at_us=step.now_us,
                )
                return self._change(row)
            if row.definition == schedule.definition:
                return row
            return self._change(
                row,
                definition=schedule.definition,
                next_at_us=schedule.next_at_us,
                changed_at_us=step.now_us,
            )

    async def get(self, name: str) -> ScheduleRecord | None:
        """What is known of one; see the port."""
        with self._steps():
            return self._table.rows.get(name)

    async def list(self, *, after: str | None, limit: int) -> Sequence[ScheduleRecord]:
        """A page by name; see the port."""
        with self._steps():
            names = sorted(self._table.rows, key=str.encode)
            wanted = [name for name in names if after is None or name.encode() > after.encode()]
            return [self._table.rows[name] for name in wanted[: max(0, min(limit, LIST_MAX))]]

    async def delete(self, name: str) -> bool:
        """Remove one; see the port."""
        with self._steps():
            return self._table.rows.pop(name, None) is not None

    async def pause(self, name: str) -> ScheduleRecord | None:
        """Let it not fire; see the port."""
        with self._steps() as step:
            row = self._table.rows.get(name)
            if row is None or row.paused:
                return row
            return self._change(row, paused=True, changed_at_us=step.now_us)

    async def resume(self, name: str, *, next_at_us: int) -> ScheduleRecord | None:
        """Let it fire again; see the port."""
        with self._steps() as step:
            row = self._table.rows.get(name)
            if row is None or not row.paused:
                return row
            return self._change(row, paused=False, next_at_us=next_at_us, changed_at_us=step.now_us)

    async def due(self, *, limit: int) -> Due:
        """What is due now; see the port."""
        limit = max(0, min(limit, DUE_MAX))
        with self._steps() as step:
            now_us = step.now_us
            waiting = [row for row in self._table.rows.values() if not row.paused]
            due = [
                row for row in waiting if row.next_at_us <= now_us or clock_went_back(row, now_us)
            ]
            ahead_us = [row.next_at_us for row in waiting if row.next_at_us > now_us]
        due.sort(key=lambda row: (row.next_at_us, row.name.encode()))
        next_due_s = (min(ahead_us) - now_us) / 1e6 if ahead_us else None
        return Due(
            now_us=now_us,
            schedules=tuple(due[:limit]),
            next_due_s=next_due_s if len(due) <= limit else 0.0,
        )

    async def fire(self, firing: Firing) -> Fired:
        """Move one on and enqueue its job; see the port."""
        with self._steps() as step:
            row = self._table.rows.get(firing.name)
            if row is None or row.paused or row.version != firing.version:
                return Fired(None)
            last_us = firing.tick_us
            if last_us is None and (row.last_at_us or 0) < firing.next_at_us:
                last_us = row.last_at_us
            moved = self._change(
                row,
                next_at_us=firing.next_at_us,
                last_at_us=last_us,
                fired=row.fired + (firing.tick_us is not None),
            )
            entry = None if firing.job is None else step.add(firing.job).entry
            return Fired(moved.version, entry)

    def _change(self, row: ScheduleRecord, **fields: Any) -> ScheduleRecord:
        self._table.versions += 1
        changed = replace(row, version=self._table.versions, **fields)
        self._table.rows[row.name] = changed
        return changed
