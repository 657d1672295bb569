"""``host.schedules``: keep, look at and steer what ticks. The public face of schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any, Unpack

from outlive.clock import instant, instant_or_none
from outlive.errors import DuplicateJob, ScheduleNotFound, UsageError
from outlive.model.job import Entry
from outlive.model.options import Duration, seconds
from outlive.model.schedule import (
    CATCH_UP_LIMIT,
    LIST_MAX,
    CatchUp,
    NewSchedule,
    ScheduleRecord,
    check_schedule,
)
from outlive.model.timetable import check_expression
from outlive.names import JobId
from outlive.ports.schedule_store import ScheduleStore
from outlive.ports.wakeups import Wakeup, Wakeups
from outlive.serialization import METADATA_BYTES_MAX, decode_plain, encode_json
from outlive.work.definition import (
    CronTick,
    Definition,
    part_of,
    read_definition,
    zone_name,
)
from outlive.work.drafting import JobOptions
from outlive.work.handler import Handler, count_of
from outlive.work.job import Job
from outlive.work.repeating import until_known
from outlive.work.scheduler import TOPIC
from outlive.work.work import Work

# What a schedule decides for each of its jobs.
_NOT_FOR_SCHEDULES = ("id", "delay", "at")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleInfo:
    """What the store knows of one schedule, at the moment it was asked.

    ``cron`` or ``every_s`` says when it ticks. ``payload`` is ``None`` where each job carries its
    ``CronTick``. ``last_at`` is the tick that was fired last, and ``fired`` how many were.
    """

    name: str
    cron: str | None
    every_s: float | None
    tz: str
    catch_up: CatchUp
    catch_up_limit: int
    queue: str
    payload: Any
    priority: int
    paused: bool
    next_at: datetime
    last_at: datetime | None
    fired: int
    created_at: datetime
    changed_at: datetime


class Schedules:
    """The schedules of one namespace. Made by ``outlive.connect``."""

    def __init__(self, store: ScheduleStore, wakeups: Wakeups, work: Work) -> None:
        self._store = store
        self._wakeups = wakeups
        self._work = work

    async def create(  # noqa: PLR0913 - the options are the public promise
        self,
        name: str,
        target: Handler[Any, Any] | str,
        payload: object = CronTick,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str | tzinfo = "UTC",
        catch_up: CatchUp | str = CatchUp.SKIP,
        catch_up_limit: int = CATCH_UP_LIMIT,
        **options: Unpack[JobOptions],
    ) -> ScheduleInfo:
        """Keep a schedule under ``name``: at each tick, one job for the whole fleet.

        The same call again changes nothing, also when hosts were away in between; another
        definition under the same name takes over. One that is paused stays paused. Ticks are fired
        by every host that runs (``host.run()``), whichever comes first.

        Args:
            name: What it is called; stands in the id of each of its jobs.
            target: The handler or queue that its jobs are for.
            payload: What each job carries; without it, its ``CronTick``.
            cron: Five fields, or six with seconds first; or ``every``.
            every: Seconds between ticks, counted from the epoch.
            tz: The time zone of ``cron``. A daily time that the clock skips ticks right after the
                gap, and one that it repeats ticks once.
            catch_up: After a time without hosts: ``skip`` fires the newest missed tick, ``all``
                the newest ``catch_up_limit`` of them, ``none`` waits for the next.
            catch_up_limit: How many ``all`` fires at most.
            **options: Of its jobs, as ``host.work.enqueue`` takes them, without ``id``, ``delay``
                and ``at``.

        Raises:
            UsageError, InvalidName: The arguments are wrong; nothing was sent.
            StoreError: It may or may not be kept; ask again.
        """
        definition = define(
            self._work,
            name,
            target,
            payload,
            cron=cron,
            every=every,
            tz=tz,
            catch_up=catch_up,
            catch_up_limit=catch_up_limit,
            options=options,
        )
        timetable = definition.timetable()
        wanted = NewSchedule(
            name=name,
            definition=definition.to_json(),
            next_at_us=timetable.after(await self._now_us()),
        )
        record = await until_known(self._work.runtime, lambda _: self._store.put(wanted))
        await self._wakeups.ring(Wakeup(TOPIC))
        return info_of(record)

    async def get(self, name: str) -> ScheduleInfo:
        """What is known of one.

        Raises:
            ScheduleNotFound: There is none of this name.
        """
        return info_of(await self._record(name))

    async def list(self, *, after: str | None = None, limit: int = 100) -> list[ScheduleInfo]:
        """A page of schedules by name; ``after`` is the name of the last one before."""
        page = count_of(limit, "limit", LIST_MAX)
        return [info_of(record) for record in await self._store.list(after=after, limit=page)]

    async def pause(self, name: str) -> ScheduleInfo:
        """Let it not fire until it is resumed; ticks until then are not caught up with.

        Raises:
            ScheduleNotFound: There is none of this name.
        """
        wanted = check_schedule(name)
        record = await until_known(self._work.runtime, lambda _: self._store.pause(wanted))
        if record is None:
            raise ScheduleNotFound(name)
        return info_of(record)

    async def resume(self, name: str) -> ScheduleInfo:
        """Let it fire again, from its next tick on; one that is not paused is left alone.

        Raises:
            ScheduleNotFound: There is none of this name.
        """
        timetable = read_definition((await self._record(name)).definition).timetable()
        next_us = timetable.after(await self._now_us())
        record = await until_known(
            self._work.runtime, lambda _: self._store.resume(name, next_at_us=next_us)
        )
        if record is None:
            raise ScheduleNotFound(name)
        await self._wakeups.ring(Wakeup(TOPIC))
        return info_of(record)

    async def run_now(self, name: str) -> Job[Any]:
        """Enqueue a job of a schedule now, paused or not; its ticks stay as they are.

        Raises:
            ScheduleNotFound: There is none of this name.
            DuplicateJob: Its jobs have a unique key, and one is live.
            QueueClosed: Its queue drains.
        """
        definition = read_definition((await self._record(name)).definition)
        # Not the id of a tick: this one is nobody's.
        chosen = JobId(f"{name}@{self._work.runtime.new_id()}")
        job = definition.job_as(chosen, name, await self._now_us(), 0)
        (outcome,) = await self._work.submit((job,))
        if outcome.entry is Entry.REJECTED:
            raise DuplicateJob(job.queue, job.unique_key or "", outcome.id)
        return self._work.job(outcome.id)

    async def delete(self, name: str) -> None:
        """Remove it. Jobs that it has made stay.

        A schedule that an app defines returns when a host of that app starts.

        Raises:
            ScheduleNotFound: There is none of this name.
        """
        wanted = check_schedule(name)
        repeated = False

        async def remove(number: int) -> bool:
            nonlocal repeated
            repeated = number > 0
            return await self._store.delete(wanted)

        # Gone when asked again after a lost reply is as was wished.
        if not await until_known(self._work.runtime, remove) and not repeated:
            raise ScheduleNotFound(name)

    async def _record(self, name: str) -> ScheduleRecord:
        record = await self._store.get(check_schedule(name))
        if record is None:
            raise ScheduleNotFound(name)
        return record

    async def _now_us(self) -> int:
        return (await self._store.due(limit=0)).now_us


def define(  # noqa: PLR0913 - the arguments of create
    work: Work,
    name: str,
    target: Handler[Any, Any] | str,
    payload: object,
    *,
    cron: str | None,
    every: Duration | None,
    tz: str | tzinfo,
    catch_up: CatchUp | str,
    catch_up_limit: int,
    options: JobOptions,
) -> Definition:
    """What a schedule does, checked.

    Raises:
        UsageError, InvalidName: Something about it is wrong.
    """
    check_schedule(name)
    for option in _NOT_FOR_SCHEDULES:
        if option in options:
            raise UsageError(
                f"a schedule sets the {option!r} of its jobs itself: leave the option out"
            )
    carries_tick = payload is CronTick
    example = CronTick(name, instant(0)) if carries_tick else payload
    job = work.prepare(target, example, **options)
    definition = Definition(
        job=part_of(
            job,
            payload=None if carries_tick else job.payload,
            headers=_headers(options.get("headers")),
        ),
        cron=None if cron is None else check_expression(cron),
        every_us=None if every is None else round(seconds(every, "every", zero=False) * 1e6),
        tz=zone_name(tz),
        catch_up=catch_up_of(catch_up),
        limit=catch_up_limit,
    )
    definition.timetable()
    return definition


def catch_up_of(value: CatchUp | str) -> CatchUp:
    """The policy that ``value`` names.

    Raises:
        UsageError: There is none of this name.
    """
    try:
        return CatchUp(value)
    except ValueError:
        known = ", ".join(repr(each.value) for each in CatchUp)
        raise UsageError(f"catch_up must be one of {known}, not {value!r}") from None


def info_of(record: ScheduleRecord) -> ScheduleInfo:
    """What people are shown of a record.

    Raises:
        UsageError: It was written by a release that this one does not understand.
    """
    definition = read_definition(record.definition)
    every_us = definition.every_us
    return ScheduleInfo(
        name=record.name,
        cron=definition.cron,
        every_s=None if every_us is None else every_us / 1e6,
        tz=definition.tz,
        catch_up=definition.catch_up,
        catch_up_limit=definition.limit,
        queue=definition.job.queue,
        payload=decode_plain(definition.job.payload),
        priority=definition.job.priority,
        paused=record.paused,
        next_at=instant(record.next_at_us),
        last_at=instant_or_none(record.last_at_us),
        fired=record.fired,
        created_at=instant(record.created_at_us),
        changed_at=instant(record.changed_at_us),
    )


def _headers(given: Mapping[str, str] | None) -> str:
    return encode_json(dict(given or {}), "the headers", limit=METADATA_BYTES_MAX)
