"""A store's URL, parsed once, with its secret masked wherever it might be shown. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from outlive.errors import ConfigurationError

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
# A URL is typed by a person or injected by a platform; longer ones are a mistake.
_URL_LENGTH_MAX = 4096

NO_URL = "no store URL"
"""How the message begins where no URL is given; what to do about it follows."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where a store is.

    ``str`` and ``repr`` never show the password, nor option values that may be secret; ``url`` is
    the whole, for the driver alone.
    """

    scheme: str
    url: str = field(repr=False)
    shown: str
    path: str
    options: dict[str, str] = field(repr=False, default_factory=dict[str, str])

    def __str__(self) -> str:
        return self.shown


def _hides_a_secret(parts: SplitResult) -> bool:
    """Whether a password with an unescaped ``/``, ``?`` or ``#`` was cut in two.

    What follows the cut would be taken for a path and shown.
    """
    if not parts.netloc or "@" in parts.netloc:
        return False
    return "@" in parts.path or "@" in parts.fragment or "@" in parts.query.partition("=")[0]


def _address(parts: SplitResult) -> str:
    """The hosts and ports, without the user. PostgreSQL's URL may name several, with commas.

    Raises:
        ValueError: A port is not a number.
    """
    hosts: list[str] = []
    for member in parts.netloc.rpartition("@")[2].split(","):
        one = urlsplit(f"//{member}")
        hosts.append((one.hostname or "") + ("" if one.port is None else f":{one.port}"))
    return ",".join(hosts)


def _misread(scheme: str) -> ConfigurationError:
    return ConfigurationError(
        f"the {scheme} URL cannot be parsed: the port must be a number, and in a user name or "
        "password the characters / ? # @ : % must be percent-encoded (%2F %3F %23 %40 %3A %25)"
    )


def parse_url(url: str) -> Location:
    """Parse ``url`` into a location.

    Raises:
        ConfigurationError: It is no URL of the form ``scheme://…``. The message shows no secret.
    """
    if not isinstance(url, str) or not url.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"{NO_URL}: pass one to connect() or with --url, set OUTLIVE_URL, or write "
            'url = "…" in outlive.toml (for example sqlite:///outlive.db); `outlive configure` '
            "asks for it"
        )
    if len(url) > _URL_LENGTH_MAX:
        raise ConfigurationError(f"the store URL is longer than {_URL_LENGTH_MAX} characters")
    scheme, sep, rest = url.partition("://")
    # As in every URL, capitals mean nothing here; drivers compare with what is written small.
    scheme = scheme.lower()
    if not sep or _SCHEME.fullmatch(scheme) is None:
        raise ConfigurationError(
            "the store URL must look like scheme://…, for example sqlite:///outlive.db, "
            "postgresql://user@host/database or memory://"
        )
    url = f"{scheme}://{rest}"
    try:
        parts = urlsplit(url)
        address = _address(parts)
    except ValueError:
        # The parser's own words may quote what it took for a port: half a password.
        raise _misread(scheme) from None
    if _hides_a_secret(parts):
        raise _misread(scheme)
    user = f"{unquote(parts.username)}@" if parts.username else ""
    return Location(
        scheme=scheme,
        url=url,
        shown=f"{scheme}://{user}{address}{parts.path}",
        path=unquote(parts.path),
        options=dict(parse_qsl(parts.query, keep_blank_values=True)),
    )
