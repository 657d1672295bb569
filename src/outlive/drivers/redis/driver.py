"""The factory and the driver: joins the connection, the store and wake-ups.

Owns opening and closing. Holds no script.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlive.drivers.redis.epoch import Epoch
from outlive.drivers.redis.health import look
from outlive.drivers.redis.host_store import RedisHostStore
from outlive.drivers.redis.job_store import RedisJobStore
from outlive.drivers.redis.lease_store import RedisLeaseStore
from outlive.drivers.redis.link import Link
from outlive.drivers.redis.settings import OPTIONS, RedisSettings, read_settings
from outlive.drivers.redis.token_store import RedisTokenStore
from outlive.drivers.redis.wakeups import RedisWakeups
from outlive.model.location import Location
from outlive.model.options import CLOCK_DRIFT
from outlive.ports.capabilities import Capabilities
from outlive.ports.driver import DriverContext, Finding, Migration

CAPABILITIES = Capabilities(
    backend="Redis",
    fifo=True,
    push=True,
    history=True,
    semaphore=True,
    multi_key=True,
    sessions=True,
    guard=(),
    across="network",
    clock="TIME of the server",
    drift=CLOCK_DRIFT,
    # A renewal three times per ttl over a network needs some tens of milliseconds each.
    ttl_min_s=0.1,
    ttl_max_s=None,
    jobs=True,
    ordering=False,
    queue_limits=False,
)

# There is one form of the keys so far.
_SCHEMA = 1


class RedisFactory:
    """Opens drivers for ``redis://``, ``rediss://`` and ``redis+unix://``."""

    capabilities = CAPABILITIES
    options = OPTIONS

    async def open(self, location: Location, context: DriverContext) -> RedisDriver:
        """Connect; see the port. There is nothing to create."""
        settings = read_settings(location, context.options)
        epoch = Epoch(settings, context)
        link = Link(settings, context, epoch)
        driver = RedisDriver(link, settings, context, epoch)
        try:
            server = await link.open()
            if server.evicts and context.role == "host":
                context.logger.warning(
                    "%s may evict leases and jobs when its memory is full (maxmemory-policy %s); "
                    "set noeviction",
                    settings.shown,
                    server.policy,
                )
            await driver.wakeups.start()
        except BaseException:
            # Nobody else could: a caller that was cancelled never sees the driver.
            await driver.close()
            raise
        return driver

    async def migrate(self, location: Location, context: DriverContext) -> Migration:
        """Change nothing: there is one form of the keys; see the port."""
        settings = read_settings(location, context.options)
        link = Link(settings, context, Epoch(settings, context))
        try:
            await link.open()
        finally:
            await link.close()
        return Migration(before=_SCHEMA, after=_SCHEMA)


class RedisDriver:
    """An open store."""

    capabilities = CAPABILITIES
    instances = schedules = None

    def __init__(
        self, link: Link, settings: RedisSettings, context: DriverContext, epoch: Epoch
    ) -> None:
        self._link = link
        self._settings = settings
        self._context = context
        self._epoch = epoch
        keys = settings.keys_of(context.namespace)
        self.leases = RedisLeaseStore(link, epoch, keys)
        self.hosts = RedisHostStore(link, epoch, keys)
        self.jobs = RedisJobStore(link, epoch, keys, context.host)
        self.tokens = RedisTokenStore(link, keys)
        self.wakeups = RedisWakeups(link, settings, context, epoch)

    async def check(self) -> Sequence[Finding]:
        """Look at the server's health and settings; see the port."""
        return await look(
            self._link,
            self._settings,
            self._context,
            epoch_key=self._epoch.key,
            deaf=self.wakeups.deaf_now,
        )

    async def close(self) -> None:
        """Give everything back. Repeatable; a child of a fork leaves the parent's alone."""
        if self._link.forked:
            return
        await self.wakeups.close()
        await self._link.close()
