"""``host.hosts``: the processes of one namespace, as their sessions and claims show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from outlive.errors import UnsupportedByDriver
from outlive.model.job import JobFilter, JobState
from outlive.model.session import HostSession
from outlive.names import HostId
from outlive.ports.driver import Driver
from outlive.serialization import decode_metadata

T = TypeVar("T")

HOSTS_MAX = 1000

# Jobs come with their payloads, of up to a megabyte each: few at a time fit into memory.
_JOBS_READ = 100
_LEASES_READ = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostInfo:
    """One process with a session, as the store knew it when it was asked.

    Attributes:
        kind: ``host``, or ``http-worker`` for a worker of the HTTP API, of which a server knows
            neither process nor version.
        since: When its session began.
        heartbeat_age_s: Time since its last renewal; at least the ttl if it is not ``alive``.
        alive: Whether its session lasts; the claims of one that is dead go to other hosts.
        draining: Whether it was stopped and claims nothing more, while its handlers end.
        leases: How many leases it owns.
        jobs: How many jobs it has claimed; ``None`` where the backend keeps none.
    """

    id: HostId
    name: str
    kind: str
    version: str | None
    pid: int | None
    hostname: str | None
    since: datetime | None
    ttl_s: float
    heartbeat_age_s: float
    alive: bool
    draining: bool
    leases: int
    jobs: int | None


class Hosts:
    """The hosts of one namespace."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def list(self, *, limit: int = HOSTS_MAX) -> list[HostInfo]:
        """The hosts whose sessions have not ended, the oldest first, with what each owns.

        Counts by reading every owned lease and every claimed job of the namespace, page by page:
        meant for people and for dashboards that ask now and then. Flows are not counted, because a
        store would have to read all of them.

        Raises:
            UnsupportedByDriver: The backend keeps no sessions.
            StoreUnavailable, OutcomeUnknown: The store did not answer.
        """
        if self._driver.hosts is None:
            raise UnsupportedByDriver(
                f"{self._driver.capabilities.backend} does not keep host sessions"
            )
        sessions = await self._driver.hosts.list(limit=limit)
        leases, jobs = await self._leases(), await self._jobs()
        return [_info(session, leases, jobs) for session in sessions]

    async def _leases(self) -> Counter[str]:
        """How many leases each host owns: the end of an owner is its host's id and a number."""
        read = partial(self._driver.leases.list, prefix="", owner=None, active=True)
        found = _each(read, lambda record: record.key, _LEASES_READ)
        owners = [record.owner or "" async for record in found]
        return Counter(owner.rpartition("/")[2].rpartition("-")[0] for owner in owners)

    async def _jobs(self) -> Counter[str | None] | None:
        if self._driver.jobs is None:
            return None
        read = partial(self._driver.jobs.list, JobFilter(states=(JobState.CLAIMED,)))
        found = _each(read, lambda record: record.cursor, _JOBS_READ)
        return Counter([record.session async for record in found])


async def _each(
    read: Callable[..., Awaitable[Sequence[T]]], cursor: Callable[[T], str], size: int
) -> AsyncGenerator[T, None]:
    """Each record, page by page; ``cursor`` is where the page behind a record begins."""
    page: Sequence[T] = await read(after=None, limit=size)
    while page:
        for record in page:
            yield record
        page = await read(after=cursor(page[-1]), limit=size) if len(page) >= size else ()


def _info(session: HostSession, leases: Counter[str], jobs: Counter[str | None] | None) -> HostInfo:
    said: dict[str, Any] = decode_metadata(session.metadata)
    # A host that lost its session goes on under a new one, and keeps its own id.
    host = HostId(str(said.get("instance", session.id)))
    ttl_s = session.ttl_us / 1e6
    return HostInfo(
        id=host,
        name=session.name,
        kind=str(said.get("kind", "host")),
        version=said.get("version"),
        pid=said.get("pid"),
        hostname=said.get("hostname"),
        since=session.started_at,
        ttl_s=ttl_s,
        heartbeat_age_s=max(0.0, ttl_s - session.remaining_s),
        alive=session.alive,
        draining=bool(said.get("draining", False)),
        leases=leases[host],
        jobs=None if jobs is None else jobs[session.id],
    )
