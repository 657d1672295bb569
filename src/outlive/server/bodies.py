"""Reading what a client sends: limited while it streams, checked before it is parsed.

Owns the way from bytes to a request type. It must never hold more than the limit, and never hand
a document to the parser whose depth or number of values nobody has looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from typing import Any, TypeVar, cast, get_args, get_origin
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.requests import ClientDisconnect, Request

from outlive.serialization import DEPTH_MAX
from outlive.server.limits import (
    BODY_TIMEOUT_S,
    BODY_VALUES_MAX,
    DRAIN_BYTES_MAX,
    STOP_BODY_S,
)
from outlive.server.problems import Problem
from outlive.server.schemas import PATTERNS, Name

T = TypeVar("T")

# A text that never ends reaches to the end of the body, and nothing is tried twice: otherwise each
# of its quotes would be a new beginning, and the time would grow with the square of the length.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
# More than any limit has.
_DIGITS_MAX = 18
# A pattern of ``schemas`` that is a choice, as msgspec shows it.
_CHOICE = re.compile(r"matching regex '\^\(([\w|]+)\)\$[^']*'")
# Words of the parser, and those of this API for them.
_WORDS = {
    "`float`": "`number`",
    "that's a multiple of 1.0": "that is whole",
    "Input data was truncated": "The body ends before its JSON does.",
    **{f"matching regex {pattern!r}": words for pattern, words in PATTERNS.items()},
}
_JSON = re.compile(r"application/json\s*(;\s*charset\s*=\s*\"?utf-8\"?\s*)?", re.IGNORECASE)


class Bodies:
    """Reads the bodies of one server, of at most ``limit`` bytes each, until it stops."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._stopping = False
        self._reading: set[asyncio.Timeout] = set()

    def stop(self) -> None:
        """Let bodies that are being sent come to their end soon. Repeatable."""
        if not self._stopping:
            self._stopping = True
            until = asyncio.get_running_loop().time() + STOP_BODY_S if self._reading else 0.0
            for timeout in self._reading:
                # One whose time is just running out cannot be moved, and needs not be.
                with contextlib.suppress(RuntimeError):
                    timeout.reschedule(min(until, timeout.when() or until))

    async def read(self, request: Request, *, optional: bool = False) -> bytes:
        """The body of a request, as JSON.

        ``optional``: none at all stands for an empty object, and needs no type.

        Raises:
            Problem: It is too large, too slow, compressed, or says that it is something else.
        """
        headers = request.headers
        declared = headers.get("content-length", "").lstrip("0")
        is_json = _JSON.fullmatch(headers.get("content-type", "").strip()) is not None
        if not is_json and (declared or not optional):
            raise _not_json()
        if headers.get("content-encoding", "identity").lower() != "identity":
            # A few bytes could unpack to gigabytes.
            raise Problem("unsupported-media-type", "Send the body without Content-Encoding.")
        # Python refuses to read a number of thousands of digits; its length says enough.
        size = int(declared) if declared.isdecimal() and len(declared) <= _DIGITS_MAX else 0
        most = self._limit + DRAIN_BYTES_MAX
        asks = "expect" in headers
        if len(declared) > _DIGITS_MAX or size > most or (size > self._limit and asks):
            # Too much to wait for; or the client asks before it sends anything.
            raise _too_large(self._limit)
        patience_s = STOP_BODY_S if self._stopping else BODY_TIMEOUT_S
        try:
            async with asyncio.timeout(patience_s) as timeout:
                self._reading.add(timeout)
                try:
                    body = await self._gather(request, most)
                finally:
                    self._reading.discard(timeout)
        except TimeoutError:
            if size > self._limit:
                raise _too_large(self._limit) from None
            if self._stopping:
                raise Problem(
                    "server-stopping",
                    "The body did not arrive in time, and nothing was changed. Repeat the request.",
                    Retry_After="1",
                    Connection="close",
                ) from None
            raise Problem(
                "request-timeout", f"Send the whole body within {BODY_TIMEOUT_S:g} s."
            ) from None
        except ClientDisconnect:
            raise Problem("request-timeout", "The connection was closed.") from None
        if optional and not body:
            return b"{}"
        if not is_json:
            raise _not_json()
        return body

    async def _gather(self, request: Request, most: int) -> bytes:
        """The parts of the body; those of one that is too large are dropped as they come."""
        parts: list[bytes] = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > most:
                break
            if size > self._limit:
                parts.clear()
            else:
                parts.append(part)
        if size > self._limit:
            raise _too_large(self._limit)
        return b"".join(parts)


def _not_json() -> Problem:
    return Problem("unsupported-media-type", "Send JSON, and Content-Type: application/json.")


def _too_large(limit: int) -> Problem:
    return Problem(
        "too-large",
        f"A body must have at most {limit} bytes; send fewer items, or store large payloads "
        "elsewhere.",
        Connection="close",
    )


def check_shape(body: bytes) -> None:
    """Refuse a document that is deep or has very many values, in time linear in its length.

    Raises:
        Problem: It is not for us.
    """
    bare = _STRING.sub(b"", body)
    if bare.count(b",") > BODY_VALUES_MAX:
        raise Problem("invalid-request", f"A body must have at most {BODY_VALUES_MAX} values.")
    # Without commas between them brackets can only nest, so that this loop is short as well.
    depth = 0
    for byte in bare.translate(None, _NOT_BRACKETS):
        if byte in b"[{":
            depth += 1
            if depth > DEPTH_MAX:
                raise Problem(
                    "invalid-request", f"JSON must be nested at most {DEPTH_MAX} levels deep."
                )
        else:
            depth -= 1


def decode(body: bytes, kind: type[T]) -> T:
    """The request in ``body``.

    Raises:
        Problem: It is not JSON, or not what this route takes; says which part.
    """
    check_shape(body)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise Problem("invalid-request", _said(error)) from None
    except msgspec.MsgspecError as error:
        if _has_half_pair(body):
            half = "A string in the body contains a lone surrogate, which is not a character."
            raise Problem("invalid-request", half) from None
        raise Problem("invalid-request", _said(error)) from None
    except (ValueError, RecursionError):
        raise Problem("invalid-request", "The body is not valid JSON in UTF-8.") from None


def _said(error: Exception) -> str:
    """What is wrong, in the words of JSON and without patterns."""
    text = str(error)
    for found, words in _WORDS.items():
        text = text.replace(found, words)
    return _CHOICE.sub(lambda found: f"of: {', '.join(found[1].split('|'))}", text)


def _has_half_pair(body: bytes) -> bool:
    """Whether that is why a document was refused, of which the parser says that it is cut off."""
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def check_path(request: Request) -> None:
    """Refuse a path whose bytes are no text: what nobody can read would become a name.

    Raises:
        Problem: It is not UTF-8.
    """
    raw: bytes = request.scope.get("raw_path") or b""
    if b"%" in raw:
        try:
            unquote_to_bytes(raw).decode()
        except UnicodeDecodeError:
            raise Problem("invalid-request", "The path is not valid UTF-8.") from None


def decode_name(value: object, kind: Any = Name) -> str:
    """A name in the path, of this kind.

    Raises:
        Problem: Nothing can have this name.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Problem("invalid-request", f"{_said(error)} - in the path") from None


def decode_query(request: Request, kind: type[T]) -> T:
    """The request in the query string; lists are given several times, flags without a value.

    Raises:
        Problem: A parameter is unknown, repeated or not what this route takes.
    """
    found: dict[str, Any] = {}
    fields = msgspec.structs.fields(cast("Any", kind))
    lists = {field.encode_name for field in fields if _is_list(field.type)}
    flags = {field.encode_name for field in fields if field.type is bool}
    for name, value in request.query_params.multi_items():
        if name in lists:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise Problem("invalid-request", f"The parameter {name!r} is given twice.")
        elif name in flags and not value:
            found[name] = True
        else:
            found[name] = value
    try:
        return msgspec.convert(found, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Problem("invalid-request", _said(error)) from None


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list or any(_is_list(part) for part in get_args(kind)[:1])
