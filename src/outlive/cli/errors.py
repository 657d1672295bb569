"""Exit codes: what a script may decide by, and how an error becomes one line.

Owns the table of codes, which ``docs/reference/cli.md`` promises. Must never print a secret, and
prints a traceback only when asked to.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from urllib.parse import parse_qsl, unquote, urlsplit

from outlive.errors import (
    AcquireTimeout,
    ClaimLost,
    Conflict,
    FlowEnded,
    LeaseHeld,
    LeaseLost,
    NotFound,
    OutcomeUnknown,
    OutliveError,
    SchemaMismatch,
    StoreError,
    UsageError,
)
from outlive.settings import Settings, shown_options

OK = 0
UNEXPECTED = 1
USAGE = 2
# How a flow ended that was watched.
FLOW_FAILED = 10
FLOW_CANCELLED = 11
FLOW_TERMINATED = 12
# From here on the numbers of sysexits.h, where one fits.
NOT_FOUND = 66
UNAVAILABLE = 69
OUTPUT = 73
UNKNOWN = 74
HELD = 75
LOST = 76
SCHEMA = 78
# As a shell says it.
NOT_EXECUTABLE = 126
NO_COMMAND = 127
SIGNALLED = 128

# The first that fits decides: AlreadyOwned is both a usage error and a held lease, and a flow that
# has ended is there, though nothing can be sent to it.
_CODES: tuple[tuple[type[OutliveError], int], ...] = (
    (LeaseHeld, HELD),
    (AcquireTimeout, HELD),
    (LeaseLost, LOST),
    (ClaimLost, LOST),
    (FlowEnded, HELD),
    (NotFound, NOT_FOUND),
    (UsageError, USAGE),
    (SchemaMismatch, SCHEMA),
    (OutcomeUnknown, UNKNOWN),
    (StoreError, UNAVAILABLE),
    (Conflict, HELD),
)

# A shorter password occurs in ordinary words, and masking it would garble every message.
_SECRET_LENGTH_MIN = 4


class Stopped(BaseException):
    """The process was told to stop by a signal. Control flow, never shown."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def exit_code_of(error: BaseException) -> int:
    """The documented exit code of ``error``."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return UNEXPECTED


def line_of(error: BaseException) -> str:
    """What to say about ``error``, in one line."""
    if isinstance(error, OutliveError):
        return str(error) or type(error).__name__
    return (
        f"unexpected {type(error).__name__}: {error}; this is a bug in Outlive or in a driver "
        "(--verbose shows where)"
    )


def trace_of(error: BaseException) -> list[str]:
    """The lines of the traceback of ``error``."""
    return "".join(traceback.format_exception(error)).splitlines()


def secrets_of(settings: Settings) -> frozenset[str]:
    """Every form in which a secret of ``settings`` could turn up in a message."""
    found: set[str] = set()
    shown = shown_options(settings.options)
    for name, value in settings.options.items():
        if shown[name] != value:
            found |= {str(value), *secrets_in(str(value))}
    if settings.url is not None:
        found |= secrets_in(settings.url)
    return _with_escapes(found)


def secrets_in(url: str) -> frozenset[str]:
    """The secrets that ``url`` holds, even where it cannot be parsed."""
    # Not by urlsplit alone: a bare "/", "?" or "#" in a password ends the address for a parser,
    # which then complains of a piece of the password.
    userinfo, at, _ = url.partition("://")[2].rpartition("@")
    password = userinfo.partition(":")[2] if at else ""
    found = {password, *re.split(r"[/?#@:]", password)}
    try:
        query = dict(parse_qsl(urlsplit(url).query))
    except ValueError:
        query = dict[str, str]()
    shown = shown_options(query)
    return _with_escapes(
        {*found, *(value for name, value in query.items() if shown[name] != value)}
    )


def _with_escapes(found: set[str]) -> frozenset[str]:
    both = found | {unquote(secret) for secret in found}
    return frozenset(secret for secret in both if len(secret) >= _SECRET_LENGTH_MIN)


def scrub(text: str, secrets: Iterable[str]) -> str:
    """``text`` without any of ``secrets``."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
