"""libpq's parameters, from the URL and the options to PostgreSQL, with TLS that is verified."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

import outlive
from outlive import ConfigurationError
from tests.cli.conftest import Shell
from tests.services.postgres import PostgresServer


@dataclass(frozen=True, slots=True)
class Secured:
    """A PostgreSQL that offers TLS as ``localhost``, signed by the authority in ``root``."""

    server: PostgresServer
    root: Path

    def url(self, query: str, host: str = "localhost") -> str:
        return f"postgresql://postgres@{host}:{self.server.port}/postgres?{query}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command to make a certificate with")
    with PostgresServer(durable=False) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            [(folder,)] = connection.execute("SHOW data_directory").fetchall()
            root = _make_certificates(tmp_path_factory.mktemp("authority"), Path(folder))
            connection.execute("ALTER SYSTEM SET ssl = on")
            connection.execute("SELECT pg_reload_conf()")
        server.restart()
        yield Secured(server, root)


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def _make_authority(folder: Path, name: str) -> tuple[Path, Path]:
    """The paths of the certificate and the key of a new authority."""
    root, key = folder / f"{name}.crt", folder / f"{name}.key"
    _openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 2, "-subj", f"/CN={name}"),
        *("-keyout", key, "-out", root),
    )
    return root, key


def _make_certificates(folder: Path, data: Path) -> Path:
    """Put a certificate for localhost and its key into ``data``; the path of its authority's."""
    root, key = _make_authority(folder, "authority")
    request, names = folder / "server.csr", folder / "names"
    names.write_text("subjectAltName=DNS:localhost")
    _openssl(
        *("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"),
        *("-keyout", data / "server.key", "-out", request),
    )
    _openssl(
        *("x509", "-req", "-in", request, "-CA", root, "-CAkey", key, "-CAcreateserial"),
        *("-days", 2, "-extfile", names, "-out", data / "server.crt"),
    )
    owner = data.stat()
    for path in (data / "server.key", data / "server.crt"):
        path.chmod(0o600)
        os.chown(path, owner.st_uid, owner.st_gid)
    return root


async def _connections(url: str, **arguments: Any) -> list[tuple[Any, ...]]:
    """The name and the encryption of each connection of a host of ``url``."""
    statement = (
        "SELECT application_name, ssl FROM pg_stat_activity JOIN pg_stat_ssl USING (pid) "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    async with outlive.connect(url, **arguments) as host:
        await host.leases.acquire("k")
        port = int(url.partition("?")[0].rpartition(":")[2].partition("/")[0])
        with psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres") as connection:
            return connection.execute(statement).fetchall()


@pytest.mark.service
async def test_a_url_demands_tls_that_is_verified(secured: Secured) -> None:
    url = secured.url(f"sslmode=verify-full&sslrootcert={secured.root}&application_name=shop")
    found = await _connections(url)
    assert found
    assert set(found) == {("shop", True)}


@pytest.mark.service
async def test_options_demand_tls_of_every_connection(secured: Secured) -> None:
    options = {"sslmode": "verify-full", "sslrootcert": secured.root, "application_name": "shop"}
    options["listen_url"] = secured.url("sslmode=disable")
    found = await _connections(secured.url("application_name=other"), options=options)
    assert len(found) > 1
    assert set(found) == {("shop", True)}


@pytest.mark.service
@pytest.mark.parametrize(
    ("query", "host", "message"),
    [
        ("sslmode=verify-full&sslrootcert={root}", "127.0.0.1", "Hostname mismatch|not valid for"),
        ("sslmode=verify-full&sslrootcert={other}", "localhost", "certificate of the server"),
        ("sslmode=verify-full&sslrootcert=/nowhere", "localhost", "sslrootcert: there is no file"),
        ("sslmode=verify-ful&sslrootcert={root}", "localhost", "verify-full"),
    ],
)
async def test_a_server_that_is_not_proven_is_refused(
    secured: Secured, tmp_path: Path, query: str, host: str, message: str
) -> None:
    other, _ = _make_authority(tmp_path, "other")
    url = secured.url(query.format(root=secured.root, other=other), host)
    with pytest.raises(ConfigurationError, match=message):
        await outlive.connect(url)


@pytest.mark.service
def test_a_server_without_tls_is_refused(shell: Shell, postgres_url: str) -> None:
    done = shell("lease", "ls", "--url", f"{postgres_url}?sslmode=require")
    assert (done.code, done.stdout) == (2, "")
    assert "the server does not offer TLS" in done.stderr


@pytest.mark.service
def test_the_command_line_takes_the_parameters(shell: Shell, secured: Secured) -> None:
    query = f"sslmode=verify-full&sslrootcert={secured.root}&target_session_attrs=read-write"
    made = shell("migrate", "--url", secured.url(query))
    assert made.code == 0, made.stderr
    listed = shell("lease", "ls", "--url", secured.url(query))
    assert listed.code == 0, listed.stderr
    environment = {"OUTLIVE_OPTIONS_SSLMODE": "verify-full"}
    refused = shell("lease", "ls", "--url", secured.url(""), **environment)
    assert refused.code == 2
    assert "root.crt" in refused.stderr


def test_a_parameter_that_is_not_known_is_refused_with_those_that_are(shell: Shell) -> None:
    near = shell("lease", "ls", "--url", "postgresql://u@127.0.0.1:1/d?sslmod=require")
    assert "did you mean 'sslmode'?" in near.stderr
    own = shell("lease", "ls", "--url", "postgresql://u@127.0.0.1:1/d?shema=x")
    assert "did you mean 'schema'?" in own.stderr
    none = shell("lease", "ls", "--url", "postgresql://u@127.0.0.1:1/d?channel_binding=require")
    assert none.code == 2
    assert "target_session_attrs" in none.stderr


def test_the_path_of_a_key_is_no_secret(shell: Shell) -> None:
    paths = {"OUTLIVE_OPTIONS_SSLKEY": "/keys/own.key", "OUTLIVE_OPTIONS_PASSFILE": "/keys/pgpass"}
    shown = shell("config", "show", **paths)
    assert {"/keys/own.key", "/keys/pgpass"} <= set(shown.stdout.split())


@pytest.mark.service
def test_a_right_that_is_missing_is_named(shell: Shell, postgres_url: str) -> None:
    assert shell("migrate", "--url", postgres_url).code == 0
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS outlive_powerless")
        connection.execute("CREATE ROLE outlive_powerless LOGIN")
    done = shell("lease", "ls", "--url", postgres_url.replace("postgres@", "outlive_powerless@"))
    assert done.code == 2
    assert "permission denied for schema outlive" in done.stderr
    assert '"Roles"' in done.stderr
