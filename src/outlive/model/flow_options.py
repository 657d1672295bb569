"""How a host runs flows, with the reason beside each default. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from outlive.errors import UsageError
from outlive.model.instance import CLAIM_MAX
from outlive.model.options import Duration, seconds

# One process that runs more at once is better served by a second process.
_CONCURRENCY_MAX = 100_000
_THREADS_MAX = 1_000

POLL_MAX_S = 3600.0
"""The longest that a host looks for nothing: what it was not told of is late by as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowOptions:
    """How a host runs flows. Durations are seconds or ``timedelta``.

    Attributes:
        concurrency: Flows that do something at once on this host; those that only wait for a
            timer, a signal or a child do not count. A thousand keep one event loop busy.
        threads: Threads for synchronous steps, in all; more of them fight for the interpreter.
        poll: How long to wait for a ring before looking for flows without one. The safety net
            behind wake-ups, which SQLite and PostgreSQL make good themselves where they can be
            lost; a store that cannot ring is looked at each second.
        poll_floor: The shortest pause between two looks that find nothing.
        park_grace: A flow that only waits for so long is written off the memory, and goes on from
            its history when it wakes. Longer saves replays, shorter saves memory.
    """

    concurrency: int = 1000
    threads: int = 32
    poll: Duration = 60.0
    poll_floor: Duration = 0.02
    park_grace: Duration = 5.0

    def __post_init__(self) -> None:
        for name, most in (("concurrency", _CONCURRENCY_MAX), ("threads", _THREADS_MAX)):
            value: object = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise UsageError(
                    f"FlowOptions.{name} must be a whole number from 1 to {most:,}, not {value!r}"
                )
        for name, least, most in (
            ("poll", 0.1, POLL_MAX_S),
            ("poll_floor", 0.001, 60.0),
            ("park_grace", 0.0, 86_400.0),
        ):
            seconds(getattr(self, name), f"FlowOptions.{name}", least=least, most=most)


def check_claim_batch(value: object) -> int:
    """``value`` if one claim may bring so many.

    Raises:
        UsageError: It is no whole number from 1 to ``CLAIM_MAX``.
    """
    if type(value) is not int or not 1 <= value <= CLAIM_MAX:
        raise UsageError(f"claim_batch must be a whole number from 1 to {CLAIM_MAX}, not {value!r}")
    return value
