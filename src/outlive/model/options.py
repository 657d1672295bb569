"""How a lease behaves, with the reason beside each default, and the plan that follows from it.

Pure. A combination that cannot work is refused here, before anything is sent to a store.
"""

from __future__ import annotations

import difflib
import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar, cast

from outlive.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Duration = float | timedelta
"""Seconds, or a timedelta."""

# Three centuries are not a lease; the limit keeps microseconds inside 64 bits on every backend.
TTL_MAX_S = 10 * 365 * 86_400.0

# The holder's and the store's clock may differ in rate by this much before safe intervals could
# overlap: 0.5 % is fifty times what a quartz clock drifts.
CLOCK_DRIFT = 0.005


# 1h30m, 2d, 1.5s, 250ms; and 00:00:30 or 1.00:00:00, as .NET writes a TimeSpan.
_UNITS = re.compile(
    r"(?=.)((?P<d>[\d.]+)d)?((?P<h>[\d.]+)h)?((?P<m>[\d.]+)m)?((?P<s>[\d.]+)s)?((?P<ms>[\d.]+)ms)?"
)
_CLOCK = re.compile(r"((?P<d>\d+)\.)?(?P<h>\d+):(?P<m>[0-5]\d):(?P<s>[0-5]\d(\.\d+)?)")
_UNIT_S = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def duration(value: object) -> float:
    """The seconds that a setting, a URL or a command line gives: a number, or a text.

    Raises:
        TypeError, ValueError: It says none.
    """
    if isinstance(value, str) and (
        found := _UNITS.fullmatch(value.strip()) or _CLOCK.fullmatch(value.strip())
    ):
        parts = found.groupdict().items()
        return sum(float(number) * _UNIT_S[unit] for unit, number in parts if number)
    return float(cast("Any", value))


def seconds(
    value: Duration,
    what: str,
    *,
    least: float = 0.0,
    most: float = math.inf,
    zero: bool = True,
) -> float:
    """``value`` in seconds.

    Raises:
        UsageError: It is not a number or timedelta, not finite, below ``least``, or above ``most``.
    """
    if isinstance(value, timedelta):
        result = value.total_seconds()
    elif type(value) is bool or not isinstance(cast("object", value), (int, float)):
        raise UsageError(f"{what} must be a number of seconds or a timedelta, not {value!r}")
    else:
        try:
            result = float(value)
        except OverflowError:
            result = math.inf
    if not math.isfinite(result):
        raise UsageError(f"{what} must be finite, not {value!r}")
    if result < least or (result == 0 and not zero):
        raise UsageError(
            f"{what} must be {'at least' if zero else 'above'} {least:g} s, not {value!r}"
        )
    if result > most:
        raise UsageError(f"{what} must be at most {most:g} s, not {value!r}")
    return result


def known_options(
    what: str, *, more: Callable[..., object] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function refuse options that it does not have, by what users know it as.

    Args:
        what: How it is named in the error.
        more: What takes the options that the function passes on.
    """

    def around(function: Callable[P, R]) -> Callable[P, R]:
        known = [*_keywords_of(function), *(_keywords_of(more) if more is not None else ())]

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name not in known:
                    near = difflib.get_close_matches(name, known, n=1)
                    hint = f"; did you mean {near[0]!r}?" if near else "."
                    raise UsageError(
                        f"{what} has no option {name!r}{hint} Known options: {', '.join(known)}"
                    )
            return function(*args, **kwargs)

        return checked

    return around


def _keywords_of(function: Callable[..., object]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    refused = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    )
    return [each.name for each in parameters if each.kind not in refused and each.name != "self"]


def known_fields(kind: type[T]) -> type[T]:
    """Let a class of options refuse one that it does not have, and name the nearest."""
    kind.__init__ = cast("Any", known_options(kind.__name__)(kind.__init__))
    return kind


@known_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseOptions:
    """The options of a lease. All durations are seconds or ``timedelta``.

    Attributes:
        ttl: How long others wait after the owner dies. 30 s rides out a failover of most
            databases; shorten it where a faster takeover matters more than fewer renewals.
        auto_renew: Whether the handle renews itself until released. Off: it ends at its ttl.
        renew_interval: Time between renewals. Default a third of the ttl, so that two attempts
            may fail before the lease is in danger.
        renew_jitter: Each interval varies by this fraction, so that a fleet that started
            together does not renew together.
        renew_retries_max: Failed attempts in a row before the lease is given up early. Default
            none: retry until the deadline, because the deadline is what keeps it safe.
        renew_backoff: First and longest pause between failed attempts.
        at_risk: Fraction of the ttl without a successful renewal after which ``AtRisk`` fires.
            Two thirds means that one whole attempt has already failed.
        safety_margin: How long before the store's deadline the owner stops. Default
            min(0.5 s, ttl / 10), which covers scheduling; the clock's drift is added to it.
        acquire_retry: First and longest pause between attempts where nobody wakes the waiter
            (the poll behind the wake-up).
        timeout: How long ``acquire`` and ``hold`` wait. Default for ever.
        stall_limit: A process whose event loop does not turn for this long loses its leases,
            because work that does not move must not hold others up for ever.
    """

    ttl: Duration = 30.0
    auto_renew: bool = True
    renew_interval: Duration | None = None
    renew_jitter: float = 0.1
    renew_retries_max: int | None = None
    renew_backoff: tuple[Duration, Duration] = (0.05, 0.5)
    at_risk: float = 2 / 3
    safety_margin: Duration | None = None
    acquire_retry: tuple[Duration, Duration] = (0.5, 5.0)
    timeout: Duration | None = None
    stall_limit: Duration = 30.0

    def __post_init__(self) -> None:
        # A list would do as well as a tuple, but cannot be hashed, and options are.
        for name in ("renew_backoff", "acquire_retry"):
            value = getattr(self, name)
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(cast("list[Duration]", value)))
        _plan(self, CLOCK_DRIFT)

    def with_(self, **changes: Any) -> LeaseOptions:
        """A copy with the given options changed; ``None`` keeps what was there.

        Raises:
            UsageError: An option is unknown or the combination cannot work.
        """
        kept = {name: getattr(self, name, None) for name in changes if changes[name] is None}
        return replace(self, **{**changes, **kept}) if len(kept) < len(changes) else self


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePlan:
    """What follows from the options, in plain seconds, computed once."""

    ttl_s: float
    ttl_us: int
    # How long after the start of a successful request the owner may still believe it owns.
    safe_s: float
    renew_after_s: float
    renew_jitter: float
    attempt_timeout_s: float
    at_risk_after_s: float
    backoff_first_s: float
    backoff_most_s: float
    retries_max: int | None
    poll_first_s: float
    poll_most_s: float
    stall_limit_s: float
    auto_renew: bool


def _check_fractions(options: LeaseOptions) -> None:
    for name in ("renew_jitter", "at_risk"):
        value: object = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UsageError(f"{name} must be a fraction, not {value!r}")
    if not 0 <= options.renew_jitter < 1:
        raise UsageError(
            f"renew_jitter must be a fraction from 0 to below 1, not {options.renew_jitter!r}"
        )
    if not 0 < options.at_risk <= 1:
        raise UsageError(
            f"at_risk must be a fraction of the ttl, above 0 and at most 1, not {options.at_risk!r}"
        )
    retries = options.renew_retries_max
    if retries is not None and (type(retries) is not int or retries < 0):
        raise UsageError(
            f"renew_retries_max must be a count of at least 0, or None, not {retries!r}"
        )


def _pause_pair(pair: tuple[Duration, Duration], what: str) -> tuple[float, float]:
    try:
        first, most = pair
    except (TypeError, ValueError):
        raise UsageError(
            f"{what} must be a pair (first, longest) of seconds, not {pair!r}"
        ) from None
    first_s = seconds(first, f"{what}[0]", zero=False)
    most_s = seconds(most, f"{what}[1]", zero=False)
    if first_s > most_s:
        raise UsageError(
            f"{what}: the first pause {first_s:g} s is longer than the longest pause {most_s:g} s"
        )
    return first_s, most_s


def _plan(options: LeaseOptions, drift: float) -> LeasePlan:
    _check_fractions(options)
    ttl_s = seconds(options.ttl, "ttl", zero=False)
    if ttl_s > TTL_MAX_S:
        raise UsageError(f"ttl {ttl_s:g} s is longer than {TTL_MAX_S:g} s (ten years)")
    ttl_us = round(ttl_s * 1e6)
    if ttl_us < 1000:  # noqa: PLR2004
        raise UsageError(f"ttl {ttl_s:g} s is shorter than a millisecond")
    margin = options.safety_margin
    margin_s = min(0.5, ttl_s / 10) if margin is None else seconds(margin, "safety_margin")
    safe_s = ttl_s * (1 - drift) - margin_s
    if safe_s <= 0:
        raise UsageError(f"safety_margin {margin_s:g} s is too long for the ttl {ttl_s:g} s")
    interval = options.renew_interval
    renew_s = ttl_s / 3 if interval is None else seconds(interval, "renew_interval", zero=False)
    if options.auto_renew and renew_s * (1 + options.renew_jitter) >= safe_s:
        raise UsageError(
            f"renew_interval {renew_s:g} s (with its jitter) must be below {safe_s:g} s for a "
            f"ttl of {ttl_s:g} s: the lease would expire between two renewals"
        )
    backoff = _pause_pair(options.renew_backoff, "renew_backoff")
    poll = _pause_pair(options.acquire_retry, "acquire_retry")
    if options.timeout is not None:
        seconds(options.timeout, "timeout")
    return LeasePlan(
        ttl_s=ttl_s,
        ttl_us=ttl_us,
        safe_s=safe_s,
        renew_after_s=renew_s,
        renew_jitter=options.renew_jitter,
        attempt_timeout_s=ttl_s / 3,
        at_risk_after_s=ttl_s * options.at_risk,
        backoff_first_s=backoff[0],
        backoff_most_s=backoff[1],
        retries_max=options.renew_retries_max,
        poll_first_s=poll[0],
        poll_most_s=poll[1],
        stall_limit_s=seconds(options.stall_limit, "stall_limit", zero=False),
        auto_renew=bool(options.auto_renew),
    )


@lru_cache(maxsize=256)
def plan_of(options: LeaseOptions, drift: float = CLOCK_DRIFT) -> LeasePlan:
    """The plan of ``options``; ``drift`` is 0 where owner and store share one clock.

    Raises:
        UsageError: The options cannot work together.
    """
    return _plan(options, drift)
