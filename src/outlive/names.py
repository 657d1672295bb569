"""Names and identities: what a key may look like, and which kinds of id there are.

Pure checks. Everything that becomes part of a stored row, a metric or a log line passes here
once, at the edge, before anything is sent to a store.
"""

from __future__ import annotations

import re
from typing import NewType

from outlive.errors import InvalidName

HostId = NewType("HostId", str)
"""One incarnation of one process: fresh at every start, never configured."""

Owner = NewType("Owner", str)
"""Who owns one grant: ``<host name>/<nonce>``, where the nonce is never used twice."""

Token = NewType("Token", int)
"""The fencing token of one grant: only grows for a key, across release, expiry and restart."""

WaiterId = NewType("WaiterId", int)
"""A place in the queue of one key, in order of arrival."""

JobId = NewType("JobId", str)
"""One job: chosen by who enqueues it, so that asking again after a lost reply adds nothing."""

InstanceId = NewType("InstanceId", str)
"""One run of something durable: chosen by who starts it, so that a second start adds nothing."""

BearerId = NewType("BearerId", str)
"""One bearer token of the HTTP API, as people name it; never the token itself."""

# The tightest backend decides: a Cosmos item id holds 1,023 bytes, and an encoded key grows by a
# third; 512 leaves room for prefixes everywhere and is longer than any sane path.
KEY_BYTES_MAX = 512

# A namespace and a host name stand in every row and in log lines: short keeps rows small.
NAMESPACE_LENGTH_MAX = 64
HOST_LENGTH_MAX = 128

# A reason is a sentence for the history, not a report.
REASON_LENGTH_MAX = 500

# C0 and C1 control characters and DEL break terminals and logs; the line separators break
# line-based output; lone surrogates cannot be stored as UTF-8.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def check_key(key: str, what: str = "a key") -> str:
    """Return ``key`` if it may name a lease; ``what`` names it in errors.

    Raises:
        InvalidName: It is empty, not a string, longer than ``KEY_BYTES_MAX`` bytes of UTF-8, or
            holds a control character, a line separator or a lone surrogate.
    """
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidName(f"{_plain(what)} must be a str, not {type(key).__name__}")
    if not key:
        raise InvalidName(f"{_plain(what)} must not be empty")
    # An ASCII key of printable characters needs neither the regular expression nor encoding.
    if key.isascii() and key.isprintable():
        size = len(key)
    else:
        bad = _FORBIDDEN.search(key)
        if bad is not None:
            kind = "control character" if bad.group() < "\u2028" else "line separator"
            kind = "lone surrogate" if bad.group() >= "\ud800" else kind
            raise InvalidName(
                f"{_named(key, what)} contains a {kind} (U+{ord(bad.group()):04X}) at position "
                f"{bad.start()}"
            )
        size = len(key.encode())
    if size > KEY_BYTES_MAX:
        raise InvalidName(
            f"{_named(key, what)}… is {size} bytes long; at most {KEY_BYTES_MAX} are allowed"
        )
    return key


def _plain(what: str) -> str:
    return what.removeprefix("a ")


def _named(key: str, what: str) -> str:
    return f"{_plain(what)} {key[:40]!r}"


def check_namespace(namespace: str) -> str:
    """Return ``namespace`` if it is short, printable and safe in identifiers.

    Raises:
        InvalidName: It is not 1 to ``NAMESPACE_LENGTH_MAX`` letters, digits, ``_``, ``.``, ``-``,
            starting with a letter or digit.
    """
    if (
        not isinstance(namespace, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        or len(namespace) > NAMESPACE_LENGTH_MAX
        or _NAMESPACE.fullmatch(namespace) is None
    ):
        raise InvalidName(
            f"namespace {namespace!r} is not valid: use 1 to {NAMESPACE_LENGTH_MAX} characters of "
            "A-Z, a-z, 0-9, '_', '.' and '-', the first one of A-Z, a-z and 0-9"
        )
    return namespace


def check_queue(name: str) -> str:
    """Return ``name`` if it may name a queue: the rules are those of a key.

    Raises:
        InvalidName: See ``check_key``.
    """
    return check_key(name, "the name of a queue")


def check_host(name: str) -> str:
    """Return ``name`` if it may name a host; it stands before the slash of every owner.

    Raises:
        InvalidName: It is empty, too long, or holds a slash or a control character.
    """
    if (
        not isinstance(name, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        or not name
        or len(name) > HOST_LENGTH_MAX
        or "/" in name
        or _FORBIDDEN.search(name) is not None
    ):
        raise InvalidName(
            f"host name {name!r} is not valid: use 1 to {HOST_LENGTH_MAX} characters, no '/' and "
            "no control characters"
        )
    return name


def check_reason(reason: str) -> str:
    """Return ``reason`` if people can read it later in a history and a log.

    Raises:
        InvalidName: It is empty, too long, or holds a control character.
    """
    if (
        not isinstance(reason, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        or not 0 < len(reason) <= REASON_LENGTH_MAX
        or _FORBIDDEN.search(reason) is not None
    ):
        raise InvalidName(
            f"a reason must have 1 to {REASON_LENGTH_MAX} characters and no control characters"
        )
    return reason


def host_of(owner: str) -> str:
    """The host name inside an owner: what stands before its last slash."""
    return owner.rpartition("/")[0]
