"""The factory and the driver: joins connections, stores and wake-ups, and looks at their health.

Owns opening and closing. Holds no statement of the stores.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlive.drivers.postgres.connections import Connections
from outlive.drivers.postgres.guard import Guard
from outlive.drivers.postgres.health import look
from outlive.drivers.postgres.host_store import PostgresHostStore
from outlive.drivers.postgres.instance_store import PostgresInstanceStore
from outlive.drivers.postgres.job_store import PostgresJobStore
from outlive.drivers.postgres.lease_store import PostgresLeaseStore
from outlive.drivers.postgres.schedule_store import PostgresScheduleStore
from outlive.drivers.postgres.schema import STORE, migrations, prepare, store_id
from outlive.drivers.postgres.settings import OPTIONS, PostgresSettings, read_settings
from outlive.drivers.postgres.token_store import PostgresTokenStore
from outlive.drivers.postgres.wakeups import PostgresWakeups, channel_of
from outlive.model.location import Location
from outlive.model.options import CLOCK_DRIFT
from outlive.model.schema_version import NEWER_SERVED
from outlive.ports.capabilities import Capabilities
from outlive.ports.driver import DriverContext, Finding, Migration

CAPABILITIES = Capabilities(
    backend="PostgreSQL",
    fifo=True,
    push=True,
    history=True,
    semaphore=True,
    multi_key=True,
    sessions=True,
    guard=("asyncpg", "psycopg", "sqlalchemy", "django"),
    across="network",
    clock="clock_timestamp() of the server",
    drift=CLOCK_DRIFT,
    # A renewal three times per ttl over a network needs some tens of milliseconds each.
    ttl_min_s=0.1,
    ttl_max_s=None,
    jobs=True,
    ordering=True,
    queue_limits=True,
    schedules=True,
    instances=True,
    transact="async",
)


class PostgresFactory:
    """Opens drivers for ``postgresql://`` and ``postgres://``."""

    capabilities = CAPABILITIES
    options = OPTIONS

    async def open(self, location: Location, context: DriverContext) -> PostgresDriver:
        """Connect; create the schema in an empty database; see the port."""
        settings = read_settings(location, context.options, role=context.role)
        connections = Connections(settings, context)
        try:
            done = await prepare(
                connections, settings, migrate=context.migrate is True, create=context.create
            )
            identity = await store_id(connections, settings)
        except BaseException:
            await connections.close()
            raise
        known = migrations()[-1][0]
        if done.after > known and context.role == "host":
            context.logger.info(NEWER_SERVED, STORE, done.after, known)
        driver = PostgresDriver(connections, settings, context, identity)
        await driver.wakeups.start()
        return driver

    async def migrate(self, location: Location, context: DriverContext) -> Migration:
        """Bring the schema to this release; see the port."""
        settings = read_settings(location, context.options, role=context.role)
        connections = Connections(settings, context)
        try:
            return await prepare(connections, settings, migrate=True)
        finally:
            await connections.close()


class PostgresDriver:
    """An open store."""

    capabilities = CAPABILITIES

    def __init__(
        self,
        connections: Connections,
        settings: PostgresSettings,
        context: DriverContext,
        identity: str,
    ) -> None:
        self._connections = connections
        self._settings = settings
        self._context = context
        channel = channel_of(settings.schema, context.namespace)
        self.leases = PostgresLeaseStore(
            connections,
            settings,
            context,
            channel=channel,
            guard=Guard(settings, context.namespace, identity),
        )
        self.jobs = PostgresJobStore(
            connections, settings, context, channel=channel, identity=identity
        )
        self.instances = PostgresInstanceStore(
            connections, settings, context, channel=channel, identity=identity
        )
        self.hosts = PostgresHostStore(connections, settings, context.namespace)
        self.schedules = PostgresScheduleStore(
            connections, settings, context.namespace, self.jobs.enqueue_within
        )
        self.tokens = PostgresTokenStore(connections, settings, context.namespace)
        self.wakeups = PostgresWakeups(connections, settings, context, channel)

    async def check(self) -> Sequence[Finding]:
        """Look at the server's health and settings; see the port."""
        return await look(
            self._connections, self._settings, self._context, deaf=self.wakeups.deaf_now
        )

    async def close(self) -> None:
        """Give everything back. Repeatable."""
        await self.wakeups.close()
        await self._connections.close()
        await self.leases.close()
        await self.jobs.close()
        await self.instances.close()
