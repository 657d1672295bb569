"""What a schedule does, as the JSON text that a store keeps, and the jobs that follow from it.

Owns that text: a release reads what every earlier one wrote, and writes the same text for the same
schedule, so that a host which starts again changes nothing. Loads time zones; decides nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from outlive.clock import instant
from outlive.errors import ConfigurationError, UsageError
from outlive.model.job import MAX_ATTEMPTS, MAX_LOSSES, NewJob, OnDuplicate
from outlive.model.schedule import CATCH_UP_LIMIT, CATCH_UP_LIMIT_MAX, CatchUp
from outlive.model.timetable import Cron, Every, Timetable
from outlive.names import JobId
from outlive.serialization import METADATA_BYTES_MAX, decode_metadata, encode_json

# Headers of a job that a schedule made.
SCHEDULE_HEADER = "outlive-schedule"
TICK_HEADER = "outlive-tick"

# Zones and expressions are written by people; a fleet has tens of each.
_TIMETABLES_MAX = 1024


class CronTick(msgspec.Struct, frozen=True):
    """One tick of a schedule, as the function of ``App.cron`` is given it.

    Attributes:
        schedule: The name of the schedule.
        due_at: The instant that its timetable names, in UTC; not when the function runs.
        missed: How many ticks before it were left out since the last one that was fired.
    """

    schedule: str
    due_at: datetime
    missed: int = 0


class JobPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What all jobs of a schedule have in common; the names are those of ``NewJob``.

    Without a ``payload``, each job carries its ``CronTick``.
    """

    queue: str
    payload: str | None = None
    priority: int = 0
    unique_key: str | None = None
    on_duplicate: OnDuplicate = OnDuplicate.REJECT
    ordering_key: str | None = None
    max_attempts: int = MAX_ATTEMPTS
    max_losses: int = MAX_LOSSES
    retry: str = "{}"
    expires_us: int | None = None
    retention_us: int = 86_400_000_000
    headers: str = "{}"


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a schedule ticks, by one of ``cron`` and ``every_us``, and what a tick enqueues."""

    job: JobPart
    cron: str | None = None
    every_us: int | None = None
    tz: str = "UTC"
    catch_up: CatchUp = CatchUp.SKIP
    limit: int = CATCH_UP_LIMIT

    def __post_init__(self) -> None:
        if (self.cron is None) == (self.every_us is None):
            raise UsageError(
                "a schedule needs either a cron expression or an interval, not both or neither"
            )
        if type(self.limit) is not int or not 1 <= self.limit <= CATCH_UP_LIMIT_MAX:
            raise UsageError(
                f"catch_up_limit must be a whole number from 1 to {CATCH_UP_LIMIT_MAX:,}, not "
                f"{self.limit!r}"
            )

    def timetable(self) -> Timetable:
        """When it ticks.

        Raises:
            UsageError: The expression, the interval or the zone is wrong.
        """
        return _timetable(self.cron, self.every_us, self.tz)

    def to_json(self) -> str:
        """The text to be kept."""
        return msgspec.json.encode(self).decode()

    def new_job(self, schedule: str, tick_us: int, missed: int) -> NewJob:
        """The job of a tick: the same one, by its id, whoever fires it."""
        return self.job_as(JobId(f"{schedule}@{_iso(tick_us)}"), schedule, tick_us, missed)

    def job_as(self, id: JobId, schedule: str, tick_us: int, missed: int) -> NewJob:  # noqa: A002
        """The job of a tick under another id."""
        part = self.job
        tick = CronTick(schedule, instant(tick_us), missed)
        payload = msgspec.json.encode(tick).decode() if part.payload is None else part.payload
        headers = {
            **decode_metadata(part.headers),
            SCHEDULE_HEADER: schedule,
            TICK_HEADER: _iso(tick_us),
        }
        return NewJob(
            id=id,
            queue=part.queue,
            payload=payload,
            priority=part.priority,
            unique_key=part.unique_key,
            on_duplicate=part.on_duplicate,
            ordering_key=part.ordering_key,
            max_attempts=part.max_attempts,
            max_losses=part.max_losses,
            retry=part.retry,
            expires_us=part.expires_us,
            retention_us=part.retention_us,
            headers=encode_json(headers, "the headers", limit=2 * METADATA_BYTES_MAX),
        )


def part_of(job: NewJob, *, payload: str | None, headers: str) -> JobPart:
    """The common part of a schedule's jobs, from a job that was drafted for it.

    The draft's own headers hold the trace of the moment; what is kept must not change with it.
    """
    return JobPart(
        queue=job.queue,
        payload=payload,
        priority=job.priority,
        unique_key=job.unique_key,
        on_duplicate=job.on_duplicate,
        ordering_key=job.ordering_key,
        max_attempts=job.max_attempts,
        max_losses=job.max_losses,
        retry=job.retry,
        expires_us=job.expires_us,
        retention_us=job.retention_us,
        headers=headers,
    )


def read_definition(text: str) -> Definition:
    """What a store has kept.

    Raises:
        UsageError: It was not written by a release that this one understands.
    """
    try:
        return msgspec.json.decode(text, type=Definition)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"the stored schedule cannot be read: {error}") from error


def zone_name(zone: str | tzinfo) -> str:
    """The name of a zone, as it is kept.

    Raises:
        UsageError: It has none, or there is no such zone.
    """
    if zone is UTC:
        return "UTC"
    name = zone.key if isinstance(zone, ZoneInfo) else zone
    if not isinstance(name, str) or not name:
        raise UsageError(
            f"tz must be the name of a time zone such as 'Europe/Berlin', not {zone!r}"
        )
    _zone(name)
    return name


@lru_cache(maxsize=_TIMETABLES_MAX)
def _timetable(cron: str | None, every_us: int | None, tz: str) -> Timetable:
    if every_us is not None:
        return Every(every_us)
    assert cron is not None
    return Cron(cron, _zone(tz))


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        # Known also where the machine has no table of zones.
        return UTC
    try:
        return ZoneInfo(name)
    except ZoneInfoNotFoundError:
        raise ConfigurationError(
            f"there is no time zone {name!r} on this machine; use a name such as "
            "'Europe/Berlin', or run `pip install tzdata` if this machine has no time zones"
        ) from None
    except (ValueError, OSError) as error:
        raise ConfigurationError(f"{name!r} is not a valid time zone: {error}") from None


def _iso(at_us: int) -> str:
    """An instant as text that sorts, to the digit that it needs."""
    return instant(at_us).isoformat().replace("+00:00", "Z")
