"""The composition root: URL -> driver -> features. The only module that names drivers.

Reads the environment and the configuration files, once, here; everything below is given what it
needs.
"""

from __future__ import annotations

import asyncio
import difflib
import importlib
import os
import socket
import sys
from collections.abc import Generator, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from outlive import settings as settings_module
from outlive.app import App
from outlive.errors import ConfigurationError, UsageError
from outlive.host import Host
from outlive.host_plan import HostPlan
from outlive.model.flow_options import FlowOptions
from outlive.model.location import Location, parse_url
from outlive.model.options import Duration, LeaseOptions, known_options
from outlive.names import HostId, check_host, check_namespace
from outlive.ports.driver import Driver, DriverContext, DriverFactory
from outlive.runtime.entering import AwaitedBlock
from outlive.runtime.outside import check_outside
from outlive.runtime.runtime import Runtime
from outlive.settings import Settings
from outlive.telemetry import Telemetry, bind_host, combine, events

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_BUILT_IN = {
    "memory": "outlive.drivers.memory:MemoryFactory",
    "sqlite": "outlive.drivers.sqlite:SqliteFactory",
    "postgresql": "outlive.drivers.postgres:PostgresFactory",
    "postgres": "outlive.drivers.postgres:PostgresFactory",
    "redis": "outlive.drivers.redis:RedisFactory",
    "rediss": "outlive.drivers.redis:RedisFactory",
    "redis+unix": "outlive.drivers.redis:RedisFactory",
    "azblob": "outlive.drivers.azblob:AzureBlobFactory",
    "cosmos": "outlive.drivers.cosmos:CosmosFactory",
}
_GROUP = "outlive.drivers"

importing: ContextVar[str | None] = ContextVar("importing", default=None)
"""The module whose app is wanted, while it is imported for that: it is not meant to run yet."""


def _third_parties() -> Iterable[EntryPoint]:
    # Here, because few programs need it, and it takes a tenth of the time to import all of this.
    from importlib.metadata import entry_points

    return entry_points(group=_GROUP)


def driver_schemes() -> list[str]:
    """The URL schemes that can be connected to, third-party ones included."""
    return sorted({*_BUILT_IN, *(point.name for point in _third_parties())})


def find_factory(scheme: str) -> DriverFactory:
    """The factory that serves ``scheme``.

    Raises:
        ConfigurationError: No driver has this scheme; names the nearest that has.
    """
    target = _BUILT_IN.get(scheme)
    if target is not None:
        module, _, name = target.partition(":")
        return getattr(importlib.import_module(module), name)()
    for point in _third_parties():
        if point.name == scheme:
            factory = point.load()
            return factory() if isinstance(factory, type) else factory
    known = driver_schemes()
    near = difflib.get_close_matches(scheme, known, n=1)
    hint = f"; did you mean {near[0]}://?" if near else ""
    raise ConfigurationError(f"no driver for {scheme}:// URLs{hint} (known: {', '.join(known)})")


def check_options(factory: DriverFactory, location: Location, options: Mapping[str, Any]) -> None:
    """Refuse options that the driver does not know.

    Raises:
        ConfigurationError: Names the option and the nearest known one.
    """
    known = factory.options
    if "*" in known:
        return
    for name in {**location.options, **options}:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            listed = ", ".join(sorted(known)) or "none"
            raise ConfigurationError(
                f"unknown option {name!r} for {location.scheme}://{hint} (known: {listed})"
            )


def load_settings(**arguments: Any) -> Settings:
    """The settings that hold here and now, from arguments, environment and files."""
    return settings_module.load(arguments, environ=os.environ, directory=Path.cwd())


class _Connecting(AwaitedBlock):
    """What ``connect`` returns: ``async with`` it, or ``await`` it and close the result."""

    block = "outlive.connect(…)"

    def __init__(
        self,
        arguments: dict[str, Any],
        app: App | None,
        runtime: Runtime,
        telemetry: Telemetry | None,
    ) -> None:
        self._arguments = arguments
        self._app = app
        self._runtime = runtime
        self._telemetry = telemetry
        self._host: Host | None = None

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"not connected yet, so there is no {name!r}: write `async with outlive.connect(…) as "
            "host` or `host = await outlive.connect(…)`"
        )

    def __await__(self) -> Generator[Any, None, Host]:
        return self._open().__await__()

    async def __aenter__(self) -> Host:
        self._host = await self._open()
        return self._host

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._host is not None:
            await self._host.close()

    async def _open(self) -> Host:
        check_outside("outlive.connect()")
        if (module := importing.get()) is not None:
            raise UsageError(
                f"module {module!r} connects while it is imported: put what it starts under "
                'if __name__ == "__main__":'
            )
        if not isinstance(self._app, App | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"app must be an outlive.App, not {type(self._app).__name__}")
        settings = load_settings(**self._arguments)
        location = parse_url(settings.url or "")
        # Here, because the package imports this module before it has a version.
        from outlive import __version__

        factory = find_factory(location.scheme)
        check_options(factory, location, settings.options)
        runtime = self._runtime
        host_id = HostId(runtime.new_id())
        fallback = self._app.name if self._app else socket.gethostname()
        name = check_host(fallback if settings.name is None else settings.name)
        telemetry = combine(self._telemetry)
        logs = bind_host(name, settings.namespace)
        context = DriverContext(
            clock=runtime.clock,
            random=runtime.random,
            namespace=check_namespace(settings.namespace),
            host=host_id,
            migrate=settings.migrate,
            create=settings.create,
            options=dict(settings.options),
            logger=logs.logger("outlive.driver"),
            measure=lambda unit, amount: telemetry.record(events.STORE_SPENT, amount, unit=unit),
        )
        plan = HostPlan(
            name=name,
            id=host_id,
            namespace=settings.namespace,
            session_ttl_s=settings.session_ttl_s,
            leases=settings.leases,
            metadata=_metadata(name, host_id, runtime),
            version=__version__,
            session=settings.session,
            flows=settings.flows,
            claim_batch=settings.claim_batch,
        )
        driver = await factory.open(location, context)

        async def open_keeper() -> Driver:
            return await factory.open(location, replace(context, role="keeper"))

        try:
            host = Host(runtime, driver, open_keeper, plan, app=self._app, telemetry=telemetry)
        except BaseException:
            await driver.close()
            raise
        logs.logger("outlive.host").debug("connected to %s", location)
        try:
            await host.start()
        except BaseException:
            await asyncio.shield(host.close())
            raise
        return host


def _metadata(name: str, host_id: HostId, runtime: Runtime) -> dict[str, Any]:
    return {
        "host": name,
        "instance": host_id,
        "hostname": socket.gethostname(),
        "pid": runtime.pid(),
        "started_at": runtime.clock.now().isoformat(timespec="milliseconds"),
    }


@known_options("connect")
def connect(  # noqa: PLR0913 - the options are the public promise
    url: str | None = None,
    *,
    app: App | None = None,
    name: str | None = None,
    namespace: str | None = None,
    session_ttl: Duration | None = None,
    claim_batch: int | None = None,
    leases: LeaseOptions | None = None,
    flows: FlowOptions | None = None,
    migrate: bool | None = None,
    session: bool | None = None,
    create: bool | None = None,
    options: Mapping[str, Any] | None = None,
    runtime: Runtime | None = None,
    telemetry: Telemetry | None = None,
) -> _Connecting:
    """Connect this process to a store as a host.

    ``async with outlive.connect(url) as host`` (or ``host = await outlive.connect(url)`` and later
    ``await host.close()``). What is not given comes from ``OUTLIVE_*`` variables, then
    ``outlive.local.toml``, then ``outlive.toml``, then defaults.

    Args:
        url: ``memory://``, ``sqlite:///path``, ``postgresql://…``, ``redis://…``, ``azblob://…``,
            ``cosmos://…``, or the scheme of a third party.
        app: What ``run()`` does.
        name: A human name for this host; default the app's name, else the machine's.
        namespace: Separates tenants of one store; every statement carries it.
        session_ttl: How long peers wait before they take over from this host.
        claim_batch: How many jobs or flows one claim brings at most.
        leases: The default options of leases.
        flows: How this host runs flows.
        migrate: Whether an older schema may be migrated on connect.
        session: Whether to keep a session row; off for short-lived tools.
        create: Whether a store that is not there yet may be made; off for tools that only look.
        options: Options of the driver, as in the URL's query.
        runtime: The world; tests replace it.
        telemetry: Where measurements go.

    Raises (when entered):
        ConfigurationError, InvalidName, UsageError: Something given is wrong.
        StoreUnavailable: The store cannot be reached.
        SchemaMismatch: The store's schema is another release's, or there is none and ``create``
            is off; names the command to run.
    """
    # Before anything else is bound: the settings, as they were given.
    arguments = dict(locals())
    for other in ("app", "runtime", "telemetry"):
        del arguments[other]
    if sys.platform == "win32":
        raise ConfigurationError(
            "Outlive does not run on Windows: it needs unix sockets and POSIX clocks; use WSL 2"
        )
    return _Connecting(arguments, app, runtime or Runtime(), telemetry)
