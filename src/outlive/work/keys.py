"""Concurrency keys: of jobs with one key the whole fleet runs a few at once.

A semaphore lease per key, held while the handler runs. A job that finds its key taken is given
back for a moment, so that it holds no slot while it waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from outlive.errors import StoreError
from outlive.leases.events import Lost
from outlive.leases.lease import Lease
from outlive.leases.leases import Leases
from outlive.runtime.runtime import Runtime
from outlive.work.handler import Handler


class KeyBusy(Exception):
    """As many jobs of this key run as may, or the store could not be asked."""


class Stoppable(Protocol):
    """A run that can be told to stop."""

    def stop(self, why: str) -> None:
        """Stop it."""
        ...


class Slot(Protocol):
    """Where a run runs: a thread may go on in it after the run has ended."""

    occupied: bool
    vacated: Callable[[], None] | None


class KeyLimits:
    """Holds the keys of one host's running jobs."""

    def __init__(self, runtime: Runtime, leases: Leases, log: logging.Logger) -> None:
        self._runtime = runtime
        self._leases = leases
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def held(
        self, handler: Handler[Any, Any], payload: Any, run: Stoppable, slot: Slot
    ) -> AsyncGenerator[None, None]:
        """Hold the key of ``payload`` for a block; the run is stopped if it is lost.

        A thread that outlives the block, because its time was up, keeps the key until it ends.

        Raises:
            KeyBusy: As many as may hold it do, or the store did not answer.
        """
        options = handler.options
        key = None if options.concurrency_key is None else options.concurrency_key(payload)
        if key is None:
            yield
            return
        try:
            lease = await self._leases.try_acquire(
                f"work/{handler.queue}/{key}", limit=options.key_concurrency
            )
        except StoreError as error:
            # The handler has not run, so this is no failure of the job.
            self._log.warning(
                "could not acquire the concurrency key of a job, will retry the job: %s", error
            )
            raise KeyBusy from error
        if lease is None:
            raise KeyBusy
        lease.on(Lost, lambda _: run.stop("stopped"))
        try:
            yield
        finally:
            if slot.occupied:
                slot.vacated = lambda: self._release_later(lease)
            else:
                await self._release(lease)

    def _release_later(self, lease: Lease) -> None:
        task = self._runtime.spawn(self._release(lease), name="outlive-key")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _release(self, lease: Lease) -> None:
        try:
            await lease.release()
        except StoreError as error:
            # It ends by its ttl; the job itself is not to blame.
            self._log.warning(
                "could not release the concurrency key of a job; it expires after its ttl: %s",
                error,
            )
