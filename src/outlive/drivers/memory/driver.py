"""Opens memory stores and finds the one that a URL means.

``memory://NAME`` is shared by name inside this process. ``memory://`` belongs to one host: only
drivers opened with the same host id, the host's own and its keeper's, share it. Nothing survives
the last driver that is closed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from outlive.drivers.memory.host_store import MemoryHostStore
from outlive.drivers.memory.instance_store import MemoryInstanceStore
from outlive.drivers.memory.job_store import MemoryJobStore
from outlive.drivers.memory.lease_store import MemoryLeaseStore
from outlive.drivers.memory.rows import MemoryStore
from outlive.drivers.memory.schedule_store import MemoryScheduleStore
from outlive.drivers.memory.token_store import MemoryTokenStore
from outlive.drivers.memory.wakeups import MemoryWakeups
from outlive.errors import StoreUnavailable
from outlive.model.location import Location
from outlive.ports.capabilities import Capabilities
from outlive.ports.driver import DriverContext, Finding, Migration

CAPABILITIES = Capabilities(
    backend="memory",
    fifo=True,
    push=True,
    history=True,
    semaphore=True,
    multi_key=True,
    sessions=True,
    guard=(),
    across="process",
    clock="process clock",
    drift=0.0,
    ttl_min_s=0.001,
    ttl_max_s=None,
    jobs=True,
    ordering=True,
    queue_limits=True,
    schedules=True,
    instances=True,
)

# The one global of this package: a URL is text, and two calls that name the same store must meet
# somewhere. Weak, so that a store lives exactly as long as a driver is open on it.
_stores: WeakValueDictionary[str, MemoryStore] = WeakValueDictionary()
_stores_lock = threading.Lock()


def _find_store(location: Location, context: DriverContext) -> MemoryStore:
    parts = urlsplit(location.url)
    name = parts.netloc + parts.path
    identity = f"name:{name}" if name else f"host:{context.host}"
    with _stores_lock:
        store = _stores.get(identity)
        if store is None:
            store = _stores[identity] = MemoryStore()
        return store


class MemoryDriver:
    """An open memory store. Usable from the loop that opened it; the rows from any thread."""

    capabilities = CAPABILITIES

    def __init__(self, store: MemoryStore, context: DriverContext) -> None:
        space = store.space(context.namespace)
        self._store: MemoryStore | None = store
        self.wakeups = MemoryWakeups(space, context.host, context.logger)
        self.leases = MemoryLeaseStore(space, context.clock, self.wakeups.ring_place)
        self.hosts = MemoryHostStore(space, context.clock)
        self.tokens = MemoryTokenStore(space, context.clock)
        self.jobs = MemoryJobStore(space, context.clock, context.host, self.wakeups.ring_host)
        self.instances = MemoryInstanceStore(space, context.host, self.jobs.step)
        self.schedules = MemoryScheduleStore(space, self.jobs.step)

    async def check(self) -> Sequence[Finding]:
        """Say what a memory store cannot do, since that is all that can be wrong with it."""
        if self._store is None:
            raise StoreUnavailable("the memory store is closed")
        return [
            Finding(
                level="ok",
                what="the store is in the memory of this process and is lost when the process ends",
                advice="use sqlite:///path to keep leases across restarts and processes",
            )
        ]

    async def close(self) -> None:
        """Give everything back. Repeatable."""
        self.leases.close()
        self.hosts.close_store()
        self.tokens.close()
        self.jobs.close()
        self.wakeups.close()
        self._store = None


class MemoryFactory:
    """Opens ``memory://`` URLs. It takes no options."""

    capabilities = CAPABILITIES
    options = frozenset[str]()

    async def open(self, location: Location, context: DriverContext) -> MemoryDriver:
        """Open the store that the URL names, made if nobody has it open."""
        return MemoryDriver(_find_store(location, context), context)

    async def migrate(self, location: Location, context: DriverContext) -> Migration:
        """Do nothing: memory has no schema."""
        del location, context
        return Migration(before=1, after=1)
