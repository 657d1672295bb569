"""Tending: every host lets the store prune the flows that were kept long enough, now and then."""

from __future__ import annotations

import logging
from typing import NoReturn

from holdfast.errors import HoldfastError
from holdfast.ports.instance_store import InstanceStore
from holdfast.runtime.runtime import Runtime
from holdfast.work.patrol import TEND_EVERY_S, TEND_MAX

# One look at what retention has ended goes on for so many batches at most.
_ROUNDS_MAX = 100


async def tend(runtime: Runtime, store: InstanceStore, log: logging.Logger) -> NoReturn:
    """Go on until cancelled. A store that does not answer is asked again at the next look."""
    while True:
        await runtime.clock.sleep(TEND_EVERY_S * runtime.random.uniform(0.5, 1.5))
        try:
            for _ in range(_ROUNDS_MAX):
                if await store.tend(limit=TEND_MAX) < TEND_MAX:
                    break
        except HoldfastError as error:
            log.warning("ended flows were not pruned, and will be later: %s", error)
