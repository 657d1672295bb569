"""One call of the command line: its global options, its settings, and the way to the store.

The only module here that opens a store. Holds the secrets of the settings in order to keep them
out of everything that is said.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

import click

from outlive.app import App
from outlive.cli import errors
from outlive.cli.output import say, timestamp
from outlive.connect import check_options, connect, find_factory, load_settings
from outlive.errors import ConfigurationError
from outlive.host import Host
from outlive.model.location import Location, parse_url
from outlive.model.options import duration, seconds
from outlive.names import HostId, check_namespace
from outlive.ports.driver import Driver, DriverContext, DriverFactory
from outlive.runtime.runtime import Runtime
from outlive.serialization import masked, trace_of
from outlive.settings import Settings
from outlive.telemetry import message_of

F = TypeVar("F", bound=Callable[..., Any])

OUTPUTS = ("table", "json", "jsonl")

# What a line names, in this order. The rest is for a formatter: a token, for one, means little on
# a terminal.
_SUBJECTS = ("flow", "step", "job", "attempt")

# An id may have 512 bytes, and a record of the user's own may hold anything under these names. A
# line of a terminal is about as long as this.
_SUBJECT_CHARS_MAX = 100

# What an error says may be a whole document; its traceback is worth more of a log than its text.
_MESSAGE_CHARS_MAX, _TRACE_CHARS_MAX = 4 * 1024, 16 * 1024


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
    # How often -v was given: once for what an operator asks, twice for every grant and claim.
    verbose: int = 0
    # Whether what is said begins with its time: of a command that runs for days.
    timed: bool = False
    # Of a command that runs as a host: the name in each line of its log.
    host_name: str | None = None
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
        if value in (None, 0):
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
            "-v", "--verbose", count=True, help="Log to stderr: -v what happens, -vv everything."
        ),
    )
    for option in reversed(options):
        command = option(command)
    for parameter in getattr(command, "__click_params__", ()):
        if parameter.name in Invocation.__slots__:
            parameter.callback, parameter.expose_value = keep, False
    return command


class Seconds(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]
    """A duration, in seconds."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | None:
        """Read a number of seconds, or a text such as ``1h30m``."""
        try:
            return duration(value)
        except ValueError:
            message = f"{value!r} is no duration: give seconds, or 30s, 1h30m, 00:00:30"
            self.fail(message, param, ctx)


SECONDS = Seconds()


def _interval(context: click.Context, parameter: click.Parameter, value: float) -> float:
    del context, parameter
    # Faster than this is a load on the store that shows nothing a person could follow.
    return seconds(value, "interval", least=0.05)


interval_option = click.option(
    "--interval",
    "interval_s",
    type=SECONDS,
    default=1.0,
    show_default=True,
    callback=_interval,
    help="Seconds between updates.",
)

# A mistyped URL must not become a store that no worker looks at: one that adds something to a store
# makes none, unless told to.
create_option = click.option(
    "--create", is_flag=True, help="Create the store if there is none at the URL."
)


def _refuse_windows() -> None:
    if sys.platform == "win32":
        raise ConfigurationError("Outlive does not run on Windows; use WSL 2")


class Speaker(Protocol):
    """Who says a line on stderr."""

    verbose: int
    host_name: str | None
    secrets: frozenset[str]

    def complain(self, text: str, at: datetime | None = None) -> None:
        """Say ``text``, of that time, without secrets and control characters."""
        ...


_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


class _Level(int):
    """A level that is told by its identity from one of the same number that a program set."""

    __slots__ = ()


class Listener(logging.Handler):
    """Log records as lines of talk that say which flow, step or job they are about.

    Must never print a secret, and never raise into the code that logs.
    """

    def __init__(self, speaker: Speaker) -> None:
        super().__init__()
        self._speaker = speaker
        self._logger = logging.getLogger("outlive")
        self._level_found, self._propagate_found = self._logger.level, self._logger.propagate
        # From the import of a program's module on: the handlers before, which are not its own.
        self._before: list[logging.Handler] | None = None

    def listen(self) -> None:
        """Hear warnings, or as much as the speaker is verbose; safe to repeat."""
        self._logger.setLevel(_LEVELS[min(self._speaker.verbose, len(_LEVELS) - 1)])
        self._logger.propagate = False
        if not self._logger.handlers:
            self._logger.addHandler(self)

    @contextmanager
    def giving_way(self) -> Generator[None]:
        """Import a program inside of this: if it sets up handlers of its own, they alone count.

        Its own are those that are new on the root logger or on ``outlive``, but for those that
        print nothing. Then nothing is left of what ``listen`` did, and what the program set stays,
        its level of ``outlive`` among it. Without them all is as before, and so it is for a
        speaker who wants to hear everything. A record meanwhile goes to the handlers of the program
        once it has one, and is said here before that: it comes to one of both, and never to both.
        """
        if self._speaker.verbose:
            yield
            return
        heard = self._logger.level
        # As a program finds it, so that what it sets holds at once.
        meanwhile = _Level(self._level_found)
        self._before = [*_handlers(self._logger), self]
        self._logger.setLevel(meanwhile)
        self._logger.propagate = self._propagate_found
        try:
            yield
        finally:
            replaced = self._is_replaced()
            if replaced:
                # It stays deaf: another thread may be on its way here with a record.
                self._logger.removeHandler(self)
            else:
                self._before = None
                self._logger.propagate = False
            if self._logger.level is meanwhile:
                self._logger.setLevel(self._level_found if replaced else heard)

    def _is_replaced(self) -> bool:
        before = self._before
        return before is not None and any(each not in before for each in _handlers(self._logger))

    def emit(self, record: logging.LogRecord) -> None:
        """Say what ``record`` says, its first line with what it is about."""
        if self._is_replaced():
            return
        at = datetime.fromtimestamp(record.created, UTC)
        message = self._cut(message_of(record), _MESSAGE_CHARS_MAX)
        about = ", ".join(_subjects(record, message, self._speaker.secrets))
        # A record of a chart, or of a library, has no host of its own: it is that of the process.
        name = self._speaker.host_name
        host = "" if name is None else f"{getattr(record, 'host', name)}: "
        for line in message.splitlines():
            self._speaker.complain(f"{host}{line} [{about}]" if about else f"{host}{line}", at)
            about = ""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and self._speaker.verbose:
            for line in errors.trace_of(error):
                self._speaker.complain(line, at)
        elif error is not None and record.levelno >= logging.ERROR:
            # Nobody can ask for it later: where the user's own code failed.
            trace = self._cut("".join(trace_of(error)), _TRACE_CHARS_MAX)
            for line in trace.splitlines():
                self._speaker.complain(line, at)

    def _cut(self, text: str, most: int) -> str:
        # Scrubbed while it is whole: a secret that is cut could not be recognised any more.
        return masked(errors.scrub(text, self._speaker.secrets), most)


def _handlers(logger: logging.Logger) -> list[logging.Handler]:
    found = [*logging.getLogger().handlers, *logger.handlers]
    return [each for each in found if not isinstance(each, logging.NullHandler)]


def _subjects(record: logging.LogRecord, message: str, secrets: frozenset[str]) -> Iterator[str]:
    """What ``record`` is about, where ``message`` does not name it already."""
    for noun in _SUBJECTS:
        value = getattr(record, noun, None)
        if value is None or (noun == "attempt" and type(value) is int and value == 1):
            # Most attempts are the first one, and few lines are worth the words.
            continue
        try:
            text = str(value)
        except Exception as error:  # noqa: BLE001 - a record of the user's own may hold anything
            text = f"(unprintable: {type(error).__name__})"
        if not _names(message, noun, text):
            # Scrubbed while it is whole: a secret that is cut could not be recognised any more.
            yield f"{noun} {masked(errors.scrub(text, secrets), _SUBJECT_CHARS_MAX)}"


def _names(message: str, noun: str, text: str) -> bool:
    """Whether ``message`` has the noun and the whole of ``text`` after it, quoted or not."""
    if text not in message:
        return False
    # What may go on with an id: flow o-1 is not named by "flow o-1-b", nor by "flow o-1.b".
    pattern = rf"(?<!\w){noun} ['\"]?{re.escape(text)}(?![\w/#-]|[.:]\w)"
    return re.search(pattern, message) is not None
