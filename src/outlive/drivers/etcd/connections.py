"""The way to etcd: which member is asked, for how long, under which login.

Owns the present channel. A member that fails is left for the next one; a call that surely was not
applied is repeated there, and any other failure is the caller's to settle. A keeper that is
cancelled abandons its channel, because a renewal must not wait for the dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from outlive.drivers.etcd.library import import_rpc
from outlive.drivers.etcd.operations import Answer, Condition, Operation, Read, Term
from outlive.drivers.etcd.renewals import KeepAlive
from outlive.drivers.etcd.settings import EtcdSettings
from outlive.drivers.etcd.translate import CallFailed, Compacted, Verdict, judge, translate
from outlive.drivers.etcd.wire import Status, Watch, Wire
from outlive.errors import StoreUnavailable, UsageError
from outlive.ports.driver import DriverContext
from outlive.process import current

# A login may be refused once because it ran out; a second time it is a fault of the server.
_LOGINS_MAX = 2

# What is read at one revision and is compacted away under its reader is read anew; compaction runs
# every minutes.
COMPACTED_TRIES = 3

T = TypeVar("T")


class Connections:
    """Calls to one cluster."""

    def __init__(self, settings: EtcdSettings, context: DriverContext) -> None:
        import_rpc()
        self._settings = settings
        self._context = context
        self._pid = current.pid
        self._closed = False
        self._next = 0
        self._wire: Wire | None = None
        self._connecting = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._keep_alive = KeepAlive()

    # -- calls ----------------------------------------------------------------------------------

    async def transact(
        self,
        conditions: Sequence[Condition],
        then: Sequence[Operation],
        otherwise: Sequence[Operation] = (),
        *,
        write: bool = True,
    ) -> Answer:
        """One transaction that writes; ``write`` says whether it matters if it was applied.

        Raises:
            StoreUnavailable: Nothing was applied.
            OutcomeUnknown: ``write`` is true and the reply was lost.
            LeaseGone: It hung on a lease of etcd that is gone; nothing was applied.
        """
        return await self.call(lambda wire: wire.transact(conditions, then, otherwise), write=write)

    async def read(self, *reads: Read) -> Answer:
        """What ``reads`` show, at one revision; see ``Wire.read``.

        Raises:
            StoreUnavailable: Nobody answered, or etcd compacts faster than it can be read.
        """
        for _ in range(COMPACTED_TRIES):
            try:
                return await self.call(lambda wire: wire.read(reads), write=False)
            except Compacted:
                continue
        raise StoreUnavailable("etcd compacts its history faster than a key can be read")

    async def page(self, start: bytes, end: bytes, *, limit: int, revision: int = 0) -> Answer:
        """At most ``limit`` keys of a range; see ``Wire.page``."""
        return await self.call(
            lambda wire: wire.page(start, end, limit=limit, revision=revision), write=False
        )

    async def grant(self, ttl_s: int) -> Term:
        """A new lease of etcd. One whose reply was lost ends by itself: nothing hangs on it."""
        return await self.call(lambda wire: wire.grant(ttl_s), write=False)

    async def keep_alive(self, lease: int) -> int:
        """Count the ttl of a lease of etcd anew; its whole seconds, or 0 when it is gone.

        Repeatable, so that the next member is asked where one does not answer.

        Raises:
            StoreUnavailable: Nobody was asked.
            OutcomeUnknown: Nobody answered; it may have been extended.
        """

        async def ask(wire: Wire) -> int:
            async with asyncio.timeout(self._settings.command_timeout_s):
                return await self._keep_alive.ask(wire, lease)

        return await self.call(ask, write=True, repeatable=True)

    async def seconds_left(self, lease: int) -> int:
        """Whole seconds that a lease of etcd has left; below 0 when it is gone."""
        return await self.call(lambda wire: wire.seconds_left(lease), write=False)

    async def status(self) -> Status:
        """What the present member says of itself."""
        return await self.call(lambda wire: wire.status(), write=False)

    async def watch(self) -> Watch:
        """A stream of changes from the present member."""
        return (await self._present()).watch()

    async def call(
        self, ask: Callable[[Wire], Awaitable[T]], *, write: bool, repeatable: bool = False
    ) -> T:
        """Ask the present member; the next ones as well, while surely nothing was applied.

        What only reads, and a write that is ``repeatable``, is asked of the next one in any case.
        """
        logins, stale = 0, False
        members = len(self._settings.endpoints)
        while True:
            wire: Wire | None = None
            try:
                wire = await self._present()
                if stale:
                    await self._log_in(wire)
                return await ask(wire)
            except TimeoutError:
                failure = CallFailed("DEADLINE_EXCEEDED", "no answer in time")
            except CallFailed as error:
                failure = error
            except asyncio.CancelledError:
                if self._context.role == "keeper":
                    self._move_on(wire)
                raise
            verdict = judge(failure)
            if verdict is Verdict.STALE_LOGIN and logins < _LOGINS_MAX:
                logins, stale = logins + 1, True
                continue
            if verdict is Verdict.REFUSED:
                break
            self._move_on(wire)
            members -= 1
            unsure = verdict is not Verdict.NOT_APPLIED and write and not repeatable
            if unsure or members <= 0:
                break
        raise self._explain(failure, verdict, write=write) from failure

    def _explain(self, failure: CallFailed, verdict: Verdict, *, write: bool) -> Exception:
        """The error to raise; a write that closing cut off may still have been applied."""
        if verdict is not Verdict.UNKNOWN or not write:
            self._check()
        return translate(failure, self._settings.shown, write=write)

    # -- the present member ---------------------------------------------------------------------

    async def _present(self) -> Wire:
        self._check()
        if self._wire is not None:
            return self._wire
        async with self._connecting:
            self._check()
            if self._wire is None:
                self._wire = await self._connect()
            return self._wire

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that opened the driver."""
        return current.pid != self._pid

    def _check(self) -> None:
        if self.forked:
            raise UsageError(
                "this driver was opened before the process was forked; gRPC does not survive a "
                "fork: connect again in the child"
            )
        if self._closed:
            raise StoreUnavailable("the driver is closed")

    async def _connect(self) -> Wire:
        settings = self._settings
        wire = Wire(settings, settings.endpoints[self._next % len(settings.endpoints)])
        try:
            await wire.connect(settings.connect_timeout_s)
            await self._log_in(wire)
        except BaseException:
            self._in_background(wire.close())
            # The next attempt begins with the next member, whoever makes it, and also where this
            # one was given up: its caller may have had less time than the member was given.
            self._next += 1
            raise
        return wire

    async def _log_in(self, wire: Wire) -> None:
        user, password = self._settings.user, self._settings.password
        if user is not None and password is not None:
            wire.login = await wire.authenticate(user, password)

    def _move_on(self, wire: Wire | None) -> None:
        """Ask the next member from now on, if ``wire`` is still the present one."""
        if wire is not None and wire is self._wire:
            self._next += 1
            self._leave(wire)

    def _leave(self, wire: Wire | None) -> None:
        if wire is None or wire is not self._wire:
            return
        self._wire = None
        wire.closed = True
        self._keep_alive.forget()
        # Others may have calls on it that will still be answered; a keeper waits for nobody.
        host = self._context.role == "host"
        self._in_background(wire.close(self._settings.command_timeout_s if host else None))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give everything back. Repeatable; see the port for calls under way."""
        self._closed = True
        wire, self._wire = self._wire, None
        self._keep_alive.forget()
        if wire is not None:
            await wire.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
