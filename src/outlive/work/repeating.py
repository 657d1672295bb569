"""Repeating: what is asked of the store again when it did not answer.

Every method of the job store may be repeated and then gives the same answer, so a lost reply costs
time and nothing else. Owns how long that is tried.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from outlive.errors import OutcomeUnknown, StoreError, StoreUnavailable
from outlive.runtime.backoff import Backoff
from outlive.runtime.outside import check_outside
from outlive.runtime.runtime import Runtime
from outlive.runtime.session import LiveSession

# A store that restarts is back within seconds, and a caller who waits longer wants to know.
PATIENCE_S = 5.0

# Soon at first, because most replies are lost by one connection; then out of a sick store's way.
_FIRST_S, _MOST_S = 0.05, 1.0

T = TypeVar("T")


async def until_known(
    runtime: Runtime,
    call: Callable[[int], Awaitable[T]],
    *,
    unknown: OutcomeUnknown | None = None,
) -> T:
    """``await call(number)``, again with the next number while its outcome is unknown.

    ``unknown`` is what became of number 0, if that was asked for already.

    Raises:
        StoreUnavailable: The store did not take it, and nothing was applied.
        OutcomeUnknown: No answer for a few seconds; it may or may not have been applied.
        UsageError: The code of a flow asks.
    """
    check_outside("a connection, nor a handle of one")
    if unknown is None:
        try:
            return await call(0)
        except OutcomeUnknown as error:
            unknown = error
    clock, backoff = runtime.clock, Backoff(_FIRST_S, _MOST_S, runtime.random)
    first = unknown
    until, number = clock.monotonic() + PATIENCE_S, 0
    while clock.monotonic() < until:
        await clock.sleep(backoff.next_s())
        number += 1
        try:
            return await call(number)
        except (OutcomeUnknown, StoreUnavailable) as error:
            # One that is refused now says nothing of the one before.
            unknown = OutcomeUnknown(f"{first}; repeated: {error}")
    raise unknown


async def while_held(runtime: Runtime, session: LiveSession, call: Callable[[], Awaitable[T]]) -> T:
    """``await call()``, again while the store does not answer and the claim can still be ours.

    Raises:
        StoreError: The last answer, when the session's time ran out.
    """
    backoff: Backoff | None = None
    while True:
        try:
            return await call()
        except StoreError:
            backoff = backoff or Backoff(_FIRST_S, _MOST_S, runtime.random)
            pause_s = backoff.next_s()
            if pause_s >= session.left_s:
                raise
        await runtime.clock.sleep(pause_s)
