"""A host that dies at a chosen write: the store under its driver counts, and kills.

Owns the points at which a flow's host can die with something to lose: just before a write of
instances is applied, and just after, when nobody hears of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from outlive.names import HostId
from outlive.ports.driver import Driver, DriverFactory
from outlive.testing.faults import Faults
from outlive.testing.faulty_driver import FaultyDriver
from outlive.testing.history import History
from outlive.testing.simulated_runtime import SimulatedStore
from outlive.testing.simulation import SimHost

T = TypeVar("T")

HOST = "host"
"""The machine that dies."""

WRITES = ("start", "commit", "transact", "release")
"""The methods of the port that advance an instance."""


class CrashPoint:
    """Which write of one machine kills it, and on which side of it; ``None`` only counts them."""

    def __init__(
        self, number: int | None = None, *, applied: bool = False, machine: str = HOST
    ) -> None:
        self.number = number
        self.applied = applied
        self.machine = machine
        self.seen = 0
        self.died: str | None = None

    def __str__(self) -> str:
        if self.number is None:
            return "without a crash"
        side = "after" if self.applied else "before"
        return f"with a crash {side} write {self.number} ({self.died or 'which never came'})"

    async def around(self, host: SimHost, write: str, apply: Callable[[], Awaitable[T]]) -> T:
        """Apply a write, and kill its host on the chosen side of the chosen one."""
        if host.machine != self.machine:
            return await apply()
        self.seen += 1
        if self.seen != self.number:
            return await apply()
        self.died = write
        if not self.applied:
            host.crash()
            # The request was lost with its host: nobody waits for an answer.
            await asyncio.get_running_loop().create_future()
        result = await apply()
        host.crash()
        return result


class CrashingStore(SimulatedStore):
    """A simulated store that kills a host at the crash point."""

    def __init__(
        self,
        factory: DriverFactory,
        url: str,
        faults: Faults,
        history: History,
        point: CrashPoint,
    ) -> None:
        super().__init__(factory, url, faults, history)
        self._point = point

    async def open_for(self, host: SimHost, host_id: HostId, *, role: str = "host") -> Driver:
        """A driver behind the network of ``host``, and on the far side of it the crash point."""
        driver = cast("Driver", _Driver(await self.open(host_id, role=role), self._point, host))
        return FaultyDriver(driver, self.faults, host, self.history)


class _Driver:
    """A driver whose instances are watched."""

    def __init__(self, driver: Driver, point: CrashPoint, host: SimHost) -> None:
        self._driver = driver
        self.instances: object = None
        if driver.instances is not None:
            self.instances = _Instances(driver.instances, point, host)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)


class _Instances:
    """A store of instances whose writes pass the crash point."""

    def __init__(self, store: object, point: CrashPoint, host: SimHost) -> None:
        self._store = store
        self._point = point
        self._host = host

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in WRITES:
            return method

        async def write(*args: Any, **kwargs: Any) -> Any:
            return await self._point.around(self._host, name, lambda: method(*args, **kwargs))

        return write
