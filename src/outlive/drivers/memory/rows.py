"""What the memory store keeps: the same rows a table would have, as plain objects.

Owns the data of one store and its one lock; decides nothing. Instants are integers in microseconds
of the process clock. Rows of leases are never deleted: deleting would restart their tokens.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from outlive.drivers.memory.instance_rows import InstanceTable
from outlive.drivers.memory.job_rows import JobTable
from outlive.model.lease import HISTORY_MAX, Ended
from outlive.model.schedule import ScheduleRecord
from outlive.model.session import HostSession
from outlive.names import HostId, Owner, WaiterId

if TYPE_CHECKING:
    from outlive.drivers.memory.token_store import AccessRows
    from outlive.drivers.memory.wakeups import MemoryWakeups


@dataclass(slots=True)
class SlotRow:
    """One slot of a key; a plain lock has slot 0 alone."""

    number: int
    owner: Owner | None = None
    token: int = 0
    version: int = 0
    ttl_us: int = 0
    expires_us: int = 0
    acquired_us: int = 0
    renewed_us: int = 0
    free_since_us: int = 0
    metadata: str = "{}"


@dataclass(slots=True)
class PlaceRow:
    """One place in the queue of a key.

    A ``passed`` place counts for nothing until its owner attempts again.
    """

    id: WaiterId
    owner: Owner
    host: HostId
    expires_us: int
    passed: bool = False


class EndedRow(NamedTuple):
    """One grant that is over."""

    slot: int
    token: int
    owner: str
    acquired_us: int
    ended_us: int
    ended: Ended
    detail: str | None


@dataclass(slots=True)
class KeyRow:
    """Everything about one key. ``token`` is the greatest ever granted, over all slots.

    ``slots`` grows as slots are first used; ``places`` is in order of arrival.
    """

    key: str
    limit: int
    token: int = 0
    state: str | None = None
    slots: list[SlotRow] = field(default_factory=list[SlotRow])
    places: dict[WaiterId, PlaceRow] = field(default_factory=dict[WaiterId, PlaceRow])
    ended: deque[EndedRow] = field(default_factory=lambda: deque[EndedRow](maxlen=HISTORY_MAX))


@dataclass(slots=True)
class SessionRow:
    """One host session that has not ended."""

    session: HostSession
    started_us: int
    expires_us: int


@dataclass(slots=True)
class ScheduleTable:
    """Schedules by name. ``versions`` is the greatest ever given, over all of them."""

    rows: dict[str, ScheduleRecord] = field(default_factory=dict[str, ScheduleRecord])
    versions: int = 0


class Space:
    """One namespace of one store. Whoever reads or writes its rows holds ``lock``."""

    __slots__ = (
        "access",
        "ended_hosts",
        "instances",
        "jobs",
        "keys",
        "listening",
        "lock",
        "places_given",
        "schedules",
        "sessions",
    )

    def __init__(self, lock: threading.Lock) -> None:
        self.lock = lock
        # Bearer tokens, made when the first one is.
        self.access: AccessRows | None = None
        self.keys: dict[str, KeyRow] = {}
        self.places_given = 0
        self.jobs = JobTable()
        self.instances = InstanceTable()
        self.schedules = ScheduleTable()
        self.sessions: dict[HostId, SessionRow] = {}
        # Ids of ended sessions in order of their end; the host store bounds it.
        self.ended_hosts: dict[HostId, None] = {}
        self.listening: dict[HostId, list[MemoryWakeups]] = {}


class MemoryStore:
    """One store: its namespaces under one lock, shared by the threads of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spaces: dict[str, Space] = {}

    def space(self, namespace: str) -> Space:
        """The namespace, made on first use."""
        with self._lock:
            space = self._spaces.get(namespace)
            if space is None:
                space = self._spaces[namespace] = Space(self._lock)
            return space
