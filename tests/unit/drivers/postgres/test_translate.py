"""No error of the client library gets through, and none says "refused" of what may be applied."""

from __future__ import annotations

import random
import subprocess
import sys

import asyncpg
import pytest

from outlive.clock import SystemClock
from outlive.drivers.postgres import PostgresFactory
from outlive.drivers.postgres.settings import read_settings
from outlive.drivers.postgres.translate import translate, translate_connect
from outlive.errors import (
    ConfigurationError,
    OutcomeUnknown,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from outlive.model.location import parse_url
from outlive.names import HostId
from outlive.ports.driver import DriverContext

pytestmark = pytest.mark.whitebox


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (asyncpg.ConnectionDoesNotExistError("gone"), OutcomeUnknown),
        (asyncpg.AdminShutdownError("bye"), OutcomeUnknown),
        (asyncpg.CrashShutdownError("bye"), OutcomeUnknown),
        (ConnectionResetError(), OutcomeUnknown),
        (TimeoutError(), OutcomeUnknown),
        (asyncpg.InterfaceError("connection is closed"), StoreUnavailable),
        (asyncpg.DiskFullError("full"), StoreUnavailable),
        (asyncpg.TooManyConnectionsError("full"), StoreUnavailable),
        (asyncpg.QueryCanceledError("late"), StoreUnavailable),
        (asyncpg.ReadOnlySQLTransactionError("standby"), StoreUnavailable),
        (asyncpg.DeadlockDetectedError("dead"), StoreUnavailable),
        (asyncpg.UndefinedTableError("no lease"), SchemaMismatch),
        (asyncpg.InsufficientPrivilegeError("no"), ConfigurationError),
        (asyncpg.UniqueViolationError("twice"), StoreError),
        (asyncpg.DataError("odd"), UsageError),
    ],
)
def test_a_write_that_failed(error: Exception, expected: type[Exception]) -> None:
    assert type(translate(error, write=True)) is expected


def test_a_read_is_never_unknown() -> None:
    for error in (asyncpg.ConnectionDoesNotExistError("gone"), TimeoutError(), OSError()):
        assert type(translate(error, write=False)) is StoreUnavailable


def test_a_connection_that_did_not_come_about() -> None:
    wrong = asyncpg.InvalidPasswordError("no")
    assert type(translate_connect(wrong, "shown")) is ConfigurationError
    assert type(translate_connect(ConnectionRefusedError(), "shown")) is StoreUnavailable
    quoting = ValueError("invalid DSN postgresql://u:secret@h")
    assert "secret" not in str(translate_connect(quoting, "shown"))


def test_the_options_of_the_driver_are_taken_out_of_the_url() -> None:
    url = "postgresql://u:secret@h/d?schema=x&sslmode=require&application_name=a&pool_size=2"
    settings = read_settings(parse_url(url), {"pool_size": 3}, role="host")
    assert settings.dsn == "postgresql://u:secret@h/d?sslmode=require&application_name=a"
    assert (settings.schema, settings.pool_size) == ("x", 3)
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    "options", [{"pool_size": 0}, {"pooler": "maybe"}, {"listen_url": "http://h"}]
)
def test_a_wrong_option_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        read_settings(parse_url("postgres://h/d"), options, role="host")


def test_importing_the_driver_imports_no_client_library() -> None:
    check = (
        "import sys; from outlive.drivers.postgres import PostgresFactory; "
        "PostgresFactory().capabilities; assert 'asyncpg' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
    assert "schema" in PostgresFactory().options


async def test_a_missing_library_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    context = DriverContext(
        clock=SystemClock(), random=random.Random(1), namespace="n", host=HostId("h")
    )
    with pytest.raises(ConfigurationError, match=r"pip install 'outlive\[postgres\]'"):
        await PostgresFactory().open(parse_url("postgresql://h/d"), context)
