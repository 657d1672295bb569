"""``App``: what a module defines, before any connection exists.

A registry and nothing else: importing a module that uses it does no I/O. A host is an ``App``
connected to a store, so every peer that imports the same module can do the same work.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import UsageError
from holdfast.leases.every import INTERVAL_MIN_S
from holdfast.leases.lease import Lease
from holdfast.model.options import Duration, seconds
from holdfast.names import check_host, check_key

if TYPE_CHECKING:
    from holdfast.charts.chart import Chart, Implementations
    from holdfast.charts.document import Source

LeaderFunction = TypeVar("LeaderFunction", bound=Callable[[Lease], Awaitable[None]])
PeriodicFunction = TypeVar("PeriodicFunction", bound=Callable[..., Awaitable[None] | None])


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRole:
    """A function that runs while its host leads."""

    key: str
    function: Callable[[Lease], Awaitable[None]]
    options: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicRole:
    """A function that one host runs at each tick."""

    key: str
    interval_s: float
    function: Callable[..., Awaitable[None] | None]
    options: dict[str, Any] = field(default_factory=dict[str, Any])


def _check_leader(function: object, key: str) -> None:
    if inspect.isfunction(function) and not inspect.iscoroutinefunction(function):
        raise UsageError(f"leader {key!r}: write it as `async def {function.__name__}(lease)`")


class App:
    """A named set of things that a host does once it is connected and ``run()``."""

    def __init__(self, name: str) -> None:
        self.name = check_host(name)
        self.leaders: dict[str, LeaderRole] = {}
        self.periodics: dict[str, PeriodicRole] = {}
        self.charts: dict[str, Chart] = {}

    def __repr__(self) -> str:
        return f"<App {self.name!r}>"

    def leader(
        self, key: str, *, ttl: Duration | None = None, **options: Any
    ) -> Callable[[LeaderFunction], LeaderFunction]:
        """Run the function while this host leads ``key``; one host of the fleet does at a time.

        It is given the lease, is cancelled when leadership is lost or the host drains, and is
        started again when this host is elected again. Returning resigns.

        Raises:
            UsageError: The key is used twice, or the arguments are wrong.
        """
        check_key(key)
        if key in self.leaders:
            raise UsageError(f"leader {key!r} is defined twice in {self!r}")

        def register(function: LeaderFunction) -> LeaderFunction:
            _check_leader(function, key)
            if ttl is not None:
                options["ttl"] = seconds(ttl, "ttl", zero=False)
            self.leaders[key] = LeaderRole(key=key, function=function, options=options)
            return function

        return register

    def every(
        self, interval: Duration, *, key: str | None = None, **options: Any
    ) -> Callable[[PeriodicFunction], PeriodicFunction]:
        """Run the function each ``interval``, on one host of the fleet, at most once per tick.

        Ticks are aligned to the epoch, so that all hosts agree on them. A function with a
        parameter is given the ``Tick``, which says how many ticks were missed before it.

        Raises:
            UsageError: The key is used twice, or the arguments are wrong.
        """
        interval_s = seconds(interval, "interval", least=INTERVAL_MIN_S)

        def register(function: PeriodicFunction) -> PeriodicFunction:
            name = check_key(key if key is not None else getattr(function, "__name__", ""))
            if name in self.periodics:
                raise UsageError(f"periodic function {name!r} is defined twice in {self!r}")
            self.periodics[name] = PeriodicRole(
                key=name, interval_s=interval_s, function=function, options=options
            )
            return function

        return register

    def chart(
        self,
        config: Source,
        *,
        name: str | None = None,
        actions: Implementations | None = None,
        guards: Implementations | None = None,
        services: Implementations | None = None,
        delays: Implementations | None = None,
        activities: Implementations | None = None,
    ) -> Chart:
        """Compile a statechart and keep it under ``name``, by default the document's id.

        Takes what ``Chart.load`` takes: a dict, JSON text or a path, and implementations by name.

        Raises:
            UsageError: The name is used twice.
            InvalidChart: The document is wrong; the error lists everything that is.
        """
        # Here, so that a program without charts does not pay for their import.
        from holdfast.charts.chart import Chart

        made = Chart.load(
            config,
            actions=actions,
            guards=guards,
            services=services,
            delays=delays,
            activities=activities,
        )
        wanted = check_key(made.id if name is None else name)
        if wanted in self.charts:
            raise UsageError(f"chart {wanted!r} is defined twice in {self!r}")
        self.charts[wanted] = made
        return made
