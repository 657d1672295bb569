"""A TCP proxy that makes the network fail on demand.

Owns the connections that pass through it. Runs on a loop and thread of its own, so that a test may
block, or use any number of loops. A fault is in force when the method that asks for it returns.
Every fault is counted: a test asserts that it really happened, and not only that nothing broke.

It knows nothing of protocols, save that ``postgres=True`` lets `FaultProxy.drop_reply_after` find
the *execution* of a statement, prepared or not, and wait for the server to finish it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from tests.services.pgwire import ClientStream, ServerStream

CHUNK = 65536
# Longer than any test waits for a fault; a proxy that does not answer by then hangs.
CALL_LIMIT_S = 30.0
_T = TypeVar("_T")


@dataclass(slots=True)
class Counters:
    """What has happened so far."""

    accepted: int = 0
    forwarded: int = 0
    delayed: int = 0
    held: int = 0
    reset: int = 0
    triggered: int = 0
    replies_dropped: int = 0
    bytes_dropped: int = 0
    cut: int = 0


class FaultProxy:
    """Stands between clients and one server; also a context manager.

    Listens on ``127.0.0.1:port`` from `start` to `stop`; the port never changes, not even while
    connections are refused.
    """

    def __init__(self, host: str, port: int, *, postgres: bool = False) -> None:
        self.target = (host, port)
        self.postgres = postgres
        self.counters = Counters()
        # Bound and never listening, this socket keeps the port ours while nobody listens on it.
        self._reservation = socket.socket()
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reservation.bind(("127.0.0.1", 0))
        self.port: int = self._reservation.getsockname()[1]
        self.delay_s = 0.0
        self.needle: bytes | None = None
        self.flow = asyncio.Event()
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy")

    @classmethod
    def for_url(cls, url: str) -> Self:
        """Stand before the PostgreSQL server that ``url`` names."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        return cls(parts.hostname, parts.port or 5432, postgres=True)

    def url_of(self, url: str) -> str:
        """Give ``url`` with our address in place of the server's."""
        parts = urlsplit(url)
        user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        return parts._replace(netloc=f"{user}127.0.0.1:{self.port}").geturl()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Listen, and forward everything."""
        self._thread.start()
        self.pass_through()
        return self

    def stop(self) -> None:
        """Cut everything and end the thread. Safe to repeat."""
        if not self._thread.is_alive():
            return
        self._call(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._reservation.close()

    def pass_through(self) -> None:
        """Heal: accept, and forward without delay, beginning with what was held."""
        self._call(self._set())

    def delay(self, seconds: float) -> None:
        """Hold each chunk back for ``seconds``, in both directions."""
        self._call(self._set(delay_s=seconds))

    def black_hole(self) -> None:
        """Keep every connection open and forward nothing, until `pass_through` delivers it."""
        self._call(self._set(flowing=False))

    def refuse(self) -> None:
        """Refuse new connections, as a machine does that runs no server. Open ones stay."""
        self._call(self._set(listening=False))

    def reset(self) -> None:
        """Break every open connection with RST, towards both ends. New ones are welcome."""
        self._call(self._reset())

    def drop_reply_after(self, needle: bytes) -> None:
        """Lose the reply to the next request that contains ``needle``, then cut that connection.

        The request reaches the server. With ``postgres=True`` the connection is cut only after the
        server has finished the statement, so that a commit is certain to have happened. Fires
        once; later connections, and others, pass through.
        """
        self._call(self._set(needle=needle))

    def wait_for(self, condition: Callable[[Counters], bool], limit_s: float = 10.0) -> None:
        """Block until the counters satisfy ``condition``. From a coroutine, use a thread."""
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self.counters), limit_s):
                raise TimeoutError(f"the fault did not happen: {self.counters}")

    def count(self, **amounts: int) -> None:
        """Add to counters and wake whoever waits for them."""
        with self._changed:
            for name, amount in amounts.items():
                setattr(self.counters, name, getattr(self.counters, name) + amount)
            self._changed.notify_all()

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_LIMIT_S)

    async def _set(
        self,
        *,
        delay_s: float = 0.0,
        flowing: bool = True,
        listening: bool = True,
        needle: bytes | None = None,
    ) -> None:
        self.delay_s = delay_s
        self.needle = needle
        for link in self._links:
            link.watch(needle)
        if flowing:
            self.flow.set()
        else:
            self.flow.clear()
        if listening:
            self._listen()
        else:
            self._close_listener()

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._listener.setblocking(False)
            self._loop.add_reader(self._listener, self._accept, self._listener)

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    # Not asyncio.start_server: a connection that it accepts just before it is closed leaks.
    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            client, _ = listener.accept()
            client.setblocking(False)
            task = self._loop.create_task(self._serve(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: socket.socket) -> None:
        link = _Link(self, *await asyncio.open_connection(sock=client))
        self._links.add(link)
        self.count(accepted=1)
        try:
            await link.run()
        except asyncio.CancelledError:
            link.abort()
            raise
        finally:
            link.close()
            self._links.discard(link)

    async def _reset(self) -> None:
        for link in list(self._links):
            link.abort(hard=True)
            self.count(reset=1)

    async def _shut_down(self) -> None:
        self._close_listener()
        # A connection just accepted has a task that did not begin, and cannot clean up yet.
        await self._settle()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._settle()

    async def _settle(self) -> None:
        """Let callbacks run: opening and closing a transport take a few turns of the loop."""
        for _ in range(5):
            await asyncio.sleep(0)


class _Link:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(
        self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writers = [writer]
        self._needle: bytes | None = None
        self._tail = b""
        self._requests = ClientStream()
        self._replies = ServerStream(self._requests)
        # Set once the fault fired: the reply that ends it, and from then on nothing is answered.
        self._cut_at: int | None = None
        self.watch(proxy.needle)

    def watch(self, needle: bytes | None) -> None:
        """Look for ``needle`` in what the client sends from now on."""
        self._needle = needle
        self._tail = b""
        self._requests.look_for(needle)

    async def run(self) -> None:
        with contextlib.suppress(OSError):
            await self._proxy.flow.wait()
            server_reader, server_writer = await asyncio.open_connection(*self._proxy.target)
            self._writers.append(server_writer)
            requests = asyncio.create_task(self._pump_requests(server_writer))
            replies = asyncio.create_task(self._pump_replies(server_reader))
            both = {requests, replies}
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in both:
                    pump.cancel()
                await asyncio.gather(*both, return_exceptions=True)

    def close(self) -> None:
        """Close both sides after what was already forwarded is delivered."""
        for writer in self._writers:
            writer.close()

    def abort(self, *, hard: bool = False) -> None:
        """Close both sides at once; ``hard`` sends RST instead of FIN."""
        for writer in self._writers:
            endpoint = writer.get_extra_info("socket")
            if hard and endpoint is not None and endpoint.fileno() >= 0:
                # Lingering for zero seconds is how a socket asks for RST.
                endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _pump_requests(self, server: asyncio.StreamWriter) -> None:
        while data := await self._reader.read(CHUNK):
            await self._pause()
            # The reply may come before the write returns, so that the decision comes first.
            self._decide(data)
            server.write(data)
            await server.drain()
            self._proxy.count(forwarded=1)

    async def _pump_replies(self, server: asyncio.StreamReader) -> None:
        while data := await server.read(CHUNK):
            await self._pause()
            ready = self._replies.feed(data) if self._proxy.postgres else None
            if self._cut_at is None:
                self._writers[0].write(data)
                await self._writers[0].drain()
                self._proxy.count(forwarded=1)
                continue
            self._proxy.count(replies_dropped=1, bytes_dropped=len(data))
            if ready is None or ready >= self._cut_at:
                self.abort(hard=True)
                self._proxy.count(cut=1)
                return

    async def _pause(self) -> None:
        if self._proxy.delay_s:
            self._proxy.count(delayed=1)
            await asyncio.sleep(self._proxy.delay_s)
        if not self._proxy.flow.is_set():
            self._proxy.count(held=1)
            await self._proxy.flow.wait()

    def _decide(self, data: bytes) -> None:
        """Fire when ``data`` completes the request that is looked for."""
        hit: int | None = None
        if self._proxy.postgres:
            hit = self._requests.feed(data)
        elif self._needle is not None:
            seen = self._tail + data
            hit = 0 if self._needle in seen else None
            # A needle may lie across two chunks.
            self._tail = seen[-len(self._needle) + 1 :] if len(self._needle) > 1 else b""
        if hit is not None and self._cut_at is None and self._proxy.needle is not None:
            self._cut_at = hit
            self._proxy.needle = None
            self._proxy.count(triggered=1)
