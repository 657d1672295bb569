"""Fixtures for real servers, and the report of those that could not be had.

    postgres_server   one PostgreSQL for the whole run; do not stop or crash it
    postgres_url      the URL of a fresh, empty database, dropped after the test
    pgbouncer_url     the same, through PgBouncer in transaction mode
    redis_server      one Redis for the whole run; do not stop or crash it
    redis_url         the URL of an empty database of it; tests run one at a time
    azurite_server    one Azure Blob Storage for the whole run; do not stop it
    cosmos_emulator   one Azure Cosmos DB account for the whole run; do not stop or crash it
    compiler          the path of the C compiler, for tests that shift a process's wall clock
    openssl           the path of the program, for tests that need certificates
    services          `Services.start` gives a test a server of its own, to crash at will

Owns when things are fetched: before the first test, outside its time limit, and only what the
selected tests ask for. A service that cannot be had skips its tests with the reason, and the last
line of the run names it; under ``CI=true`` the tests fail instead. The line before names every
backend that took part, with its server's version.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import pytest

from tests.plugins import backends
from tests.services import Unavailable, install
from tests.services.azurite import AzuriteServer
from tests.services.cosmos import CosmosEmulator
from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import PostgresServer
from tests.services.redis import RedisServer

# Which fixture needs what fetched.
_NEEDS: dict[str, Callable[[], Path]] = {
    "postgres_server": install.postgres_bin,
    "pgbouncer": install.pgbouncer,
    "compiler": install.compiler,
    "redis_server": install.redis_server,
    "azurite_server": install.azurite,
    "cosmos_emulator": install.cosmos_emulator,
    "openssl": install.openssl,
    "promtool": install.promtool,
}
_MISSING = pytest.StashKey[dict[str, str]]()
# Whether a test marked ``service`` was reached, so that the last line has something to say.
_REACHED = pytest.StashKey[bool]()
# What workers call it when they hand it over.
_SEEN = "outlive_services"
_T = TypeVar("_T")


class Server(Protocol):
    """What `Services.start` can start."""

    def start(self) -> Self: ...
    def stop(self) -> None: ...


_ServerT = TypeVar("_ServerT", bound=Server)


def _missing(config: pytest.Config) -> dict[str, str]:
    return config.stash.setdefault(_MISSING, {})


def _have(config: pytest.Config, get: Callable[[], _T]) -> _T:
    """Get a service, or note that it is missing and skip (fail, under ``CI=true``)."""
    try:
        found = get()
    except Unavailable as error:
        _missing(config)[error.service] = error.reason
        give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        give_up(f"service not available: {error}")
    backends.note(config, found)
    return found


class Services:
    """Starts servers that belong to one test and end with it."""

    def __init__(self, config: pytest.Config, stack: ExitStack) -> None:
        self._config = config
        self._stack = stack

    def start(self, server: _ServerT) -> _ServerT:
        """Start ``server``; skip the test (fail, under ``CI=true``) when it cannot be had."""
        started = _have(self._config, server.start)
        self._stack.callback(started.stop)
        return started


@contextmanager
def starting(config: pytest.Config) -> Iterator[Services]:
    """Servers that end with the block, for fixtures that outlive a test."""
    with ExitStack() as stack:
        yield Services(config, stack)


@pytest.fixture
def services(pytestconfig: pytest.Config) -> Iterator[Services]:
    with starting(pytestconfig) as services:
        yield services


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> Iterator[PostgresServer]:
    server = _have(pytestconfig, PostgresServer(durable=False).start)
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(scope="session")
def pgbouncer(pytestconfig: pytest.Config, postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    pooler = _have(pytestconfig, PgBouncer(postgres_server).start)
    yield pooler
    pooler.stop()


@pytest.fixture
def pgbouncer_url(pgbouncer: PgBouncer, postgres_url: str) -> str:
    return pgbouncer.url_of(postgres_url)


@pytest.fixture(scope="session")
def redis_server(pytestconfig: pytest.Config) -> Iterator[RedisServer]:
    server = _have(pytestconfig, RedisServer().start)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def azurite_server(pytestconfig: pytest.Config) -> Iterator[AzuriteServer]:
    server = _have(pytestconfig, AzuriteServer().start)
    yield server
    server.stop()


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    redis_server.command("FLUSHALL")
    return redis_server.url


@pytest.fixture(scope="session")
def cosmos_emulator(pytestconfig: pytest.Config) -> Iterator[CosmosEmulator]:
    emulator = _have(pytestconfig, CosmosEmulator().start)
    yield emulator
    emulator.stop()


@pytest.fixture(scope="session")
def openssl(pytestconfig: pytest.Config) -> Path:
    return _have(pytestconfig, install.openssl)


@pytest.fixture(scope="session")
def promtool(pytestconfig: pytest.Config) -> Path:
    return _have(pytestconfig, install.promtool)


@pytest.fixture
def compiler(pytestconfig: pytest.Config) -> Path:
    return _have(pytestconfig, install.compiler)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch what the selected tests need. Failing is theirs to report, when they ask again."""
    if session.config.option.collectonly:
        return
    wanted = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    for fixture, fetch in _NEEDS.items():
        if fixture in wanted:
            try:
                fetch()
            except Unavailable as error:
                _missing(session.config)[error.service] = error.reason


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("service"):
        item.config.stash[_REACHED] = True


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A worker of pytest-xdist has ended: add what it saw to what the others saw."""
    seen = getattr(node, "workeroutput", {}).get(_SEEN)
    if seen is None:
        # It died; pytest-xdist reports that, and its test fails.
        return
    backends.add(node.config, seen["backends"])
    _missing(node.config).update(seen["missing"])
    node.config.stash[_REACHED] = node.config.stash.get(_REACHED, False) or seen["reached"]


def _tell(config: pytest.Config, output: dict[str, Any]) -> None:
    """Hand over what this worker saw, as plain values: they go through a pipe."""
    output[_SEEN] = {
        "backends": backends.entries(config),
        "missing": _missing(config),
        "reached": config.stash.get(_REACHED, False),
    }


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, Any, Any]:
    """Name what was missing, as the very last line: after the outermost wrapper nothing prints."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        _tell(session.config, output)
    result = yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or output is not None:
        return result
    took_part = backends.line(session.config)
    if took_part is not None:
        reporter.write_line(took_part)
    if not session.config.stash.get(_REACHED, False):
        return result
    missing = _missing(session.config)
    if missing:
        named = ", ".join(f"{name} ({reason})" for name, reason in sorted(missing.items()))
        reporter.write_line(f"services not available: {named}", red=True)
    else:
        reporter.write_line("services: all available")
    return result
