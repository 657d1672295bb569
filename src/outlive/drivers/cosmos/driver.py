"""The factory and the driver: joins connection, store and observations, and looks at their health.

Owns opening and closing. A keeper opens a connection of its own and checks nothing: its host has.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlive.drivers.cosmos.connection import Connection
from outlive.drivers.cosmos.container import Container
from outlive.drivers.cosmos.health import look
from outlive.drivers.cosmos.items import SCHEMA
from outlive.drivers.cosmos.lease_reader import LeaseReader
from outlive.drivers.cosmos.lease_store import CosmosLeaseStore
from outlive.drivers.cosmos.observation import Observations
from outlive.drivers.cosmos.provisioning import Account, prepare, read_account, remove
from outlive.drivers.cosmos.settings import OPTIONS, CosmosSettings, read_settings
from outlive.model.location import Location
from outlive.model.options import CLOCK_DRIFT
from outlive.ports.capabilities import Capabilities
from outlive.ports.driver import DriverContext, Finding, Migration
from outlive.ports.hearing import NoWakeups

CAPABILITIES = Capabilities(
    backend="Azure Cosmos DB",
    fifo=False,
    push=False,
    history=False,
    semaphore=False,
    multi_key=True,
    sessions=False,
    guard=(),
    across="network",
    clock="the service, or each host's own by observing the item",
    drift=CLOCK_DRIFT,
    # A renewal three times per ttl over a network needs some tens of milliseconds each.
    ttl_min_s=0.1,
    ttl_max_s=None,
    observes=True,
)


class CosmosFactory:
    """Opens drivers for ``cosmos://``."""

    capabilities = CAPABILITIES
    options = OPTIONS

    async def open(self, location: Location, context: DriverContext) -> CosmosDriver:
        """Connect; create the container if it is missing and may be made; see the port."""
        settings = read_settings(location, context.options)
        connection = Connection(settings, context)
        container = Container(connection, settings)
        try:
            await connection.open()
            account = Account()
            if context.role == "host":
                account = read_account(await connection.account())
                await prepare(container, settings, account, create=context.create)
        except BaseException:
            await connection.close()
            raise
        return CosmosDriver(connection, container, settings, context, account)

    async def migrate(self, location: Location, context: DriverContext) -> Migration:
        """Create the container where it is missing; items need no migration."""
        driver = await self.open(location, context)
        await driver.close()
        return Migration(before=SCHEMA, after=SCHEMA)


class CosmosDriver:
    """An open container."""

    capabilities = CAPABILITIES
    # No sessions: one for each host would cost a write each few seconds.
    hosts = jobs = instances = schedules = tokens = None

    def __init__(
        self,
        connection: Connection,
        container: Container,
        settings: CosmosSettings,
        context: DriverContext,
        account: Account,
    ) -> None:
        self._connection = connection
        self._container = container
        self._settings = settings
        self._clock = context.clock
        self._account = account
        observations = Observations(
            context.clock,
            context.host,
            fast=settings.fast_takeover,
            skew_s=settings.max_server_skew_s,
        )
        reader = LeaseReader(connection, container, observations, context.clock, context.namespace)
        self.leases = CosmosLeaseStore(
            connection, container, reader, observations, context, account.write_region
        )
        self.wakeups = NoWakeups()

    async def check(self) -> Sequence[Finding]:
        """Look at the account, the container and the clocks; see the port."""
        return await look(
            self._connection, self._container, self._settings, self._account, self._clock
        )

    async def remove(self) -> None:
        """Delete the container, with all leases in it. Who owns one loses it."""
        await remove(self._container, self._settings)

    async def close(self) -> None:
        """Give everything back. Repeatable."""
        await self._connection.close()
