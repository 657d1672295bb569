"""When a failed job is tried again: by how often it failed, and by what it failed with.

Pure: chance comes in as a number. A policy travels in a job as JSON, so that whoever runs the job
applies it; errors are therefore known by name there, and a name is only ever compared, never
imported.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Protocol, cast

import msgspec

from outlive.errors import UsageError
from outlive.model.job import MAX_ATTEMPTS
from outlive.model.options import TTL_MAX_S, Duration, known_fields, seconds
from outlive.serialization import name_of

ErrorKind = type[BaseException] | str
"""A class of errors, or its name: ``ValueError``, ``shop.errors.CardDeclined``."""

# More failures than this of one job are noise, and the number must fit every backend.
MAX_ATTEMPTS_LIMIT = 1_000_000

# A policy names families of errors, not every error there is.
_KINDS_MAX = 50
_KIND_LENGTH_MAX = 200

# Delays grow beyond any use long before the power overflows.
_EXPONENT_MAX = 64


@lru_cache(maxsize=512)
def _names_of(kind: type[BaseException]) -> frozenset[str]:
    return frozenset(name_of(base) for base in kind.__mro__ if base is not object)


@known_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How failures of a handler are retried. Durations are seconds or ``timedelta``.

    Attributes:
        max_attempts: Failures after which the job is dead. 1 means never again.
        first: The pause after the first failure. A second lets a passing hiccup pass.
        factor: Each pause is so many times the one before.
        longest: No pause is longer; an hour keeps a repaired world from waiting for a day.
        jitter: Each pause varies by this fraction, so that jobs that failed together do not
            return together.
        on: Only these errors are retried, as classes or by name; subclasses included.
        never: These are not, even if ``on`` has them.
    """

    max_attempts: int = MAX_ATTEMPTS
    first: Duration = 1.0
    factor: float = 2.0
    longest: Duration = 3600.0
    jitter: float = 0.1
    on: tuple[ErrorKind, ...] = (Exception,)
    never: tuple[ErrorKind, ...] = ()

    def __post_init__(self) -> None:
        check_max_attempts(self.max_attempts)
        # A pause that ends beyond the calendar could be stored, and never be read again.
        seconds(self.first, "Retry.first", most=TTL_MAX_S)
        seconds(self.longest, "Retry.longest", most=TTL_MAX_S)
        for name, least, most in (("factor", 1.0, 1000.0), ("jitter", 0.0, 1.0)):
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise UsageError(f"Retry.{name} must be a number, not {value!r}")
            if not least <= value <= most:
                raise UsageError(f"Retry.{name} must be from {least:g} to {most:g}, not {value!r}")
        for name in ("on", "never"):
            object.__setattr__(self, name, _kinds(name, getattr(self, name)))

    def delay_s(
        self, failures: int, error: BaseException | str | None, chance: float
    ) -> float | None:
        """The pause after the ``failures``-th failure, or ``None``: never again.

        ``error`` is what the handler raised, or the name of its class where only that is known;
        ``chance`` is a random number from 0 to 1.
        """
        if failures >= self.max_attempts or not self.covers(error):
            return None
        first_s = seconds(self.first, "Retry.first")
        longest_s = seconds(self.longest, "Retry.longest")
        grown_s = first_s * self.factor ** min(max(failures - 1, 0), _EXPONENT_MAX)
        return min(longest_s, grown_s) * (1 + self.jitter * (2 * chance - 1))

    def covers(self, error: BaseException | str | None) -> bool:
        """Whether an error of this kind is retried at all."""
        if error is None:
            # Nobody said what it was: what a worker in another language reports is retried.
            return not self.never or name_of(Exception) in _known(self.on)
        names = (
            frozenset({error, "Exception"}) if isinstance(error, str) else _names_of(type(error))
        )
        return bool(names & _known(self.on)) and not names & _known(self.never)

    def to_json(self) -> str:
        """The policy as JSON, with errors by name."""
        document = {
            "max_attempts": self.max_attempts,
            "first": seconds(self.first, "Retry.first"),
            "factor": float(self.factor),
            "longest": seconds(self.longest, "Retry.longest"),
            "jitter": float(self.jitter),
            "on": sorted(_known(self.on)),
            "never": sorted(_known(self.never)),
        }
        return msgspec.json.encode(document).decode()

    def overridden(self, text: str) -> Retry:
        """This policy with what ``text``, a JSON object, says instead.

        Raises:
            UsageError: It is no JSON object, or has an unknown key or a wrong value.
        """
        return self if text == "{}" else _overridden(self, text)


class Tried(Protocol):
    """What is known of a job that has failed once more."""

    @property
    def attempts(self) -> int:
        """How often it had failed before."""
        ...

    @property
    def max_attempts(self) -> int:
        """Failures after which it is dead."""
        ...

    @property
    def retry(self) -> str:
        """What it says of its policy, as JSON."""
        ...


class Later(BaseException):
    """Raised by a handler or a step: not now. It is run again ``delay`` later.

    Nothing counts as an attempt, and what was reported as progress is kept. As it is no failure,
    ``except Exception`` does not catch it. A job that may not wait for ever has ``expires``, a step
    ``retry_for``.

    Raises:
        UsageError: ``delay`` is no duration, or longer than ten years.
    """

    def __init__(self, delay: Duration) -> None:
        super().__init__(delay)
        self.delay_s = seconds(delay, "delay", most=TTL_MAX_S)


def pause_s(
    job: Tried, error: BaseException | str | None, chance: float, *, asked_s: float | None
) -> float | None:
    """How long a job waits that somebody claimed by hand and failed, or ``None``: never again.

    ``asked_s`` is the pause that the claimant asks for, whatever the policy says of pauses and of
    errors; the number of attempts holds for it too.

    Raises:
        UsageError: The policy cannot be read.
    """
    failures = job.attempts + 1
    if failures >= job.max_attempts:
        return None
    if asked_s is not None:
        return asked_s
    policy = Retry(max_attempts=job.max_attempts).overridden(job.retry)
    return policy.delay_s(failures, error, chance)


@lru_cache(maxsize=256)
def _overridden(base: Retry, text: str) -> Retry:
    try:
        document: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"a retry policy must be a JSON object: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"a retry policy must be a JSON object, not {document!r}")
    known = {field.name for field in fields(Retry)}
    changes = cast("dict[str, Any]", document)
    for name in changes:
        if name not in known:
            raise UsageError(
                f"a retry policy has no option {name!r}; known options: {', '.join(sorted(known))}"
            )
    return replace(base, **changes)


@lru_cache(maxsize=256)
def _known(kinds: tuple[ErrorKind, ...]) -> frozenset[str]:
    return frozenset(kind if isinstance(kind, str) else name_of(kind) for kind in kinds)


def _kinds(name: str, value: object) -> tuple[ErrorKind, ...]:
    if isinstance(value, (type, str)):
        value = (value,)
    if not isinstance(value, (tuple, list)):
        raise UsageError(f"Retry.{name} must be a tuple of error classes, not {value!r}")
    kinds = tuple(cast("tuple[object, ...]", value))
    if len(kinds) > _KINDS_MAX:
        raise UsageError(f"Retry.{name} may name at most {_KINDS_MAX} kinds of error")
    for kind in kinds:
        if isinstance(kind, str):
            if 0 < len(kind) <= _KIND_LENGTH_MAX:
                continue
        elif isinstance(kind, type) and issubclass(kind, BaseException):
            continue
        raise UsageError(f"Retry.{name} must contain error classes or their names, not {kind!r}")
    return cast("tuple[ErrorKind, ...]", kinds)


def check_max_attempts(value: object) -> int:
    """Return ``value`` if it is a number of attempts.

    Raises:
        UsageError: It is no whole number from 1 to ``MAX_ATTEMPTS_LIMIT``.
    """
    if type(value) is not int or not 1 <= value <= MAX_ATTEMPTS_LIMIT:
        raise UsageError(
            f"max_attempts must be a whole number from 1 to {MAX_ATTEMPTS_LIMIT:,}, not {value!r}"
        )
    return value
