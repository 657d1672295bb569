"""Keep-alives of many leases of etcd over one stream.

Owns the stream and who waits for which answer. A stream that breaks fails all who wait on it; the
next to ask opens another.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque

from outlive.drivers.etcd.translate import CallFailed
from outlive.drivers.etcd.wire import Renewals, Wire


class KeepAlive:
    """The stream of one driver. Answers to one lease come in the order of its questions."""

    def __init__(self) -> None:
        self._wire: Wire | None = None
        self._stream: Renewals | None = None
        self._reader: asyncio.Task[None] | None = None
        # gRPC takes one write at a time on a stream.
        self._sending = asyncio.Lock()
        self._waiting: defaultdict[int, deque[asyncio.Future[int]]] = defaultdict(deque)

    async def ask(self, wire: Wire, lease: int) -> int:
        """Keep ``lease`` alive; its ttl in whole seconds, or 0 when it is gone.

        Raises:
            CallFailed: The stream broke.
        """
        async with self._sending:
            stream = self._on(wire)
            answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            answer.add_done_callback(_notice)
            self._waiting[lease].append(answer)
            try:
                await stream.send(lease)
            except CallFailed as failure:
                self._fail(stream, failure)
            except asyncio.CancelledError:
                # Nobody knows whether the question left, so later answers could be misread.
                answer.cancel()
                self._fail(stream, CallFailed("CANCELLED", "a renewal was given up"))
                raise
        # Whoever gives up from here on leaves its place, so that the next answer is the next's.
        return await answer

    def _on(self, wire: Wire) -> Renewals:
        if wire.closed:
            # It was left while this question waited; the stream of the next must not suffer.
            raise CallFailed("CANCELLED", "the connection was left", sent=False)
        stream = self._stream
        if stream is None or self._wire is not wire:
            self.forget()
            self._wire, stream = wire, wire.renewals()
            self._stream = stream
            self._reader = asyncio.get_running_loop().create_task(self._read(stream))
        return stream

    async def _read(self, stream: Renewals) -> None:
        try:
            while True:
                term = await stream.next()
                waiting = self._waiting.get(term.id)
                if not waiting:
                    continue
                answer = waiting.popleft()
                if not waiting:
                    del self._waiting[term.id]
                if not answer.done():
                    answer.set_result(max(0, term.ttl_s))
        except CallFailed as failure:
            self._fail(stream, failure)

    def _fail(self, stream: Renewals, failure: CallFailed) -> None:
        if stream is not self._stream:
            return
        self._stream = self._wire = None
        stream.close()
        waiting, self._waiting = self._waiting, defaultdict(deque)
        for answers in waiting.values():
            for answer in answers:
                if not answer.done():
                    answer.set_exception(failure)

    def forget(self) -> None:
        """Leave the stream, because its connection is left."""
        stream, reader = self._stream, self._reader
        if stream is not None:
            self._fail(stream, CallFailed("CANCELLED", "the connection was left"))
        if reader is not None:
            reader.cancel()
        self._reader = None


def _notice(answer: asyncio.Future[int]) -> None:
    """Look at a failure, because the one who asked may have given up before it came."""
    if not answer.cancelled():
        answer.exception()
