"""The least of HTTP that the client needs: one JSON request, one answer, on asyncio streams.

Owns the connections: they are kept for the next request, and a request that was cancelled or timed
out takes its connection with it. Nothing is sent twice here; who asks decides whether that is safe.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from outlive.errors import ConfigurationError, OutcomeUnknown, StoreUnavailable, UsageError
from outlive.serialization import encode_json

# Far above any answer: a page of items with payloads of the largest size.
_ANSWER_BYTES_MAX = 64 * 1024 * 1024
_HEAD_BYTES_MAX = 64 * 1024

# What a server takes in one request. Asked here: a server may hang up on a larger one before the
# client has sent all of it, which then never learns why.
_BODY_BYTES_MAX = 1024 * 1024

# Idle connections to one server; a worker has a handful of requests under way.
_IDLE_MAX = 8

# A connection that was idle for longer is not used again. Many servers, uvicorn among them, close
# one after five seconds, and what is sent at that moment is lost; the rest is for the way there.
_IDLE_S = 3.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said; ``document`` is ``None`` where it said nothing in JSON."""

    status: int
    document: Any


@dataclass(slots=True)
class _Link:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    # By the clock of the loop.
    idle_since: float = 0.0


class Http:
    """Requests to one server. ``repr`` shows no token."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise ConfigurationError(
                "a server URL must have the form http://host:8420, without user and password"
            )
        if parts.query or parts.fragment:
            raise ConfigurationError("a server URL must not have a query")
        if token is not None and not (token.isascii() and token.isprintable() and token):
            raise ConfigurationError(
                "token must be the single line that `outlive token create` printed"
            )
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host = parts.hostname
        self._port = parts.port or (443 if self._tls else 80)
        self._base = parts.path.rstrip("/")
        self._netloc = parts.netloc
        self._token = token
        self._idle: list[_Link] = []
        self._closed = False
        self.sent = 0
        """How many requests went out on a connection, and may have been heard."""

    async def request(
        self, method: str, path: str, document: Any = None, *, timeout: float
    ) -> Answer:
        """Send one request, and return the answer whatever it is.

        Raises:
            UsageError: The document cannot be said in JSON, or is too large; nothing was sent.
            StoreUnavailable: The server was not reached; nothing was done.
            OutcomeUnknown: It was sent, and no whole answer came in time.
        """
        body = b"" if document is None else _json(document)
        if len(body) > _BODY_BYTES_MAX:
            raise UsageError(
                f"a request of {len(body):,} bytes is too large, the limit is {_BODY_BYTES_MAX:,}: "
                "send fewer items, or store large payloads elsewhere"
            )
        message = self._message(method, path, body)
        try:
            async with asyncio.timeout(timeout):
                return await self._exchange(message)
        except TimeoutError:
            raise OutcomeUnknown(f"the server did not answer within {timeout:g} s") from None

    async def close(self) -> None:
        """End all connections. Repeatable."""
        self._closed = True
        while self._idle:
            await _end(self._idle.pop())

    async def _exchange(self, message: bytes) -> Answer:
        link = self._idle_link() or await self._connect()
        try:
            answer, keep = await self._ask(link, message)
        except BaseException:
            link.writer.close()
            raise
        if keep and not self._closed and len(self._idle) < _IDLE_MAX:
            link.idle_since = asyncio.get_running_loop().time()
            self._idle.append(link)
        else:
            await _end(link)
        return answer

    def _idle_link(self) -> _Link | None:
        """A connection that is still there: servers close those that were idle for long."""
        since = asyncio.get_running_loop().time() - _IDLE_S
        while self._idle:
            link = self._idle.pop()
            there = not link.reader.at_eof() and not link.writer.is_closing()
            if there and link.idle_since >= since:
                return link
            link.writer.close()
        return None

    async def _connect(self) -> _Link:
        if self._closed:
            raise StoreUnavailable("the client is closed")
        try:
            reader, writer = await asyncio.open_connection(
                self._host, self._port, ssl=self._tls, limit=_HEAD_BYTES_MAX
            )
        except OSError as error:
            raise StoreUnavailable(
                f"cannot connect to the server at {self._host}:{self._port}: {error}"
            ) from None
        return _Link(reader, writer)

    def _message(self, method: str, path: str, body: bytes) -> bytes:
        lines = [
            f"{method} {self._base}{path} HTTP/1.1",
            f"Host: {self._netloc}",
            "Accept: application/json",
        ]
        if self._token is not None:
            lines.append(f"Authorization: Bearer {self._token}")
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        elif method == "POST":
            lines.append("Content-Length: 0")
        return "\r\n".join([*lines, "", ""]).encode("ascii") + body

    async def _ask(self, link: _Link, message: bytes) -> tuple[Answer, bool]:
        self.sent += 1
        try:
            link.writer.write(message)
            await link.writer.drain()
            head = await link.reader.readuntil(b"\r\n\r\n")
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise OutcomeUnknown("the server closed the connection without an answer") from None
        status, headers = _parse(head)
        try:
            body = await _body(link.reader, status, headers)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            raise _cut() from None
        document: Any = None
        if body and headers.get("content-type", "").partition(";")[0].endswith("json"):
            try:
                document = msgspec.json.decode(body)
            except (msgspec.DecodeError, RecursionError):
                raise _cut() from None
        keep = headers.get("connection", "").lower() != "close"
        return Answer(status, document), keep


def _json(document: Any) -> bytes:
    try:
        body = msgspec.json.encode(document)
        body.decode()
        plain = msgspec.to_builtins(document) if b"null" in body else None
    except UnicodeDecodeError as error:
        raise UsageError("the request contains text that is not valid Unicode") from error
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError) as error:
        raise UsageError(f"the request cannot be sent as JSON: {error}") from error
    if plain is not None:
        # Numbers that JSON cannot say have become null: they are looked for where one is.
        encode_json(plain, "the request", limit=_BODY_BYTES_MAX)
    return body


def _cut() -> OutcomeUnknown:
    return OutcomeUnknown("the server's answer was incomplete")


def _parse(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest.partition(" ")[0]
    if not version.startswith("HTTP/1.") or not status.isdecimal():
        raise OutcomeUnknown(
            "the server did not answer in HTTP: check the scheme and the port of the URL"
        )
    pairs = (line.partition(":") for line in lines if line)
    return int(status), {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _body(reader: asyncio.StreamReader, status: int, headers: dict[str, str]) -> bytes:
    if status in (204, 304):
        return b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _chunks(reader)
    length = int(headers.get("content-length", "0"))
    if not 0 <= length <= _ANSWER_BYTES_MAX:
        raise ValueError(length)
    return await reader.readexactly(length)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    left = _ANSWER_BYTES_MAX
    while True:
        size = int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16)
        left -= size
        if size < 0 or left < 0:
            raise ValueError(size)
        part = await reader.readexactly(size + 2)
        if size == 0:
            return b"".join(parts)
        parts.append(part[:-2])


async def _end(link: _Link) -> None:
    link.writer.close()
    try:
        await link.writer.wait_closed()
    except OSError:
        # It was gone already.
        return
