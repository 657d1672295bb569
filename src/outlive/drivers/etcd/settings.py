"""What the URL and the options ask for, checked once. Never shows a password.

Owns the names of the driver's options.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from outlive.errors import ConfigurationError
from outlive.model.location import Location

OPTIONS = frozenset(
    {"prefix", "tls", "ca", "cert", "key", "server_name", "command_timeout", "connect_timeout"}
)

PORT = 2379

# The prefix stands before every key, and roles of etcd are given on it.
_PREFIX = re.compile(r"[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*")
_PREFIX_LENGTH_MAX = 128

# Longer than an election with default settings, so that a leader's death is survived by waiting;
# short enough that nobody believes a dead peer.
_COMMAND_TIMEOUT_S = 5.0
_CONNECT_TIMEOUT_S = 2.0
_TIMEOUT_MIN_S = 0.05
_TIMEOUT_MAX_S = 600.0

# A cluster has 3 to 7 members; a longer list is a mistake.
_ENDPOINTS_MAX = 16

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How to speak TLS: files of PEM, read when connecting."""

    ca: bytes | None
    cert: bytes | None
    key: bytes | None = field(repr=False)
    server_name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSettings:
    """The settings of one driver; ``repr`` shows no secret."""

    endpoints: tuple[str, ...]
    user: str | None
    password: str | None = field(repr=False)
    shown: str
    prefix: str
    tls: Tls | None
    command_timeout_s: float
    connect_timeout_s: float


def read_settings(location: Location, options: dict[str, Any]) -> EtcdSettings:
    """The settings of ``location`` and ``options``; arguments win over the URL's query.

    Raises:
        ConfigurationError: A value is not one the driver can use.
    """
    given: dict[str, Any] = {**location.options, **options}
    authority = urlsplit(location.url).netloc
    account, _, hosts = authority.rpartition("@")
    user, colon, password = account.partition(":")
    if account and not (user and colon):
        raise ConfigurationError(
            "an etcd user has a password: etcd://user:password@host, both percent-encoded"
        )
    if location.path.strip("/"):
        raise ConfigurationError(
            f"an etcd URL has no path, but this has {location.path!r}; to keep keys elsewhere use "
            "?prefix=…"
        )
    prefix = str(given.get("prefix", "outlive"))
    if _PREFIX.fullmatch(prefix) is None or len(prefix) > _PREFIX_LENGTH_MAX:
        raise ConfigurationError(
            f"prefix {prefix!r} is not valid: use letters, digits, '_', '.', '-' and single '/' in "
            f"between, at most {_PREFIX_LENGTH_MAX}"
        )
    return EtcdSettings(
        endpoints=_endpoints(hosts),
        user=unquote(user) or None,
        password=unquote(password) if account else None,
        shown=location.shown,
        prefix=prefix,
        tls=_tls(location, given),
        command_timeout_s=_seconds(given, "command_timeout", _COMMAND_TIMEOUT_S),
        connect_timeout_s=_seconds(given, "connect_timeout", _CONNECT_TIMEOUT_S),
    )


def _endpoints(hosts: str) -> tuple[str, ...]:
    endpoints: list[str] = []
    for host in filter(None, hosts.split(",")):
        name, _, port = host.rpartition(":")
        with_port = bool(name) and port.isdigit() and not port.endswith("]")
        endpoints.append(host if with_port else f"{host}:{PORT}")
    if not 1 <= len(endpoints) <= _ENDPOINTS_MAX:
        raise ConfigurationError(
            f"an etcd URL names 1 to {_ENDPOINTS_MAX} members: etcd://host:2379,host2:2379"
        )
    return tuple(endpoints)


def _tls(location: Location, given: dict[str, Any]) -> Tls | None:
    files = {name: given[name] for name in ("ca", "cert", "key") if given.get(name)}
    server_name = given.get("server_name")
    asked = _switch(given, "tls")
    if location.scheme == "etcds" and asked is False:
        raise ConfigurationError("etcds:// asks for TLS and tls=false refuses it: choose one")
    if location.scheme != "etcds" and not asked:
        if asked is False and (files or server_name):
            raise ConfigurationError("tls=false, but files for TLS are given: choose one")
        if not files and not server_name:
            return None
    if ("cert" in files) != ("key" in files):
        raise ConfigurationError("cert and key belong together: give both files, or neither")
    return Tls(
        ca=_file("ca", files),
        cert=_file("cert", files),
        key=_file("key", files),
        server_name=None if server_name is None else str(server_name),
    )


def _file(name: str, files: dict[str, Any]) -> bytes | None:
    path = files.get(name)
    if path is None:
        return None
    try:
        return Path(str(path)).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"the file of {name} cannot be read: {error.strerror}") from None


def _seconds(given: dict[str, Any], name: str, default: float) -> float:
    value = given.get(name, default)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{name} is a number of seconds, not {value!r}") from None
    if not _TIMEOUT_MIN_S <= number <= _TIMEOUT_MAX_S:
        raise ConfigurationError(
            f"{name} must be between {_TIMEOUT_MIN_S:g} and {_TIMEOUT_MAX_S:g}: {value!r}"
        )
    return number


def _switch(given: dict[str, Any], name: str) -> bool | None:
    value = given.get(name)
    if value is None or isinstance(value, bool):
        return value
    word = str(value).lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ConfigurationError(f"{name} is true or false, not {value!r}")
