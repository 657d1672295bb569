"""Election: one host of the fleet runs a function, for as long as it leads.

Stepping down happens in a fixed order: the lease says "not held", the function is cancelled and
awaited, and only then is the key given to others. The reverse would let two leaders overlap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from outlive.errors import Conflict, LeaseLost, OutliveError, StoreError, UsageError
from outlive.leases.lease import Lease
from outlive.runtime.backoff import Backoff
from outlive.runtime.runtime import Runtime
from outlive.runtime.tasks import is_current

_log = logging.getLogger("outlive.leases")

# A function that fails at once must not spin through elections; half a minute at the longest
# lets a broken dependency recover without a human.
_RETRY_FIRST_S = 0.5
_RETRY_MOST_S = 30.0

Body = Callable[[Lease], Awaitable[None]]


class Election:
    """Campaigns for ``key`` and runs ``body`` while leading, until cancelled."""

    def __init__(
        self,
        acquire: Callable[[], Awaitable[Lease]],
        key: str,
        body: Body,
        *,
        runtime: Runtime,
        log: logging.Logger = _log,
    ) -> None:
        self._acquire = acquire
        self._key = key
        self._body = body
        self._runtime = runtime
        self._log = log

    async def run(self) -> None:
        """Campaign for ever. Cancel to step down gracefully.

        Errors of the function and of the store are logged and followed by another campaign; a
        mistake in the arguments is raised at once.
        """
        backoff = Backoff(_RETRY_FIRST_S, _RETRY_MOST_S, self._runtime.random)
        while True:
            try:
                lease = await self._acquire()
            except UsageError:
                raise
            except (StoreError, Conflict, TimeoutError) as error:
                self._log.warning(
                    "could not acquire leadership of %r, will retry: %s",
                    self._key,
                    error,
                    extra={"key": self._key},
                )
                await self._runtime.clock.sleep(backoff.next_s())
                continue
            started = self._runtime.clock.monotonic()
            try:
                await self._lead(lease)
            except LeaseLost as error:
                self._log.warning("leadership lost: %s", error, extra={"key": self._key})
            except Exception:  # noqa: BLE001 - user code may raise anything
                self._log.exception(
                    "the leader function of %r failed", self._key, extra={"key": self._key}
                )
            if self._runtime.clock.monotonic() - started > _RETRY_MOST_S:
                # It led for a while: whatever ended that is not the trouble of the last time.
                backoff.reset()
            # Also after a normal return, which resigns: others get their turn first.
            await self._runtime.clock.sleep(backoff.next_s())

    async def _lead(self, lease: Lease) -> None:
        tenure = lease.tenure
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        tenure.block = loop.create_future()
        tenure.lost_callbacks = [lambda _error: None if ended.done() else ended.set_result(None)]
        self._log.info(
            "won the leadership of %r", lease.key, extra={"key": lease.key, "token": lease.token}
        )
        task = self._runtime.spawn(_run(self._body, lease), name=f"outlive-leader-{lease.key}")
        try:
            await asyncio.wait({task, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Whoever asks the lease from here on hears "not held"; renewals go on meanwhile.
            tenure.end()
            await self._end(task, tenure.plan.ttl_s)
            tenure.block.set_result(None)
            await self._release(lease)
            if tenure.error is None:
                self._log.info(
                    "resigned from the leadership of %r", lease.key, extra={"key": lease.key}
                )
        if tenure.error is not None:
            raise tenure.error
        task.result()

    async def _release(self, lease: Lease) -> None:
        """Give the key up. A store that is away must not take the place of a cancellation."""
        try:
            await lease.release()
        except StoreError as error:
            self._log.warning(
                "could not release leadership of %r: %s; it expires by its ttl",
                self._key,
                error,
                extra={"key": self._key},
            )

    async def _end(self, task: asyncio.Task[Any], patience_s: float) -> None:
        """Cancel the function and wait for it: two of them must never run in one process."""
        task.cancel()
        while not task.done():
            await asyncio.wait({task}, timeout=patience_s)
            if not task.done():
                self._log.error(
                    "the leader function of %r ignores cancellation; still waiting for its end",
                    self._key,
                    extra={"key": self._key},
                )


async def _run(body: Body, lease: Lease) -> None:
    task = asyncio.current_task()
    try:
        # The task starts a turn later than the grant: time enough for a pause to pass the deadline.
        lease.check()
        await body(lease)
    except asyncio.CancelledError:
        # Cancelled by us on stepping down: the function has ended as asked.
        return
    except GeneratorExit as error:
        if not is_current(task):
            # Nobody raised it: the coroutine is thrown away with its loop.
            raise
        raise RuntimeError("the leader function raised GeneratorExit") from error
    except OutliveError:
        if lease.is_held:
            raise
