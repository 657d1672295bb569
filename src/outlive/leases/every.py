"""Every: a periodic function that one host of the fleet runs at each tick.

The host that leads runs the ticks. Before each run it writes the tick's number into the lease's
state, under its token: a tick therefore runs at most once in the fleet, and the next leader knows
which ones were missed.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

from outlive.errors import OutliveError, UsageError
from outlive.leases.lease import Lease
from outlive.model.ticks import Tick, decide
from outlive.runtime.runtime import Runtime
from outlive.telemetry import plural

# The wall clock may be set, or the machine suspended, while we sleep: look again this often.
_SLEEP_MOST_S = 30.0

# Shorter ticks than this are a loop, not a schedule: each costs a durable write.
INTERVAL_MIN_S = 0.1

Periodic = Callable[..., Awaitable[None] | None]


class Ticker:
    """The body of the leader of one periodic function."""

    def __init__(
        self, function: Periodic, interval_s: float, *, runtime: Runtime, log: logging.Logger
    ) -> None:
        if interval_s < INTERVAL_MIN_S:
            raise UsageError(
                f"interval must be at least {INTERVAL_MIN_S:g} s, not {interval_s:g} s"
            )
        self._function = function
        self._interval_s = interval_s
        self._runtime = runtime
        self._log = log
        self._takes_tick = _takes_argument(function)

    async def run(self, lease: Lease) -> None:
        """Run ticks while the lease is held; raises ``LeaseLost`` when it is not."""
        clock = self._runtime.clock
        last = _last_tick(lease.state)
        while True:
            decision = decide(clock.now().timestamp(), self._interval_s, last)
            last = decision.last
            if decision.run is None:
                if last != _last_tick(lease.state):
                    await lease.renew(state={"tick": last})
                await clock.sleep(min(decision.wait_s, _SLEEP_MOST_S))
                lease.check()
                continue
            # Claim the tick before running it: a crash in between misses it, and never repeats it.
            await lease.renew(state={"tick": decision.run.number})
            await self._run_once(lease, decision.run)

    async def _run_once(self, lease: Lease, tick: Tick) -> None:
        fields = {"key": lease.key, "tick": tick.number, "missed": tick.missed}
        if tick.missed:
            self._log.warning(
                "periodic function %r missed %s",
                lease.key,
                plural(tick.missed, "tick"),
                extra=fields,
            )
        try:
            # The tick was claimed before a pause that may have passed the deadline.
            lease.check()
            result = self._function(tick) if self._takes_tick else self._function()
            if inspect.isawaitable(result):
                await result
        except OutliveError:
            lease.check()
            self._log.exception("periodic function %r failed", lease.key, extra=fields)
        except Exception:  # noqa: BLE001 - user code may raise anything; the next tick follows
            self._log.exception("periodic function %r failed", lease.key, extra=fields)


def _last_tick(state: object) -> int | None:
    if isinstance(state, dict):
        number = cast("dict[str, Any]", state).get("tick")
        if isinstance(number, int):
            return number
    return None


def _takes_argument(function: Periodic) -> bool:
    """Whether the function wants the ``Tick``; inspected once."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters)
