"""The namespaces that a server serves, each with its open ports.

Owns what the routes reach: a request gets the space of its principal's namespace, and never any
other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from outlive.clock import Clock
from outlive.errors import ConfigurationError, UnsupportedByDriver
from outlive.flows.flows import Flows
from outlive.ports.driver import Driver
from outlive.ports.job_store import JobStore
from outlive.ports.token_store import TokenStore
from outlive.runtime.runtime import Runtime
from outlive.server.access import Principal
from outlive.server.handed import Handed
from outlive.server.limits import Limits
from outlive.server.measuring import Measuring
from outlive.server.sessions import Sessions
from outlive.server.waiting import Waiters
from outlive.telemetry import Telemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """One namespace: its jobs, its tokens, and the sessions and claims of its workers."""

    namespace: str
    driver: Driver
    jobs: JobStore
    tokens: TokenStore
    sessions: Sessions
    handed: Handed


Opened = Callable[[str, float], None]
"""Told of each session that is opened for a worker: the namespace, and the ttl in seconds."""


def _space(namespace: str, driver: Driver, runtime: Runtime, opened: Opened) -> Space:
    jobs, hosts, tokens = driver.jobs, driver.hosts, driver.tokens
    if jobs is None or hosts is None or tokens is None:
        raise ConfigurationError(
            f"{driver.capabilities.backend} does not support jobs, so there is nothing to serve: "
            "use sqlite://, postgresql:// or redis://"
        )
    sessions = Sessions(hosts, runtime.clock, runtime.new_id, partial(opened, namespace))
    return Space(
        namespace=namespace,
        driver=driver,
        jobs=jobs,
        tokens=tokens,
        sessions=sessions,
        handed=Handed(runtime.clock),
    )


class Spaces:
    """All namespaces of one server, and what its routes share."""

    def __init__(
        self,
        drivers: Mapping[str, Driver],
        runtime: Runtime,
        bounds: Limits,
        flows: Mapping[str, Flows],
        opened: Opened,
        telemetry: Telemetry,
    ) -> None:
        self._spaces = {
            name: _space(name, driver, runtime, opened) for name, driver in drivers.items()
        }
        self._flows = flows
        self.runtime = runtime
        self.bounds = bounds
        self.measuring = Measuring(telemetry, runtime.clock)
        self.waiters = Waiters(bounds.waiters_per_bearer)
        self._unsubscribe: list[Callable[[], None]] = []
        for name, driver in drivers.items():
            listener = partial(self.waiters.ring, name)
            self._unsubscribe.append(driver.wakeups.subscribe(listener))

    @property
    def clock(self) -> Clock:
        """The server's clock."""
        return self.runtime.clock

    @property
    def tokens(self) -> dict[str, TokenStore]:
        """The tokens of every namespace."""
        return {name: space.tokens for name, space in self._spaces.items()}

    @property
    def all(self) -> list[Space]:
        """Every namespace."""
        return list(self._spaces.values())

    def of(self, principal: Principal) -> Space:
        """The namespace that the principal's token belongs to."""
        return self._spaces[principal.namespace]

    def flows_of(self, principal: Principal) -> Flows:
        """The flows of the namespace that the principal's token belongs to.

        Raises:
            UnsupportedByDriver: Its store keeps none.
        """
        flows = self._flows.get(principal.namespace)
        if flows is None:
            raise UnsupportedByDriver("the store of this namespace does not support flows")
        return flows

    def at(self, deadline: float) -> tuple[datetime, float]:
        """A monotonic deadline as an instant for people, and the seconds until then."""
        left_s = max(0.0, deadline - self.clock.monotonic())
        return self.clock.now() + timedelta(seconds=left_s), left_s

    def close(self) -> None:
        """Stop listening and let waiters go. Repeatable."""
        self.waiters.stop()
        while self._unsubscribe:
            self._unsubscribe.pop()()
