"""The scheduler: fires the ticks of all schedules, in every host that runs.

No host leads. Each wakes when the soonest tick is due, and the store lets one of them move the
schedule on and enqueue the job, in one step; the others find that it was done. A host that dies
between looking and firing owns nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from outlive.errors import StoreError, UsageError
from outlive.model.job import Entry
from outlive.model.schedule import DUE_MAX, Firing, NewSchedule, ScheduleRecord, steps_due
from outlive.ports.schedule_store import ScheduleStore
from outlive.ports.wakeups import Wakeup, Wakeups
from outlive.runtime.backoff import Backoff
from outlive.runtime.runtime import Runtime
from outlive.telemetry import Telemetry, events
from outlive.work.bell import Alarm
from outlive.work.definition import Definition, read_definition

# Rung by whoever creates, changes or resumes a schedule.
TOPIC = "schedules"

# The safety net: a hint may be lost, and the store's wall clock may be set while we sleep. One
# small read per host and half a minute.
_SLEEP_MOST_S = 30.0

# Fired together, and so in few commits; as many again follow at once.
_BATCH_MAX = 100

_PAUSE_LEAST_S = 1.0

# A store that does not answer is asked again soon, then ever more rarely.
_RETRY_FIRST_S, _RETRY_MOST_S = 0.2, 5.0


class Scheduler:
    """Fires due schedules until it is cancelled. ``defined`` are those of the app."""

    def __init__(
        self,
        runtime: Runtime,
        store: ScheduleStore,
        wakeups: Wakeups,
        *,
        defined: Mapping[str, Definition],
        telemetry: Telemetry,
        log: logging.Logger,
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._wakeups = wakeups
        self._missing = dict(defined)
        self._telemetry = telemetry
        self._log = log
        self._alarm = Alarm()
        self._backoff = Backoff(_RETRY_FIRST_S, _RETRY_MOST_S, runtime.random)
        # Told once, until the store answers again.
        self._away = False
        # Versions of schedules that this release or machine cannot read, so that each is told once.
        self._unreadable: dict[str, int] = {}

    async def run(self) -> None:
        """Keep the app's schedules, and fire all that are due, until cancelled."""
        unsubscribe = self._wakeups.subscribe(self._hear)
        try:
            while True:
                self._alarm.reset()
                await self._alarm.sleep(await self._look_patiently())
        finally:
            unsubscribe()

    def _hear(self, wakeup: Wakeup) -> None:
        if wakeup.topic == TOPIC:
            self._alarm.ring()

    async def _look_patiently(self) -> float:
        try:
            pause_s = await self.look()
        except StoreError as error:
            pause_s = self._backoff.next_s()
            if not self._away:
                self._log.warning("could not run the schedules, will retry: %s", error)
            self._away = True
        else:
            self._backoff.reset()
            self._away = False
        return pause_s

    async def look(self) -> float:
        """Fire what is due; returns how long to sleep."""
        if self._missing:
            await self._define()
        due = await self._store.due(limit=min(DUE_MAX, _BATCH_MAX + len(self._unreadable)))
        readable = [each for each in due.schedules if not self._is_unreadable(each)]
        # Each host in an order of its own, so that hosts which wake together share the work.
        self._runtime.random.shuffle(readable)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._advance_safely(each, due.now_us))
                for each in readable[:_BATCH_MAX]
            ]
        moved = [task.result() for task in tasks]
        for error in moved:
            if isinstance(error, StoreError):
                raise error
        if any(moved):
            return 0.0
        most_s = _SLEEP_MOST_S * self._runtime.patience
        pause_s = most_s if due.next_due_s is None else min(most_s, due.next_due_s)
        # Nothing but what this host cannot read is due: look for more, but do not spin.
        return max(pause_s, _PAUSE_LEAST_S) if due.schedules and not readable else pause_s

    async def _define(self) -> None:
        now_us = (await self._store.due(limit=0)).now_us
        for name, definition in list(self._missing.items()):
            await self._store.put(
                NewSchedule(
                    name=name,
                    definition=definition.to_json(),
                    next_at_us=definition.timetable().after(now_us),
                )
            )
            del self._missing[name]
        # The others sleep until the soonest tick that they know of.
        await self._wakeups.ring(Wakeup(TOPIC))

    async def _advance_safely(self, schedule: ScheduleRecord, now_us: int) -> bool | StoreError:
        # Returned, because the error of one must not cancel what the others have begun.
        try:
            return await self._advance(schedule, now_us)
        except StoreError as error:
            return error

    async def _advance(self, schedule: ScheduleRecord, now_us: int) -> bool:
        """Fire what is due of one schedule; false if there is no use in looking again at once."""
        try:
            definition = read_definition(schedule.definition)
            steps = steps_due(
                definition.timetable(),
                schedule,
                now_us,
                catch_up=definition.catch_up,
                limit=definition.limit,
            )
        except UsageError as error:
            self._unreadable[schedule.name] = schedule.version
            self._log.error("this host cannot fire schedule %r: %s", schedule.name, error)
            return False
        version = schedule.version
        for step in steps:
            tick_us = step.tick_us
            job = (
                None if tick_us is None else definition.new_job(schedule.name, tick_us, step.missed)
            )
            firing = Firing(
                name=schedule.name,
                version=version,
                tick_us=tick_us,
                next_at_us=step.next_us,
                job=job,
            )
            fired = await self._store.fire(firing)
            if fired.version is None:
                # Somebody else was first, or this very call was, and its reply was lost.
                return True
            version = fired.version
            self._tell(schedule.name, step.missed, fired.entry, queue=definition.job.queue)
        return bool(steps)

    def _tell(self, name: str, missed: int, entry: Entry | None, *, queue: str) -> None:
        fields = {"schedule": name, "missed": missed}
        if entry in (Entry.CREATED, Entry.REPLACED):
            self._telemetry.record(events.JOBS_ENQUEUED, queue=queue)
        if missed:
            self._log.warning("schedule %r missed ticks: %d", name, missed, extra=fields)
        if entry is Entry.CLOSED:
            self._log.warning(
                "schedule %r fired into queue %r, which is draining: no job was added",
                name,
                queue,
                extra=fields,
            )
        elif entry is Entry.CONFLICT:
            self._log.warning(
                "schedule %r fired into queue %r, but a job of another queue already has the id "
                "of this tick: no job was added",
                name,
                queue,
                extra=fields,
            )
        elif entry in (Entry.REJECTED, Entry.EXISTING):
            self._log.info(
                "schedule %r fired, but the job of an earlier tick is still live: no job was added",
                name,
                extra=fields,
            )

    def _is_unreadable(self, schedule: ScheduleRecord) -> bool:
        return self._unreadable.get(schedule.name) == schedule.version
