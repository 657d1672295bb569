"""The factory and the driver: joins requests, leases and health.

Owns opening and closing. Decides nothing about leases.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlive.drivers.azblob.blobs import Blobs
from outlive.drivers.azblob.connection import Connection
from outlive.drivers.azblob.health import look
from outlive.drivers.azblob.lease_store import AzureBlobLeaseStore
from outlive.drivers.azblob.service_clock import ServiceClock
from outlive.drivers.azblob.settings import OPTIONS, AzureBlobSettings, read_settings
from outlive.drivers.azblob.ttls import TTL_MAX_S, TTL_MIN_S
from outlive.model.location import Location
from outlive.model.options import CLOCK_DRIFT
from outlive.ports.capabilities import Capabilities
from outlive.ports.driver import DriverContext, Finding, Migration
from outlive.ports.hearing import NoWakeups

CAPABILITIES = Capabilities(
    backend="Azure Blob Storage",
    fifo=False,
    push=False,
    history=False,
    semaphore=False,
    multi_key=True,
    sessions=False,
    guard=(),
    across="network",
    clock="the storage service",
    drift=CLOCK_DRIFT,
    ttl_min_s=TTL_MIN_S,
    ttl_max_s=TTL_MAX_S,
)


class AzureBlobFactory:
    """Opens drivers for ``azblob://``."""

    capabilities = CAPABILITIES
    options = OPTIONS

    async def open(self, location: Location, context: DriverContext) -> AzureBlobDriver:
        """Connect; create the container if it is missing; see the port."""
        settings = read_settings(location, context.options)
        clock = ServiceClock(context.clock)
        blobs = Blobs(Connection(settings, context, clock), settings, context)
        try:
            await blobs.prepare()
        except BaseException:
            await blobs.close()
            raise
        return AzureBlobDriver(blobs, settings, context, clock)

    async def migrate(self, location: Location, context: DriverContext) -> Migration:
        """Do nothing but look: a container has no schema; each blob says how it is written."""
        driver = await self.open(location, context)
        await driver.close()
        return Migration(before=1, after=1)


class AzureBlobDriver:
    """An open container."""

    capabilities = CAPABILITIES
    # No sessions: a container cannot list what has expired.
    hosts = jobs = instances = schedules = tokens = None

    def __init__(
        self,
        blobs: Blobs,
        settings: AzureBlobSettings,
        context: DriverContext,
        clock: ServiceClock,
    ) -> None:
        self._blobs = blobs
        self._settings = settings
        self._context = context
        self._clock = clock
        self.leases = AzureBlobLeaseStore(blobs, context, clock)
        self.wakeups = NoWakeups()

    async def check(self) -> Sequence[Finding]:
        """Look at the container and who asks; see the port."""
        return await look(self._blobs, self._settings, self._context, self._clock)

    async def remove(self) -> None:
        """Delete the container, with all leases in it. Who owns one loses it."""
        await self._blobs.remove()

    async def close(self) -> None:
        """Give everything back. Repeatable."""
        await self.leases.close()
        await self._blobs.close()
