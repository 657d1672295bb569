"""A third-party driver, whole: it promises little, and says so in its capabilities.

A package registers ``FileFactory`` under the entry-point group ``outlive.drivers``, with the URL
scheme as the name; ``connect("file:///path")`` finds it from then on.
"""

from pathlib import Path

from outlive.ports.capabilities import Capabilities
from outlive.ports.driver import Finding, Migration
from outlive.ports.hearing import NoWakeups
from tests.conformance.example_lease_store import FileLeaseStore

PROMISES = Capabilities(
    backend="file",
    fifo=False,
    push=False,
    history=False,
    semaphore=False,
    multi_key=False,
    sessions=False,
    guard=(),
    across="machine",
    clock="the machine's boot-time clock",
    drift=0.0,
    ttl_min_s=0.001,
    ttl_max_s=None,
)


class FileDriver:
    capabilities = PROMISES
    hosts = None  # No sessions: the port is left out, and the capabilities say so.
    jobs = None
    schedules = None
    tokens = None

    def __init__(self, path, context):
        self.leases = FileLeaseStore(path, context)
        # Waiters must poll: nothing ever arrives here.
        self.wakeups = NoWakeups()

    async def check(self):
        return [Finding(level="ok", what=f"the leases are in {self.leases.path}")]

    async def close(self):
        self.leases.closed = True


class FileFactory:
    capabilities = PROMISES
    options = frozenset()

    async def open(self, location, context):
        return FileDriver(Path(location.path), context)

    async def migrate(self, location, context):
        return Migration(before=1, after=1)
