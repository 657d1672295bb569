"""Concurrency keys: of jobs with one key the whole fleet runs a few at once.

A semaphore lease per key, held while the handler runs. A job that finds its key taken is given
back for a moment, so that it holds no slot while it waits.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from holdfast.errors import StoreError
from holdfast.leases.events import Lost
from holdfast.leases.leases import Leases
from holdfast.work.handler import Handler


class KeyBusy(Exception):
    """As many jobs of this key run as may."""


class Stoppable(Protocol):
    """A run that can be told to stop."""

    def stop(self, why: str) -> None:
        """Stop it."""
        ...


class KeyLimits:
    """Holds the keys of one host's running jobs."""

    def __init__(self, leases: Leases, log: logging.Logger) -> None:
        self._leases = leases
        self._log = log

    @asynccontextmanager
    async def held(
        self, handler: Handler[Any, Any], payload: Any, run: Stoppable
    ) -> AsyncGenerator[None, None]:
        """Hold the key of ``payload`` for a block; the run is stopped if it is lost.

        Raises:
            KeyBusy: As many as may hold it do.
        """
        options = handler.options
        key = None if options.concurrency_key is None else options.concurrency_key(payload)
        if key is None:
            yield
            return
        lease = await self._leases.try_acquire(
            f"work/{handler.queue}/{key}", limit=options.key_concurrency
        )
        if lease is None:
            raise KeyBusy
        lease.on(Lost, lambda _: run.stop("stopped"))
        try:
            yield
        finally:
            try:
                await lease.release()
            except StoreError as error:
                # It ends by its ttl; the job itself is not to blame.
                self._log.warning("the concurrency key of a job ends by its ttl: %s", error)
