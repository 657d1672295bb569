"""What the URL and the options ask for, checked once. Never shows a password.

Owns the names of the driver's options and splits them from those that belong to libpq.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from outlive.errors import ConfigurationError
from outlive.model.driver_options import read_number, read_seconds, read_switch
from outlive.model.location import Location

_OWN = frozenset(
    {
        "schema",
        "pool_size",
        "command_timeout",
        "connect_timeout",
        "statement_cache_size",
        "pooler",
        "listen_url",
    }
)

# The parameters that asyncpg reads from a DSN, and two that it passes on to the server. It would
# pass on any other name too, and the server would refuse the connection for it.
_FILES = frozenset({"sslrootcert", "sslcert", "sslkey", "sslcrl"})
LIBPQ = _FILES | {
    "application_name",
    "database",
    "dbname",
    "gsslib",
    "host",
    "krbsrvname",
    "options",
    "passfile",
    "password",
    "port",
    "service",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslmode",
    "sslnegotiation",
    "sslpassword",
    "target_session_attrs",
    "user",
}

OPTIONS = _OWN | LIBPQ

# The schema becomes part of statements, so it is held to plain identifiers; 48 bytes leave room
# for the names of indexes below PostgreSQL's 63.
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")

# Acquire, renew and release each keep one batch under way; the fourth serves reads and the
# transactions of semaphores. More connections would only split the batches.
_POOL_SIZE = 4
_POOL_SIZE_MAX = 32

# A keeper renews: one connection at work, one fresh when the first is abandoned.
_KEEPER_POOL_SIZE = 2

# Long enough for a checkpoint on a slow disk, short enough that nobody believes a dead peer.
_COMMAND_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 5.0
_TIMEOUT_MAX_S = 600.0

# The driver has about thirty statements; twice that leaves none to be prepared again.
_STATEMENT_CACHE_SIZE = 64
_STATEMENT_CACHE_SIZE_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSettings:
    """The settings of one driver; ``repr`` shows neither DSN.

    ``pooler`` of ``None`` means: find out.
    """

    dsn: str = field(repr=False)
    listen_dsn: str | None = field(repr=False)
    shown: str
    schema: str
    pool_size: int
    command_timeout_s: float
    connect_timeout_s: float
    statement_cache_size: int
    pooler: bool | None

    @property
    def quoted_schema(self) -> str:
        """The schema as it stands in statements."""
        return f'"{self.schema}"'

    def sql(self, text: str) -> str:
        """``text`` with its ``{s}`` replaced by the schema."""
        return text.replace("{s}", self.quoted_schema)


def read_settings(location: Location, options: dict[str, Any], *, role: str) -> PostgresSettings:
    """The settings of ``location`` and ``options``; arguments win over the URL's query.

    Raises:
        ConfigurationError: A value is not one the driver can use.
    """
    given: dict[str, Any] = {**location.options, **options}
    passed = {name: str(value) for name, value in options.items() if name in LIBPQ}
    schema = str(given.get("schema", "outlive"))
    if _SCHEMA.fullmatch(schema) is None or schema.startswith("pg_"):
        raise ConfigurationError(
            f"schema {schema!r} is not valid: use at most 48 characters a-z, 0-9 and '_', not "
            "starting with a digit or pg_"
        )
    listen_url = given.get("listen_url")
    if listen_url is not None and not str(listen_url).startswith(("postgresql://", "postgres://")):
        raise ConfigurationError("listen_url must start with postgresql:// or postgres://")
    size = read_number(given, "pool_size", _POOL_SIZE, 1, _POOL_SIZE_MAX)
    return PostgresSettings(
        dsn=_dsn(location.url, passed),
        listen_dsn=None if listen_url is None else _dsn(str(listen_url), passed),
        shown=location.shown,
        schema=schema,
        pool_size=int(size) if role == "host" else _KEEPER_POOL_SIZE,
        command_timeout_s=read_seconds(
            given, "command_timeout", _COMMAND_TIMEOUT_S, 0.05, _TIMEOUT_MAX_S
        ),
        connect_timeout_s=read_seconds(
            given, "connect_timeout", _CONNECT_TIMEOUT_S, 0.05, _TIMEOUT_MAX_S
        ),
        statement_cache_size=int(
            read_number(
                given, "statement_cache_size", _STATEMENT_CACHE_SIZE, 0, _STATEMENT_CACHE_SIZE_MAX
            )
        ),
        pooler=read_switch(given, "pooler"),
    )


def _dsn(url: str, passed: dict[str, str]) -> str:
    """``url`` with ``passed``, and without the options that are not libpq's.

    Raises:
        ConfigurationError: A file of a certificate or key is missing.
    """
    parts = urlsplit(url)
    query = {n: v for n, v in parse_qsl(parts.query, keep_blank_values=True) if n not in _OWN}
    query |= passed
    for name in _FILES & query.keys():
        if query[name] and not Path(query[name]).is_file():
            raise ConfigurationError(f"{name}: there is no file {query[name]!r}")
    return urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(query), ""))
