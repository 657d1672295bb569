"""One call of the command line: its global options, its settings, and the way to the store.

The only module here that opens a store. Holds the secrets of the settings in order to keep them
out of everything that is said.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from outlive.app import App
from outlive.cli import errors
from outlive.cli.listening import Listener
from outlive.cli.output import say, timestamp
from outlive.connect import check_options, connect, find_factory, load_settings
from outlive.errors import ConfigurationError
from outlive.host import Host
from outlive.model.location import Location, parse_url
from outlive.names import HostId, check_namespace
from outlive.ports.driver import Driver, DriverContext, DriverFactory
from outlive.runtime.runtime import Runtime
from outlive.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

OUTPUTS = ("table", "json", "jsonl")


@dataclass(frozen=True, slots=True)
class Target:
    """A store that can be opened: what to open, and with what."""

    factory: DriverFactory
    location: Location
    context: DriverContext
    settings: Settings
    runtime: Runtime


@dataclass(slots=True)
class Invocation:
    """The global options, wherever on the line they stood."""

    url: str | None = None
    namespace: str | None = None
    output: str = "table"
    verbose: bool = False
    # Whether what is said begins with its time: of a command that runs for days.
    timed: bool = False
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    # Who passes on what the library logs.
    listener: Listener = field(init=False, repr=False)
    # Tasks that did not end when their command did.
    left_behind: list[asyncio.Task[Any]] = field(
        default_factory=list["asyncio.Task[Any]"], repr=False
    )

    def __post_init__(self) -> None:
        self.listener = Listener(self)

    def settings(self) -> Settings:
        """The settings that hold for this call; remembers their secrets."""
        if self.url is not None:
            # Before anything is parsed: a message about a wrong URL may quote a piece of it.
            self.secrets |= errors.secrets_in(self.url)
        settings = load_settings(url=self.url, namespace=self.namespace)
        self.secrets |= errors.secrets_of(settings)
        return settings

    def target(
        self, *, settings: Settings | None = None, migrate: bool | None = None, create: bool = True
    ) -> Target:
        """The store of this call, or of other ``settings``, not yet opened.

        Raises:
            ConfigurationError, InvalidName: The settings are wrong.
        """
        settings = settings or self.settings()
        location = parse_url(settings.url or "")
        factory = find_factory(location.scheme)
        check_options(factory, location, settings.options)
        runtime = Runtime()
        context = DriverContext(
            clock=runtime.clock,
            random=runtime.random,
            namespace=check_namespace(settings.namespace),
            host=HostId(runtime.new_id()),
            migrate=settings.migrate if migrate is None else migrate,
            create=create,
            options=dict(settings.options),
        )
        return Target(factory, location, context, settings, runtime)

    @asynccontextmanager
    async def open(self, target: Target) -> AsyncGenerator[Driver, None]:
        """The bare driver, for what no feature offers."""
        driver = await target.factory.open(target.location, target.context)
        try:
            yield driver
        finally:
            await driver.close()

    @asynccontextmanager
    async def host(
        self, *, create: bool = False, migrate: bool | None = None, app: App | None = None
    ) -> AsyncGenerator[Host, None]:
        """A host without a session: this process is gone before anybody could miss it.

        One who only looks makes no store where there is none: the URL may be mistyped.
        """
        _refuse_windows()
        self.settings()
        connecting = connect(
            self.url,
            namespace=self.namespace,
            app=app,
            session=False,
            create=create,
            migrate=migrate,
        )
        async with connecting as host:
            yield host

    def complain(self, text: str, at: datetime | None = None) -> None:
        """Say ``text`` on stderr, without secrets; by default it is of now."""
        said = errors.scrub(text, self.secrets)
        say(f"{timestamp(at or datetime.now(UTC))} {said}" if self.timed else said)

    def report(self, error: BaseException) -> int:
        """Say what went wrong, and return the exit code that says the same."""
        if self.verbose:
            for line in errors.trace_of(error):
                self.complain(line)
        self.complain(errors.line_of(error))
        return errors.exit_code_of(error)


def current() -> Invocation:
    """The invocation of the running command."""
    return click.get_current_context().ensure_object(Invocation)


def global_options(command: F) -> F:
    """Let ``command`` take the global options; the one nearest to the verb wins."""

    def keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value is None:
            return
        invocation = context.ensure_object(Invocation)
        setattr(invocation, str(parameter.name), value)
        if parameter.name == "verbose":
            # The program listened before it came to the verb, and what stands after that.
            invocation.listener.listen()

    options = (
        click.option("--url", help="Store URL; default OUTLIVE_URL or a settings file."),
        click.option("--namespace", help="Namespace in the store."),
        click.option("-o", "--output", type=click.Choice(OUTPUTS), help="Output format."),
        click.option("--json", "output", flag_value="json", help="The same as -o json."),
        click.option(
            "-v", "--verbose", is_flag=True, default=None, help="Log everything to stderr."
        ),
    )
    for option in reversed(options):
        command = option(command)
    for parameter in getattr(command, "__click_params__", ()):
        if parameter.name in Invocation.__slots__:
            parameter.callback, parameter.expose_value = keep, False
    return command


def _refuse_windows() -> None:
    if sys.platform == "win32":
        raise ConfigurationError("Outlive does not run on Windows; use WSL 2")
