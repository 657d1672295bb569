"""How a backend joins: a factory found by URL scheme, and the driver it opens.

A third party registers its factory under the entry-point group ``outlive.drivers`` with the URL
scheme as its name.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from outlive.clock import Clock
from outlive.model.location import Location
from outlive.names import HostId
from outlive.ports.capabilities import Capabilities
from outlive.ports.host_store import HostStore
from outlive.ports.instance_store import InstanceStore
from outlive.ports.job_store import JobStore
from outlive.ports.lease_store import LeaseStore
from outlive.ports.schedule_store import ScheduleStore
from outlive.ports.token_store import TokenStore
from outlive.ports.wakeups import Wakeups


def _unmeasured(unit: str, amount: float) -> None:
    """Nobody counts what the store charges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverContext:
    """What a driver is given. It takes time, randomness and identity from here alone.

    ``role`` is ``host`` for the application's own event loop and ``keeper`` for the thread that
    renews. A keeper's driver serves few, urgent calls: it needs no listener, and when one of its
    callers is cancelled it abandons the connection, because a renewal must not wait for the dead.
    Without ``create``, a store that is not there yet is ``SchemaMismatch`` with ``found`` of 0: a
    tool that only looks must not make one out of a mistyped URL.

    ``measure`` is told what each request cost, by a driver whose store charges for requests: a unit
    (``request_units``) and an amount. It returns at once and never raises.
    """

    clock: Clock
    random: random.Random
    namespace: str
    host: HostId
    role: str = "host"
    migrate: bool | None = None
    create: bool = True
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("outlive.driver"))
    measure: Callable[[str, float], None] = _unmeasured


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of ``outlive doctor``: ``level`` is ``ok``, ``warning`` or ``error``."""

    level: str
    what: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """What ``migrate`` did: the schema's number before and after."""

    before: int
    after: int


class Driver(Protocol):
    """An open store: the ports it can keep."""

    @property
    def capabilities(self) -> Capabilities:
        """What it promises."""
        ...

    @property
    def leases(self) -> LeaseStore:
        """Leases of the namespace it was opened for."""
        ...

    @property
    def hosts(self) -> HostStore | None:
        """Sessions, or ``None`` where the backend keeps none."""
        ...

    @property
    def jobs(self) -> JobStore | None:
        """Jobs of the namespace, or ``None`` where the backend keeps none."""
        ...

    @property
    def instances(self) -> InstanceStore | None:
        """Instances of the namespace, or ``None`` where the backend keeps none."""
        ...

    @property
    def schedules(self) -> ScheduleStore | None:
        """Schedules of the namespace, or ``None`` where the backend keeps none."""
        ...

    @property
    def tokens(self) -> TokenStore | None:
        """Bearer tokens of the HTTP API, or ``None`` where the backend keeps none."""
        ...

    @property
    def wakeups(self) -> Wakeups:
        """Hints between hosts."""
        ...

    async def check(self) -> Sequence[Finding]:
        """Look at the store's health and settings, for ``outlive doctor`` and health checks."""
        ...

    async def close(self) -> None:
        """Give everything back. Repeatable.

        Calls under way end with ``StoreUnavailable``, or with ``OutcomeUnknown`` where they may
        have been applied.
        """
        ...


class DriverFactory(Protocol):
    """Opens drivers for one URL scheme. Reading its attributes imports no client library."""

    @property
    def capabilities(self) -> Capabilities:
        """What its drivers promise."""
        ...

    @property
    def options(self) -> frozenset[str]:
        """Names of the options it takes, in the URL's query or as arguments to connect."""
        ...

    async def open(self, location: Location, context: DriverContext) -> Driver:
        """Connect; create the schema if the store is empty and the context lets us.

        Raises:
            ConfigurationError: The URL, an option or the installation is wrong.
            StoreUnavailable: The store cannot be reached.
            SchemaMismatch: The schema is older or newer than this release and may not be changed.
        """
        ...

    async def migrate(self, location: Location, context: DriverContext) -> Migration:
        """Bring the schema to this release, under a lock, or change nothing.

        Raises:
            StoreUnavailable: The store cannot be reached.
            SchemaMismatch: The store was written by a newer release.
        """
        ...
