"""The factory and the driver: joins the way to etcd, the store and the wake-ups.

Owns opening and closing.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlive.drivers.etcd.acquiring import Acquirer
from outlive.drivers.etcd.connections import Connections
from outlive.drivers.etcd.folders import Folders
from outlive.drivers.etcd.health import look
from outlive.drivers.etcd.interest import Interest
from outlive.drivers.etcd.keys import Names
from outlive.drivers.etcd.lease_store import EtcdLeaseStore
from outlive.drivers.etcd.owning import Owners
from outlive.drivers.etcd.reading import Reader
from outlive.drivers.etcd.settings import OPTIONS, EtcdSettings, read_settings
from outlive.drivers.etcd.terms import TTL_MAX_S, Terms
from outlive.drivers.etcd.wakeups import EtcdWakeups
from outlive.model.location import Location
from outlive.model.options import CLOCK_DRIFT
from outlive.ports.capabilities import Capabilities
from outlive.ports.driver import DriverContext, Finding, Migration

CAPABILITIES = Capabilities(
    backend="etcd",
    fifo=True,
    push=True,
    history=True,
    semaphore=True,
    multi_key=True,
    sessions=False,
    guard=("aetcd",),
    across="network",
    clock="monotonic clock of the leader",
    drift=CLOCK_DRIFT,
    # etcd counts whole seconds, and raises a ttl to one and a half election time-outs: with its
    # defaults to 2 s.
    ttl_min_s=1.0,
    ttl_max_s=float(TTL_MAX_S),
    # The leader looks for expired leases twice a second, and commits what it found.
    expiry_late_s=0.75,
)


class EtcdFactory:
    """Opens drivers for ``etcd://`` and ``etcds://``."""

    @property
    def capabilities(self) -> Capabilities:
        """What its drivers promise."""
        return CAPABILITIES

    @property
    def options(self) -> frozenset[str]:
        """Names of the options it takes."""
        return OPTIONS

    async def open(self, location: Location, context: DriverContext) -> EtcdDriver:
        """Connect; see the port. There is no schema to create."""
        settings = read_settings(location, context.options)
        connections = Connections(settings, context)
        names = Names(settings.prefix, context.namespace)
        driver = EtcdDriver(connections, settings, context, names)
        try:
            # Proves the address, the login and the permission to read.
            await connections.page(names.leases, names.leases_end, limit=1)
            await driver.wakeups.start()
        except BaseException:
            # Nobody else could: a caller that was cancelled never sees the driver.
            await driver.close()
            raise
        return driver

    async def migrate(self, location: Location, context: DriverContext) -> Migration:
        """Do nothing: what is stored is understood by every release."""
        del location, context
        return Migration(before=1, after=1)


class EtcdDriver:
    """An open store."""

    def __init__(
        self,
        connections: Connections,
        settings: EtcdSettings,
        context: DriverContext,
        names: Names,
    ) -> None:
        self._connections = connections
        self._settings = settings
        self._context = context
        folders = Folders(connections, names, context)
        self._terms = Terms(connections, context)
        owners = Owners(connections, folders, self._terms, context)
        waiting = Interest(context.clock)
        self._wakeups = EtcdWakeups(connections, folders, self._terms, waiting, context)
        acquirer = Acquirer(connections, folders, self._terms, owners, context, waiting)
        self._leases = EtcdLeaseStore(acquirer, owners, Reader(connections, folders, context))

    @property
    def capabilities(self) -> Capabilities:
        """What it promises."""
        return CAPABILITIES

    @property
    def leases(self) -> EtcdLeaseStore:
        """Leases of the namespace."""
        return self._leases

    @property
    def hosts(self) -> None:
        """None: a lease of etcd ends with its host, and nothing else here refers to hosts."""
        return

    @property
    def jobs(self) -> None:
        """No jobs are kept."""
        return

    @property
    def instances(self) -> None:
        """No instances are kept."""
        return

    @property
    def schedules(self) -> None:
        """No schedules are kept."""
        return

    @property
    def tokens(self) -> None:
        """No bearer tokens are kept."""
        return

    @property
    def wakeups(self) -> EtcdWakeups:
        """Hints between hosts."""
        return self._wakeups

    async def check(self) -> Sequence[Finding]:
        """Look at the cluster's health; see the port."""
        return await look(
            self._connections, self._settings, self._context, deaf=self._wakeups.deaf_now
        )

    async def close(self) -> None:
        """Give everything back. Repeatable; a child of a fork leaves the parent's alone."""
        if self._connections.forked:
            return
        await self._wakeups.close()
        await self._terms.close()
        await self._connections.close()
