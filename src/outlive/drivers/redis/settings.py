"""What the URL and the options ask for, checked once. Never shows a password.

Owns the names of the driver's options and of the keys in the database.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from outlive.errors import ConfigurationError
from outlive.model.driver_options import read_seconds, read_switch
from outlive.model.location import Location

OPTIONS = frozenset(
    {
        "prefix",
        "db",
        "command_timeout",
        "connect_timeout",
        "restart_wait",
        "tls_ca",
        "tls_cert",
        "tls_key",
        "tls_verify",
    }
)

# The prefix stands in every key and in access rules, where * ? [ ] would be patterns; braces would
# end the hash tag early.
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")

_PORT = 6379

# Redis answers in microseconds; a rewrite of its log or a slow disk takes seconds. Nobody believes
# a server that has said nothing for longer.
_COMMAND_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 5.0
# Below, no network answers.
_TIMEOUT_MIN_S, _TIMEOUT_MAX_S = 0.05, 600.0

# Servers have 16 databases by default, and some have more; far beyond is a mistake.
_DATABASE_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSettings:
    """The settings of one driver; ``repr`` shows no password.

    ``path`` is the Unix socket, where it is one; ``host`` and ``port`` count otherwise.
    """

    shown: str
    host: str
    port: int
    path: str | None
    tls: bool
    username: str | None
    password: str | None = field(repr=False)
    database: int
    prefix: str
    command_timeout_s: float
    connect_timeout_s: float
    restart_wait: bool
    tls_ca: str | None
    tls_cert: str | None
    tls_key: str | None
    tls_verify: bool

    def keys_of(self, namespace: str) -> str:
        """What every key of ``namespace`` begins with.

        The braces are a hash tag: all keys of a namespace live in one slot.
        """
        return f"{self.prefix}:{{{namespace}}}:"

    def tls_context(self) -> ssl.SSLContext | None:
        """The context of a TLS connection, or ``None`` for a plain one.

        Raises:
            ConfigurationError: A file of a certificate or a key cannot be used.
        """
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls_ca)
            if self.tls_cert is not None:
                context.load_cert_chain(self.tls_cert, self.tls_key)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"the certificate files of {self.shown} cannot be used ({type(error).__name__}): "
                "check tls_ca, tls_cert and tls_key"
            ) from None
        if not self.tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def read_settings(location: Location, options: dict[str, Any]) -> RedisSettings:
    """The settings of ``location`` and ``options``; arguments win over the URL's query.

    Raises:
        ConfigurationError: A value is not one the driver can use.
    """
    given: dict[str, Any] = {**location.options, **options}
    parts = urlsplit(location.url)
    unix = location.scheme == "redis+unix"
    if unix and (not location.path or parts.hostname):
        raise ConfigurationError("the URL of a Unix socket looks like redis+unix:///path/to/socket")
    if not unix and not parts.hostname:
        raise ConfigurationError(f"{location.shown} has no host: write redis://host:6379/0")
    prefix = str(given.get("prefix", "outlive"))
    if _PREFIX.fullmatch(prefix) is None:
        raise ConfigurationError(
            f"prefix {prefix!r} is not valid: use at most 64 characters A-Z, a-z, 0-9, '_', '.', "
            "':' or '-'; the first must be alphanumeric"
        )
    if parts.username and not parts.password:
        # Without one there is no login, and the work would be done as the default user.
        raise ConfigurationError(
            f"{location.shown} has a user but no password: write redis://user:password@host; for "
            "a user without a password, write any"
        )
    if given.get("tls_key") is not None and given.get("tls_cert") is None:
        raise ConfigurationError("tls_key needs tls_cert, which is missing")
    return RedisSettings(
        shown=location.shown,
        host=parts.hostname or "",
        port=parts.port or _PORT,
        path=location.path if unix else None,
        tls=location.scheme == "rediss",
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        database=_database(given, "" if unix else location.path),
        prefix=prefix,
        command_timeout_s=read_seconds(
            given, "command_timeout", _COMMAND_TIMEOUT_S, _TIMEOUT_MIN_S, _TIMEOUT_MAX_S
        ),
        connect_timeout_s=read_seconds(
            given, "connect_timeout", _CONNECT_TIMEOUT_S, _TIMEOUT_MIN_S, _TIMEOUT_MAX_S
        ),
        restart_wait=read_switch(given, "restart_wait") is not False,
        tls_ca=_text(given, "tls_ca"),
        tls_cert=_text(given, "tls_cert"),
        tls_key=_text(given, "tls_key"),
        tls_verify=read_switch(given, "tls_verify") is not False,
    )


def _database(given: dict[str, Any], path: str) -> int:
    in_path = path.strip("/")
    value = given.get("db", in_path or 0)
    text = str(value)
    if not (text.isascii() and text.isdigit()) or int(text) > _DATABASE_MAX:
        raise ConfigurationError(
            f"the database must be a number, as in redis://host/0, not {value!r}"
        )
    if in_path and text != in_path:
        raise ConfigurationError(
            f"the URL has database {in_path!r}, but db= has {text!r}: give one of them"
        )
    return int(text)


def _text(given: dict[str, Any], name: str) -> str | None:
    value = given.get(name)
    return None if value is None else str(value)
