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

    @property
    def capabilities(self) -> Capabilities:
        """What its drivers promise."""
        return CAPABILITIES

    @property
    def options(self) -> frozenset[str]:
        """Names of the options it takes."""
        return OPTIONS

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

    def __init__(
        self, link: Link, settings: RedisSettings, context: DriverContext, epoch: Epoch
    ) -> None:
        self._link = link
        self._settings = settings
        self._context = context
        self._epoch = epoch
        keys = settings.keys_of(context.namespace)
        self._leases = RedisLeaseStore(link, epoch, keys)
        self._hosts = RedisHostStore(link, epoch, keys)
        self._jobs = RedisJobStore(link, epoch, keys, context.host)
        self._tokens = RedisTokenStore(link, keys)
        self._wakeups = RedisWakeups(link, settings, context, epoch)

    @property
    def capabilities(self) -> Capabilities:
        """What it promises."""
        return CAPABILITIES

    @property
    def leases(self) -> RedisLeaseStore:
        """Leases of the namespace."""
        return self._leases

    @property
    def hosts(self) -> RedisHostStore:
        """Sessions of the namespace."""
        return self._hosts

    @property
    def jobs(self) -> RedisJobStore:
        """Jobs of the namespace."""
        return self._jobs

    @property
    def instances(self) -> None:
        """No instances are kept."""
        return

    @property
    def schedules(self) -> None:
        """No schedules are kept."""
        return

    @property
    def tokens(self) -> RedisTokenStore:
        """Bearer tokens of the namespace."""
        return self._tokens

    @property
    def wakeups(self) -> RedisWakeups:
        """Hints between hosts."""
        return self._wakeups

    async def check(self) -> Sequence[Finding]:
        """Look at the server's health and settings; see the port."""
        return await look(
            self._link,
            self._settings,
            self._context,
            epoch_key=self._epoch.key,
            deaf=self._wakeups.deaf_now,
        )

    async def close(self) -> None:
        """Give everything back. Repeatable; a child of a fork leaves the parent's alone."""
        if self._link.forked:
            return
        await self._wakeups.close()
        await self._link.close()
