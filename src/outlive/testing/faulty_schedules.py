"""A store of schedules behind a faulty network, for one simulated host.

Must never answer by itself: what the store decided is passed on, late, twice or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlive.model.schedule import Due, Fired, Firing, NewSchedule, ScheduleRecord
from outlive.ports.schedule_store import ScheduleStore
from outlive.testing.faults import Faults
from outlive.testing.faulty_port import FaultyPort
from outlive.testing.simulation import SimHost


class FaultyScheduleStore(FaultyPort):
    """A store of schedules as a host sees it through the network."""

    def __init__(self, store: ScheduleStore, faults: Faults, host: SimHost) -> None:
        super().__init__(faults, host)
        self._store = store

    async def put(self, schedule: NewSchedule) -> ScheduleRecord:
        """See the port."""
        return await self._call(lambda: self._store.put(schedule))

    async def get(self, name: str) -> ScheduleRecord | None:
        """See the port."""
        return await self._call(lambda: self._store.get(name))

    async def list(self, *, after: str | None, limit: int) -> Sequence[ScheduleRecord]:
        """See the port."""
        return await self._call(lambda: self._store.list(after=after, limit=limit))

    async def delete(self, name: str) -> bool:
        """See the port."""
        return await self._call(lambda: self._store.delete(name))

    async def pause(self, name: str) -> ScheduleRecord | None:
        """See the port."""
        return await self._call(lambda: self._store.pause(name))

    async def resume(self, name: str, *, next_at_us: int) -> ScheduleRecord | None:
        """See the port."""
        return await self._call(lambda: self._store.resume(name, next_at_us=next_at_us))

    async def due(self, *, limit: int) -> Due:
        """See the port."""
        return await self._call(lambda: self._store.due(limit=limit))

    async def fire(self, firing: Firing) -> Fired:
        """See the port."""
        return await self._call(lambda: self._store.fire(firing))
