"""Reads the PostgreSQL wire protocol, as far as a fault proxy must understand it.

Owns following one connection: which statement an Execute runs, and which reply belongs to which
request. A prepared statement names its SQL once and is then executed by name, so that looking for
``COMMIT`` in the raw bytes would fire on its preparation, or never again. Understands plain
connections only: after a switch to TLS it sees noise and never fires.
"""

from __future__ import annotations

from collections.abc import Iterator

# SSLRequest, GSSENCRequest: answered by one bare byte, then the client starts again.
NEGOTIATIONS = (80877103, 80877104)
STARTUP_HEADER = 4
HEADER = 5
READY_FOR_QUERY = b"Z"


class ClientStream:
    """Follows what the client sends."""

    def __init__(self) -> None:
        self._needle: bytes | None = None
        self._buffer = bytearray()
        self._started = False
        self._statements: dict[bytes, bytes] = {}
        self._portals: dict[bytes, bytes] = {}
        self.negotiations = 0
        # The server says ReadyForQuery once after start-up, then once for each of these.
        self.syncs = 1

    def look_for(self, needle: bytes | None) -> None:
        """Look for SQL that contains ``needle``, in any case of letters, from now on.

        Statements prepared earlier are remembered, so that they are found too.
        """
        self._needle = None if needle is None else needle.upper()

    def feed(self, data: bytes) -> int | None:
        """Take bytes; give the number of the ReadyForQuery that ends the statement looked for.

        ``None`` when these bytes do not complete a request to run it.
        """
        self._buffer += data
        hit: int | None = None
        for kind, body in self._messages():
            if self._runs_needle(kind, body):
                hit = self.syncs + 1
            if kind in (b"Q", b"S", b"F"):
                self.syncs += 1
        return hit

    def _messages(self) -> Iterator[tuple[bytes, bytes]]:
        while not self._started and len(self._buffer) >= STARTUP_HEADER * 2:
            size = int.from_bytes(self._buffer[:STARTUP_HEADER])
            if len(self._buffer) < size:
                return
            code = int.from_bytes(self._buffer[STARTUP_HEADER : STARTUP_HEADER * 2])
            del self._buffer[:size]
            if code in NEGOTIATIONS:
                self.negotiations += 1
            else:
                self._started = True
        if self._started:
            yield from _split(self._buffer)

    def _runs_needle(self, kind: bytes, body: bytes) -> bool:
        text: bytes | None = None
        if kind == b"Q":
            text = body
        elif kind == b"P":
            name, query, *_ = body.split(b"\0", 2)
            self._statements[name] = query
        elif kind == b"B":
            portal, statement, *_ = body.split(b"\0", 2)
            self._portals[portal] = self._statements.get(statement, b"")
        elif kind == b"E":
            text = self._portals.get(body.split(b"\0", 1)[0])
        if text is None or self._needle is None:
            return False
        return self._needle in text.upper()


class ServerStream:
    """Follows what the server answers."""

    def __init__(self, client: ClientStream) -> None:
        self._client = client
        self._buffer = bytearray()
        self._negotiated = 0
        self.ready = 0

    def feed(self, data: bytes) -> int:
        """Take bytes; give how many times the server has said ReadyForQuery so far."""
        self._buffer += data
        while self._negotiated < self._client.negotiations and self._buffer:
            del self._buffer[:1]
            self._negotiated += 1
        self.ready += sum(kind == READY_FOR_QUERY for kind, _ in _split(self._buffer))
        return self.ready


def _split(buffer: bytearray) -> Iterator[tuple[bytes, bytes]]:
    """Take whole messages off the front of ``buffer``: a kind, a length, a body."""
    while len(buffer) >= HEADER:
        size = int.from_bytes(buffer[1:HEADER])
        if len(buffer) < size + 1:
            return
        kind, body = bytes(buffer[:1]), bytes(buffer[HEADER : size + 1])
        del buffer[: size + 1]
        yield kind, body
