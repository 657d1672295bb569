"""What the features report about themselves, and the one guard around those who listen.

Owns the vocabulary of measurements: a few methods, labels of fixed values, never a key as a label.
Must never cost anything while nobody measures (``active`` and ``tracing`` are asked first), and
never let a listener's mistake reach a lease: ``combine`` catches whatever a listener raises.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol, Self

from outlive.errors import UsageError

_log = logging.getLogger("outlive.telemetry")

OUTCOMES = ("granted", "held", "timeout", "error", "cancelled")
"""How an acquire ends."""

REASONS = (
    "expired",
    "fenced",
    "broken",
    "stalled",
    "forked",
    "released",
    "closed",
    "abandoned",
)
"""Why a lease is lost; the codes of ``LeaseLost.reason``."""

JOB_OUTCOMES = ("completed", "failed", "dead", "lost", "cancelled", "released")
"""How a claim of a job ends: ``failed`` is tried again, ``dead`` never."""

FLOW_COUNTS = (
    *("started", "claimed", "missed", "lost", "taken_over", "replayed", "parked"),
    *("fenced", "conflict", "unknown", "stuck"),
)
"""What is counted of flows. Of claims: ``claimed`` was won, ``missed`` is a look after a ring that
brought nothing, because others were quicker, ``lost`` a flow that was this host's and is not any
more. Of commits: ``fenced`` was refused because others own the flow by now, ``conflict`` because
its version was not the newest under the same token, ``unknown`` stayed without an answer until the
session ended. ``stuck`` is a flow whose code does not do what its history says."""

FLOW_OUTCOMES = ("completed", "failed", "cancelled", "terminated")
"""How a flow ends."""

STEP_OUTCOMES = ("completed", "failed", "retried")
"""How an attempt of a step ends: after ``retried`` another follows."""

UNITS = ("request_units",)
"""What a store charges in, where it charges for each request."""

OTHER = "other"
"""Stands for every value that is not in a fixed set, so that a label can never grow."""

Attribute = str | int | float | bool


class Watched(Protocol):
    """Something whose state is read when somebody looks, not told when it changes."""

    def pulse(self) -> tuple[int, float]:
        """How many leases are held, and the seconds since the renewal longest ago among them.

        Both are 0 when none is held. Safe from any thread.
        """
        ...


class Span:
    """One operation being traced, as a ``with`` block. This one forgets everything."""

    def set(self, **attributes: Attribute) -> None:
        """Add what became known during the operation."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """End the operation; ``error`` is what it raised, and goes on."""


_NO_SPAN = Span()


def _nothing() -> None:
    """End a watch that was never begun."""


class Telemetry:
    """Receives measurements; this one drops them.

    Subclass it and override what you want to hear. Methods are called from the event loop and
    from the keeper's thread and must not block. What they raise is logged once and harms nothing.
    """

    active = False
    """Whether anybody listens at all. Set by ``combine``; a subclass need not care."""

    tracing = False
    """Whether ``span`` and the ``hold_*`` methods are wanted. A subclass that overrides them sets
    it to true."""

    def acquired(self, outcome: str, seconds: float) -> None:
        """An acquire ended, with one of ``OUTCOMES``, after ``seconds``."""

    def conflict(self) -> None:
        """An acquire found the key owned by somebody else, or reserved for earlier waiters.

        Told once per acquire, however often it asks again.
        """

    def taken_over(self) -> None:
        """A grant took over from an owner whose time had run out."""

    def renewed(self, seconds: float) -> None:
        """A renewal was acknowledged."""

    def renew_failed(self) -> None:
        """A renewal attempt failed and may be retried."""

    def lost(self, reason: str) -> None:
        """An owned lease was lost, by reason code (one of ``REASONS``)."""

    def released(self) -> None:
        """An owned lease was given up by its owner."""

    def spent(self, unit: str, amount: float) -> None:
        """A request to the store cost ``amount`` of ``unit`` (one of ``UNITS``)."""

    def enqueued(self, count: int) -> None:
        """So many jobs were enqueued."""

    def claimed(self, count: int) -> None:
        """So many jobs were claimed."""

    def job_waited(self, seconds: float) -> None:
        """A job begins so long after it was enqueued; clocks of two machines may differ."""

    def job_ended(self, outcome: str, seconds: float | None) -> None:
        """A claim ended, with one of ``JOB_OUTCOMES``; a handler ran for ``seconds``."""

    def jobs_reclaimed(self, count: int) -> None:
        """So many claims were taken back from hosts that are gone."""

    def flows_counted(self, what: str, count: int = 1) -> None:
        """So many of one of ``FLOW_COUNTS`` happened."""

    def flows_active(self, change: int) -> None:
        """So many more flows do something on this host now, or fewer."""

    def flow_ended(self, outcome: str) -> None:
        """A flow of this host ended, with one of ``FLOW_OUTCOMES``."""

    def flow_activated(self, seconds: float) -> None:
        """The code of a flow ran for so long, to its next wait; the event loop stood still."""

    def step_ended(self, outcome: str, seconds: float) -> None:
        """An attempt of a step ended, with one of ``STEP_OUTCOMES``, after ``seconds``."""

    def timer_fired(self, late_s: float) -> None:
        """A timer of a flow was fired so long after it was due, by the store's clock."""

    def carrier(self) -> dict[str, str]:
        """The headers that carry the caller's trace to where a job runs (W3C trace context)."""
        return {}

    def watch(self, watched: Watched) -> Callable[[], None]:
        """A host began: read its ``pulse`` whenever gauges are wanted.

        The function that is returned ends it; the host calls it when it closes.
        """
        del watched
        return _nothing

    def span(self, name: str, **attributes: Attribute) -> Span:
        """A span around one operation."""
        del name, attributes
        return _NO_SPAN

    def job_span(self, name: str, carrier: Mapping[str, str], **attributes: Attribute) -> Span:
        """A span around the run of a job, which goes on with the trace that ``carrier`` names."""
        del name, carrier, attributes
        return _NO_SPAN

    def hold_began(self, owner: str, **attributes: Attribute) -> None:
        """A lease is held from now on; ``owner`` is unique to this grant."""

    def hold_noted(self, owner: str, what: str, **attributes: Attribute) -> None:
        """Something worth a mark happened to a lease that is held."""

    def hold_ended(self, owner: str, reason: str) -> None:
        """The lease of ``owner`` is not held any more: ``released``, or why it was lost."""


class CombinedTelemetry(Telemetry):
    """Tells several listeners, and keeps their mistakes away from leases. Made by ``combine``."""

    active = True

    def __init__(self, parts: tuple[Telemetry, ...], log: logging.Logger) -> None:
        self.parts = parts
        self.tracing = any(part.tracing for part in parts)
        self._log = log
        # At most one entry per listener and method: a broken listener does not flood the log.
        self._failed: set[tuple[int, str]] = set()

    def acquired(self, outcome: str, seconds: float) -> None:
        """Tell all."""
        self._tell("acquired", outcome, seconds)

    def conflict(self) -> None:
        """Tell all."""
        self._tell("conflict")

    def taken_over(self) -> None:
        """Tell all."""
        self._tell("taken_over")

    def renewed(self, seconds: float) -> None:
        """Tell all."""
        self._tell("renewed", seconds)

    def renew_failed(self) -> None:
        """Tell all."""
        self._tell("renew_failed")

    def lost(self, reason: str) -> None:
        """Tell all."""
        self._tell("lost", reason)

    def released(self) -> None:
        """Tell all."""
        self._tell("released")

    def spent(self, unit: str, amount: float) -> None:
        """Tell all."""
        self._tell("spent", unit, amount)

    def enqueued(self, count: int) -> None:
        """Tell all."""
        self._tell("enqueued", count)

    def claimed(self, count: int) -> None:
        """Tell all."""
        self._tell("claimed", count)

    def job_waited(self, seconds: float) -> None:
        """Tell all."""
        self._tell("job_waited", seconds)

    def job_ended(self, outcome: str, seconds: float | None) -> None:
        """Tell all."""
        self._tell("job_ended", outcome, seconds)

    def jobs_reclaimed(self, count: int) -> None:
        """Tell all."""
        self._tell("jobs_reclaimed", count)

    def flows_counted(self, what: str, count: int = 1) -> None:
        """Tell all."""
        self._tell("flows_counted", what, count)

    def flows_active(self, change: int) -> None:
        """Tell all."""
        self._tell("flows_active", change)

    def flow_ended(self, outcome: str) -> None:
        """Tell all."""
        self._tell("flow_ended", outcome)

    def flow_activated(self, seconds: float) -> None:
        """Tell all."""
        self._tell("flow_activated", seconds)

    def step_ended(self, outcome: str, seconds: float) -> None:
        """Tell all."""
        self._tell("step_ended", outcome, seconds)

    def timer_fired(self, late_s: float) -> None:
        """Tell all."""
        self._tell("timer_fired", late_s)

    def carrier(self) -> dict[str, str]:
        """The headers of all listeners that trace."""
        headers: dict[str, str] = {}
        for part in self.parts:
            if part.tracing:
                self.shield(part, "carrier", lambda part=part: headers.update(part.carrier()))
        return headers

    def watch(self, watched: Watched) -> Callable[[], None]:
        """Let all watch; the function that is returned ends them all."""
        ends: list[tuple[Telemetry, Callable[[], None]]] = []
        for part in self.parts:
            self.shield(part, "watch", lambda part=part: ends.append((part, part.watch(watched))))

        def end() -> None:
            for part, stop in ends:
                self.shield(part, "watch", stop)

        return end

    def span(self, name: str, **attributes: Attribute) -> Span:
        """One span of each listener that traces."""
        return self._spans(lambda part: part.span(name, **attributes))

    def job_span(self, name: str, carrier: Mapping[str, str], **attributes: Attribute) -> Span:
        """One span of each listener that traces."""
        return self._spans(lambda part: part.job_span(name, carrier, **attributes))

    def _spans(self, make: Callable[[Telemetry], Span]) -> Span:
        if not self.tracing:
            return _NO_SPAN
        spans: list[tuple[Telemetry, Span]] = []
        for part in self.parts:
            if part.tracing:
                self.shield(part, "span", lambda part=part: spans.append((part, make(part))))
        return _CombinedSpan(self, spans)

    def hold_began(self, owner: str, **attributes: Attribute) -> None:
        """Tell all."""
        self._tell("hold_began", owner, **attributes)

    def hold_noted(self, owner: str, what: str, **attributes: Attribute) -> None:
        """Tell all."""
        self._tell("hold_noted", owner, what, **attributes)

    def hold_ended(self, owner: str, reason: str) -> None:
        """Tell all."""
        self._tell("hold_ended", owner, reason)

    def shield(self, part: Telemetry, what: str, call: Callable[[], object]) -> None:
        """Call; log what it raises, the first time that this listener fails at ``what``."""
        try:
            call()
        except Exception:  # noqa: BLE001 - a listener is foreign code
            self._report(part, what)

    def _tell(self, what: str, *args: Attribute | None, **attributes: Attribute) -> None:
        for part in self.parts:
            try:
                getattr(part, what)(*args, **attributes)
            except Exception:  # noqa: BLE001 - a listener is foreign code
                self._report(part, what)

    def _report(self, part: Telemetry, what: str) -> None:
        # By identity, not by equality: a listener's own __eq__ is as foreign as the rest.
        mark = (id(part), what)
        if mark not in self._failed:
            self._failed.add(mark)
            self._log.exception(
                "telemetry %s failed in %s; some measurements are missing, all else is unaffected",
                type(part).__name__,
                what,
            )


class _CombinedSpan(Span):
    def __init__(self, owner: CombinedTelemetry, spans: list[tuple[Telemetry, Span]]) -> None:
        self._owner = owner
        self._spans = spans

    def set(self, **attributes: Attribute) -> None:
        for part, span in self._spans:
            self._owner.shield(part, "span", partial(span.set, **attributes))

    def __enter__(self) -> Self:
        for part, span in self._spans:
            self._owner.shield(part, "span", span.__enter__)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        for part, span in reversed(self._spans):
            self._owner.shield(part, "span", partial(span.__exit__, kind, error, traceback))


def combine(*telemetries: Telemetry | None, log: logging.Logger | None = None) -> Telemetry:
    """One telemetry that tells all of ``telemetries``; the silent one if there are none.

    Also the guard: what one of them raises is written to ``log``, once per method.

    Raises:
        UsageError: One of them is no ``Telemetry``.
    """
    parts: list[Telemetry] = []
    for given in telemetries:
        if isinstance(given, CombinedTelemetry):
            parts.extend(given.parts)
        elif given is None or type(given) is Telemetry:
            continue
        elif isinstance(given, Telemetry):  # pyright: ignore[reportUnnecessaryIsInstance]
            parts.append(given)
        else:
            raise UsageError(
                "telemetry must be an outlive Telemetry (PrometheusTelemetry(), "
                f"TracingTelemetry(), or your own subclass), not {given!r}"
            )
    return CombinedTelemetry(tuple(parts), log or _log) if parts else Telemetry()
