"""Any port behind a faulty network, for one simulated host.

Owns the way of a call from a host to its store and back. Must never answer by itself: what the
store decided is passed on, late, twice or not at all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from dataclasses import replace
from typing import Any, TypeVar, cast

from outlive.model.options import CLOCK_DRIFT
from outlive.names import HostId
from outlive.ports.driver import Driver
from outlive.ports.wakeups import Listener, Wakeup, Wakeups
from outlive.testing.faults import Faults, Repeat
from outlive.testing.simulation import SimHost

T = TypeVar("T")

Forward = Callable[..., Coroutine[Any, Any, Any]]
"""The rest of the way of a call; it takes the arguments of the method."""

# These join a transaction of the caller: there is no network between the two.
_IN_TRANSACTION = frozenset({"leases.guard", "jobs.enqueue_in", "instances.start_in"})

_REPEATS = {
    # What an answered claim took a second time would have no worker until its session ends.
    "jobs.claim": Repeat.UNANSWERED,
    "instances.claim": Repeat.UNANSWERED,
    # A transaction is no message.
    "instances.transact": Repeat.NEVER,
    # Acts of an operator: carried out late again, they would undo the newer act.
    "instances.suspend": Repeat.NEVER,
    "instances.resume": Repeat.NEVER,
}


class Interceptor:
    """Sees each call of a port on both sides of the network; this one only forwards.

    ``operation`` is the port and the method: ``jobs.claim``. Subclasses record, or do more harm.
    """

    def on_host(
        self,
        host: SimHost,
        operation: str,
        forward: Forward,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Coroutine[Any, Any, Any]:
        """``host`` calls. ``forward`` sends the request, and ends as the call ends for the host."""
        del host, operation
        return forward(*args, **kwargs)

    def on_store(
        self,
        host: SimHost,
        operation: str,
        forward: Forward,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Coroutine[Any, Any, Any]:
        """The request has arrived, perhaps not for the first time. ``forward`` carries it out."""
        del host, operation
        return forward(*args, **kwargs)


class FaultProxy:
    """A port as a host sees it through the network: it has the port's async methods.

    Each call may fail before it is sent, be lost, be late, be carried out twice, lose its reply, or
    cost the host its life: ``Faults`` decides. What was sent goes on without its caller.

    Args:
        name: Which port it is, as a driver calls it: ``leases``, ``jobs``.
        port: The port itself.
        faults: The network of the simulation.
        host: The host that calls.
        interceptor: What else happens to calls.
    """

    def __init__(
        self,
        name: str,
        port: object,
        faults: Faults,
        host: SimHost,
        interceptor: Interceptor | None = None,
    ) -> None:
        self._name = name
        self._port = port
        self._faults = faults
        self._host = host
        self._interceptor = interceptor or Interceptor()

    def __getattr__(self, name: str) -> Forward:
        method = getattr(self._port, name)
        if not inspect.iscoroutinefunction(method):
            raise AttributeError(f"{name!r} is no async method of {self._port!r}")
        operation = f"{self._name}.{name}"
        if operation in _IN_TRANSACTION:
            return method
        faults, host, interceptor = self._faults, self._host, self._interceptor
        repeat = _REPEATS.get(operation, Repeat.ALWAYS)

        def send(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
            return faults.call(
                host,
                lambda: interceptor.on_store(host, operation, method, args, kwargs),
                repeat=repeat,
            )

        def call(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
            return interceptor.on_host(host, operation, send, args, kwargs)

        # The next call finds it without asking here.
        self.__dict__[name] = call
        return call


class FaultyWakeups:
    """Wake-ups that arrive late or never, on the host that asked for them."""

    def __init__(self, wakeups: Wakeups, faults: Faults) -> None:
        self._wakeups = wakeups
        self._faults = faults

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """See the port."""
        loop = self._faults.simulation.loop
        context = copy_context()

        def deliver(wakeup: Wakeup) -> None:
            if not self._faults.loses_wakeup():
                loop.call_later(self._faults.wakeup_delay_s(), listener, wakeup, context=context)

        return self._wakeups.subscribe(deliver)

    async def ring(self, wakeup: Wakeup, *, host: HostId | None = None) -> None:
        """See the port."""
        await self._wakeups.ring(wakeup, host=host)

    @property
    def deaf(self) -> bool:
        """What the driver itself knows; lost wake-ups are not known to be lost."""
        return self._wakeups.deaf


class FaultyDriver:
    """An open driver behind the network of one simulation, for one host.

    Its capabilities admit the drift of clocks, because simulated hosts do not share the store's. It
    has no bearer tokens, because a simulation serves no HTTP.
    """

    def __init__(
        self, driver: Driver, faults: Faults, host: SimHost, interceptor: Interceptor | None = None
    ) -> None:
        def behind(name: str, port: T) -> T:
            if port is None:
                return port
            return cast("T", FaultProxy(name, port, faults, host, interceptor))

        self.capabilities = replace(driver.capabilities, drift=CLOCK_DRIFT, across="network")
        self.leases = behind("leases", driver.leases)
        self.hosts = behind("hosts", driver.hosts)
        self.jobs = behind("jobs", driver.jobs)
        self.instances = behind("instances", driver.instances)
        self.schedules = behind("schedules", driver.schedules)
        self.tokens = None
        self.wakeups = FaultyWakeups(driver.wakeups, faults)
        # Requests under way find the driver closed.
        self.check = driver.check
        self.close = driver.close
