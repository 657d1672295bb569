"""Committing: writes of instances go out together, and again until their outcome is known.

Owns the batches and their repetition. What is written is immutable; it is repeated while the store
does not answer and the session it was made under is ours by our own clock, and not once after.
One write of an instance is under way at a time: its owner sees to that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from outlive.errors import StoreError
from outlive.runtime.backoff import Backoff
from outlive.runtime.runtime import Runtime
from outlive.runtime.session import LiveSession

Member = TypeVar("Member")
Answer = TypeVar("Answer")

# One batch is one transaction; what came meanwhile is the next. One is under way at a time: a batch
# costs a server as much as many of its members do, so that two small ones beside each other bring
# one host a little, and take a good part from what a fleet can do on one server.
BATCH_MAX = 500

# The first repetition comes soon, because most replies are lost by one connection.
_FIRST_S, _MOST_S = 0.05, 1.0

# A batch that takes longer waits for somebody, perhaps for a transaction of the user's own that is
# open for minutes: the next goes out beside it.
_SLOW_S = 0.25

# So many at once; a store that makes all of them wait is itself slow.
_SLOW_MAX = 8


class Writes(Generic[Member, Answer]):
    """One kind of write of instances: commits, or handing back."""

    def __init__(
        self,
        runtime: Runtime,
        method: Callable[[Sequence[Member]], Awaitable[Sequence[Answer]]],
        log: logging.Logger,
        *,
        at_once: Callable[[Member], Answer | None] | None = None,
    ) -> None:
        self._runtime = runtime
        self._method = method
        self._at_once = at_once
        # Whether they have come one by one lately: there is no company to wait for.
        self._lone = False
        # Written, and not told yet.
        self._telling = 0
        self._log = log
        self._waiting: list[_Write] = []
        # Batches under way, and how many of them are so slow that others pass them.
        self._sending: dict[asyncio.Task[None], _Sent] = {}
        self._slow = 0
        self._watch: asyncio.TimerHandle | None = None

    def put(
        self,
        member: Member,
        session: LiveSession,
        done: Callable[[Answer | None], None],
        *,
        last: bool = False,
    ) -> None:
        """Write ``member``, and call ``done`` with the answer.

        ``None`` instead of an answer: nobody knows whether it was written, and the session's time
        has run out, so that it must not be written any more. The ``last`` write of an instance may
        be answered before this returns.
        """
        if self._lone and self._put_at_once(member, session, done, last=last):
            return
        self._waiting.append((member, session, done))
        self._go_on()

    def _put_at_once(
        self,
        member: Member,
        session: LiveSession,
        done: Callable[[Answer | None], None],
        *,
        last: bool,
    ) -> bool:
        """Write what comes alone without a task for it; whether it is written."""
        answer = None
        if self._at_once is not None and not self._sending and session.held:
            try:
                answer = self._at_once(member)
            except Exception:  # noqa: BLE001 - sent again in the usual way, which tells of it
                answer = None
        if answer is None:
            # There is company, or somebody to wait for.
            self._lone = False
            return False
        if last:
            # Nothing follows from it but that somebody hears of it, in a turn of his own.
            self._tell(done, answer)
            return True
        self._telling += 1
        # Not now: everybody else is owed a turn.
        asyncio.get_running_loop().call_soon(self._told, done, answer)
        return True

    def _told(self, done: Callable[[Answer | None], None], answer: Answer) -> None:
        self._telling -= 1
        self._tell(done, answer)

    async def flushed(self) -> None:
        """Wait until everything that was put has its answer."""
        while self._waiting or self._sending or self._telling:
            if self._sending:
                await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(0)

    def _send(self) -> None:
        loop = asyncio.get_running_loop()
        task = self._runtime.spawn(self._write_waiting(), name="outlive-flow-commit")
        self._sending[task] = _Sent(loop.time())
        task.add_done_callback(self._on_sent)
        if self._watch is None:
            self._watch = loop.call_later(_SLOW_S, self._look)

    async def _write_waiting(self) -> None:
        # A task begins in the next turn of the loop: what was decided in the same turn goes along.
        batch = self._waiting[:BATCH_MAX]
        del self._waiting[:BATCH_MAX]
        await self._write(batch)
        self._lone = len(batch) == 1 and not self._waiting

    def _look(self) -> None:
        """Let others pass the batches that are slow. One timer for all: most are over by then."""
        loop = asyncio.get_running_loop()
        self._watch = None
        quick = [sent for sent in self._sending.values() if not sent.slow]
        for sent in quick:
            if loop.time() - sent.at >= _SLOW_S and self._slow + 1 < _SLOW_MAX:
                sent.slow = True
                self._slow += 1
                self._go_on()
            elif self._watch is None:
                # They are in the order in which they went out: this is the next to look at.
                wait_s = max(sent.at + _SLOW_S - loop.time(), _SLOW_S / 10)
                self._watch = loop.call_later(wait_s, self._look)

    def _on_sent(self, task: asyncio.Task[None]) -> None:
        if self._sending.pop(task).slow:
            self._slow -= 1
        self._go_on()

    def _go_on(self) -> None:
        if self._waiting and len(self._sending) <= self._slow:
            self._send()

    async def _write(self, batch: list[_Write]) -> None:
        backoff: Backoff | None = None
        try:
            while batch := _still_ours(batch):
                try:
                    answers = await self._method([member for member, _, _ in batch])
                except StoreError as error:
                    if backoff is None:
                        backoff = Backoff(_FIRST_S, _MOST_S, self._runtime.random)
                        self._log.warning("could not commit flows, will retry: %s", error)
                    await self._runtime.clock.sleep(backoff.next_s())
                else:
                    told, batch = batch, []
                    for (_, _, done), answer in zip(told, answers, strict=True):
                        self._tell(done, answer)
                    return
        except GeneratorExit:
            # Dropped with its loop: nobody is left who could go on, or give up.
            batch = []
            raise
        except Exception:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            batch = await self._apart(batch)
        finally:
            for _, _, done in batch:
                self._tell(done, None)

    async def _apart(self, batch: list[_Write]) -> list[_Write]:
        """One of them cannot be written, and must not take the others along; which that is."""
        if len(batch) == 1:
            self._log.exception("could not encode or write the commit of a flow")
            return batch
        for each in batch:
            await self._write([each])
        return []

    def _tell(self, done: Callable[[Any], None], answer: object) -> None:
        try:
            done(answer)
        except Exception:  # noqa: BLE001 - one flow's mistake must not stop the others
            self._log.exception("a flow could not continue after its commit")


class _Sent:
    """When a batch went out, and whether others pass it."""

    __slots__ = ("at", "slow")

    def __init__(self, at: float) -> None:
        self.at = at
        self.slow = False


_Write = tuple[Any, LiveSession, Callable[[Any], None]]


def _still_ours(batch: list[_Write]) -> list[_Write]:
    """Those whose session may be relied on now; the others are told that nothing is known."""
    # All of one session, but for those that were made just before it was lost.
    first = batch[0][1] if batch else None
    if first is not None and first.held:
        for _, session, _ in batch:
            if session is not first:
                break
        else:
            return batch
    kept: list[_Write] = []
    for write in batch:
        if write[1].held:
            kept.append(write)
        else:
            write[2](None)
    return kept
