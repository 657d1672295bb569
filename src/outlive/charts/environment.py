"""What machines in memory share: time, policies, listeners for everything.

A value, made once and used by as many machines as one likes. One machine keeps a single reference
to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from outlive.charts.events import Event
from outlive.charts.inspection import Inspect
from outlive.charts.timers import LoopTimers, Timers
from outlive.errors import UsageError
from outlive.telemetry import PROCESS

_log = PROCESS.logger("outlive.charts")

UnhandledPolicy = Literal["ignore", "error", "defer", "dead-letter"]
FaultPolicy = Literal["fail", "keep"]


def _log_error(actor: Any, error: BaseException) -> None:
    _log.error("machine %s: %s", actor.id, error, exc_info=error, extra={"machine": actor.id})


def _log_dead_letter(actor: Any, event: Event) -> None:
    _log.warning(
        "machine %s: no transition for event %r", actor.id, event.type, extra={"machine": actor.id}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where machines live.

    ``unhandled`` says what becomes of an event that no transition takes: nothing (``ignore``), an
    ``EventUnhandled`` for the sender (``error``), another try after the next change of state
    (``defer``), or ``dead_letter`` is called (``dead-letter``).

    ``faults`` says what becomes of a machine whose guard, assign or other decision raises: it ends
    with status ``error``, as in XState (``fail``), or stays as if the event had never come
    (``keep``). The sender gets the error in both cases.

    ``on_error`` hears of errors that no sender waits for: those of actions and of events that came
    from timers, children and other machines.

    Raises:
        UsageError: There is no such policy.
    """

    timers: Timers = field(default_factory=LoopTimers)
    unhandled: UnhandledPolicy = "ignore"
    faults: FaultPolicy = "fail"
    on_error: Callable[[Any, BaseException], None] = _log_error
    dead_letter: Callable[[Any, Event], None] = _log_dead_letter
    inspect: Inspect | None = None

    def __post_init__(self) -> None:
        _check_policy("unhandled", self.unhandled, UnhandledPolicy)
        _check_policy("faults", self.faults, FaultPolicy)


def _check_policy(what: str, policy: str, among: Any) -> None:
    policies = get_args(among)
    if policy not in policies:
        raise UsageError(f"{what} must be one of {', '.join(policies)}, not {policy!r}")
