"""What the features report about themselves: the table of metrics, and the guard around listeners.

Each metric is a row of this table; listeners are told a value and the labels of a row. A label is
one of a few fixed values, or a name that the app declares (a queue, a step); a key or an id is
never a label. Must never cost anything while nobody measures (``active`` and ``tracing`` are asked
first), and never let a listener's mistake reach a lease: ``combine`` catches whatever one raises.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
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

FLOW_EVENTS = (
    *("started", "claimed", "missed", "lost", "taken_over", "replayed", "parked"),
    *("fenced", "conflict", "unknown", "stuck"),
)
"""What is counted of flows. Of claims: ``claimed`` was won, ``missed`` is a claim after a
notification that brought nothing, because another host was quicker, ``lost`` a flow that was this
host's and is not any more. Of commits: ``fenced`` was refused because another host owns the flow by
now, ``conflict`` because its version was not the newest under the same token, ``unknown`` stayed
without an answer until the session ended. ``stuck`` is a flow whose code does not do what its
history says."""

FLOW_OUTCOMES = ("completed", "failed", "cancelled", "terminated")
"""How a flow ends."""

STEP_OUTCOMES = ("completed", "failed", "retried")
"""How an attempt of a step ends: after ``retried`` another follows."""

CHART_OUTCOMES = (*("succeeded", "failed", "timeout", "throttled", "discarded", "dead_letter"),)
"""What becomes of an event of a machine: ``throttled`` met a full mailbox, ``discarded`` was
accepted and then dropped by a release, a stop or ``drop-oldest``."""

UNITS = ("request_units",)
"""What a store charges in, where it charges for each request."""

OTHER = "other"
"""The value of a label for each value that is not in its fixed set, or beyond its limit."""

DECLARED = ()
"""The values of a label that the app declares: names of queues, flows, steps and charts."""

NAMES_MAX = 200
"""Names that a declared label takes. An app has tens; more are names that are made of data, which
would make a series each."""


class Kind(Enum):
    """What becomes of the values that are told."""

    COUNTER = "counter"
    """They are added up and only grow."""
    SUM = "sum"
    """They are added up; negative ones are allowed."""
    GAUGE = "gauge"
    """The newest one counts."""
    HISTOGRAM = "histogram"
    """They are durations in seconds, counted by their size."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One row of the table. ``labels`` maps each label to its fixed values, or to ``DECLARED``."""

    name: str
    kind: Kind
    text: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    buckets: tuple[float, ...] = ()


# From a try on memory or SQLite (below a millisecond) to a long wait in a queue.
_ACQUIRE_S = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)

# One write to the store; an attempt is abandoned after a third of the ttl, 10 s by default.
_RENEW_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

# A handler runs for a millisecond or for an hour, and a job waits from no time at all to a day.
_JOB_S = (
    *(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 300.0, 1800.0, 3600.0, 21_600.0, 86_400.0),
)

# Flow code runs for microseconds, a step for a millisecond or a day; a timer is late by as much as
# a store is away.
_FLOW_S = (
    *(0.00005, 0.0002, 0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
    *(30.0, 60.0, 300.0, 3600.0, 86_400.0),
)

_OUTCOME = {"outcome": OUTCOMES}
_QUEUE = {"queue": DECLARED}
_JOB_END = {"queue": DECLARED, "outcome": JOB_OUTCOMES}

LEASE_ACQUISITIONS = Metric(
    "lease_acquisitions", Kind.COUNTER, "Acquire calls that ended, by outcome.", _OUTCOME
)
LEASE_ACQUIRE = Metric(
    "lease_acquire",
    Kind.HISTOGRAM,
    "Time from an acquire call to its end, waiting included, by outcome.",
    _OUTCOME,
    _ACQUIRE_S,
)
LEASE_CONFLICTS = Metric(
    # Once per call, however often it asks again.
    "lease_conflicts",
    Kind.COUNTER,
    "Acquire calls that found the key already owned.",
)
LEASE_TAKEOVERS = Metric(
    "lease_takeovers", Kind.COUNTER, "Grants that took over from an expired owner."
)
LEASE_RENEW = Metric(
    "lease_renew",
    Kind.HISTOGRAM,
    "Time from a renewal request to its acknowledgement.",
    buckets=_RENEW_S,
)
LEASE_RENEW_FAILURES = Metric(
    "lease_renew_failures", Kind.COUNTER, "Attempts to renew that failed."
)
LEASE_LOSSES = Metric(
    "lease_losses",
    Kind.COUNTER,
    "Leases lost while owned, by reason code.",
    {"reason": REASONS},
)
LEASE_RELEASES = Metric("lease_releases", Kind.COUNTER, "Leases released by their owner.")
STORE_SPENT = Metric(
    "store_spent",
    Kind.COUNTER,
    "Cost that the store charged for requests, by unit.",
    {"unit": UNITS},
)
JOBS_ENQUEUED = Metric("jobs_enqueued", Kind.COUNTER, "Jobs enqueued by this process.", _QUEUE)
JOBS_CLAIMED = Metric("jobs_claimed", Kind.COUNTER, "Jobs claimed by this process.", _QUEUE)
JOBS_ENDED = Metric(
    "jobs_ended", Kind.COUNTER, "Claims of this process that ended, by outcome.", _JOB_END
)
JOBS_RECLAIMED = Metric("jobs_reclaimed", Kind.COUNTER, "Claims recovered from dead hosts.", _QUEUE)
JOB_RUN = Metric(
    "job_run",
    Kind.HISTOGRAM,
    "Time from the start of a handler to the end of its claim, by outcome.",
    _JOB_END,
    _JOB_S,
)
JOB_WAIT = Metric(
    "job_wait",
    Kind.HISTOGRAM,
    "Time from enqueueing a job to the start of its handler, delays included.",
    _QUEUE,
    _JOB_S,
)
FLOWS = Metric(
    "flows", Kind.COUNTER, "Events of flows in this process, by event.", {"event": FLOW_EVENTS}
)
FLOWS_ENDED = Metric(
    "flows_ended",
    Kind.COUNTER,
    "Flows that ended in this process, by outcome.",
    {"flow": DECLARED, "outcome": FLOW_OUTCOMES},
)
FLOWS_ACTIVE = Metric(
    "flows_active", Kind.SUM, "Flows that run in this process now, without waiting ones."
)
FLOW_ACTIVATION = Metric(
    "flow_activation",
    Kind.HISTOGRAM,
    "Time that flow code ran until its next wait; the event loop stood still.",
    buckets=_FLOW_S,
)
FLOW_TIMER_LAG = Metric(
    "flow_timer_lag",
    Kind.HISTOGRAM,
    "Delay of flow timers after their due time, by the store's clock.",
    buckets=_FLOW_S,
)
STEP_RUN = Metric(
    "step_run",
    Kind.HISTOGRAM,
    "Time of one attempt of a step, by outcome.",
    {"step": DECLARED, "outcome": STEP_OUTCOMES},
    _FLOW_S,
)

QUEUE_JOBS = Metric(
    "queue_jobs",
    Kind.GAUGE,
    "Jobs in the store by queue and state, as of the last measurement.",
    {"queue": DECLARED, "state": DECLARED},
)
QUEUE_OLDEST = Metric(
    "queue_oldest_ready_seconds",
    Kind.GAUGE,
    "How long the oldest ready job of a queue has waited; 0 when none is ready.",
    _QUEUE,
)
FLOWS_STORED = Metric(
    "flows_stored",
    Kind.GAUGE,
    "Flows in the store by status, as of the last measurement.",
    {"status": DECLARED},
)
FLOWS_STUCK = Metric("flows_stuck", Kind.GAUGE, "Flows that no host can continue now.")

METRICS: tuple[Metric, ...] = (
    *(LEASE_ACQUISITIONS, LEASE_ACQUIRE, LEASE_CONFLICTS, LEASE_TAKEOVERS, LEASE_RENEW),
    *(LEASE_RENEW_FAILURES, LEASE_LOSSES, LEASE_RELEASES, STORE_SPENT),
    *(JOBS_ENQUEUED, JOBS_CLAIMED, JOBS_ENDED, JOBS_RECLAIMED, JOB_RUN, JOB_WAIT),
    *(FLOWS, FLOWS_ENDED, FLOWS_ACTIVE, FLOW_ACTIVATION, FLOW_TIMER_LAG, STEP_RUN),
    *(QUEUE_JOBS, QUEUE_OLDEST, FLOWS_STORED, FLOWS_STUCK),
)
"""The table."""

LEASES_HELD = Metric("leases_held", Kind.SUM, "Leases owned by this process now.")
SINCE_RENEWAL = Metric(
    "lease_seconds_since_renewal",
    Kind.GAUGE,
    "Age of the oldest last renewal among the leases owned now; 0 when none is.",
)
CHART_MACHINES = Metric(
    "chart_machines", Kind.SUM, "Machines that are registered now, by chart.", {"chart": DECLARED}
)
CHART_REGISTRATIONS = Metric("chart_registrations", Kind.COUNTER, "Machines that were registered.")
CHART_ENDS = Metric("chart_ends", Kind.COUNTER, "Machines that ended and left their group.")
CHART_EVENTS = Metric(
    "chart_events",
    Kind.COUNTER,
    "Events of machines, by what became of them.",
    {"outcome": CHART_OUTCOMES},
)
CHART_LANES = Metric("chart_lanes", Kind.GAUGE, "Lanes of the largest pool.")
CHART_LANES_CHANGED = Metric(
    "chart_lanes_changed",
    Kind.COUNTER,
    "How often a pool of lanes grew or shrank.",
    {"direction": ("grown", "shrunk")},
)
CHART_QUEUED = Metric("chart_queued", Kind.SUM, "Machines that wait for their turn.")
CHART_QUEUE_AGE = Metric(
    "chart_queue_age_seconds", Kind.GAUGE, "How long the last one measured waited for its turn."
)

READ: tuple[Metric, ...] = (
    *(LEASES_HELD, SINCE_RENEWAL, CHART_MACHINES, CHART_REGISTRATIONS, CHART_ENDS, CHART_EVENTS),
    *(CHART_LANES, CHART_LANES_CHANGED, CHART_QUEUED, CHART_QUEUE_AGE),
)
"""The rows that are read at a scrape or an export."""

Attribute = str | int | float | bool


class Labels:
    """Keeps the labels of one exporter within their fixed values and the limit of names."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}

    def checked(self, metric: Metric, labels: Mapping[str, str]) -> dict[str, str]:
        """``labels`` in the order of the table; what is unknown, or one too many, is ``other``."""
        return {
            name: self._value(name, metric.labels[name], labels[name]) for name in metric.labels
        }

    def _value(self, label: str, fixed: tuple[str, ...], value: str) -> str:
        if fixed:
            return value if value in fixed else OTHER
        names = self._names.setdefault(label, set())
        if value not in names:
            if len(names) >= NAMES_MAX:
                return OTHER
            names.add(value)
        return value


Reading = tuple[Metric, float, Mapping[str, str]]
"""What a row of ``READ`` says now, with its labels."""


class Watched(Protocol):
    """Something whose state is read when somebody looks, not told when it changes."""

    def readings(self) -> Iterable[Reading]:
        """Rows of ``READ``, as of now. Safe from any thread."""
        ...


class Readings:
    """What one exporter watches, read together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._labels = Labels()
        # Weak: a host that was dropped without close must not be kept alive by its metrics.
        self._watched: weakref.WeakSet[Watched] = weakref.WeakSet()

    def watch(self, watched: Watched) -> Callable[[], None]:
        """Include it; the function that is returned takes it out."""
        with self._lock:
            self._watched.add(watched)
        reference = weakref.ref(watched)

        def end() -> None:
            gone = reference()
            if gone is not None:
                with self._lock:
                    self._watched.discard(gone)

        return end

    def read(self) -> dict[Metric, dict[tuple[str, ...], float]]:
        """The values of each row by its labels: sums, and of gauges the greatest."""
        with self._lock:
            watched = list(self._watched)
        found: dict[Metric, dict[tuple[str, ...], float]] = {metric: {} for metric in READ}
        for metric in READ:
            if not metric.labels:
                found[metric][()] = 0.0
        for each in watched:
            for metric, value, labels in each.readings():
                values = found[metric]
                key = tuple(self._labels.checked(metric, labels).values())
                before = values.get(key, 0.0)
                values[key] = max(before, value) if metric.kind is Kind.GAUGE else before + value
        return found


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
    """Whether ``span``, ``began``, ``noted`` and ``ended`` are wanted. A subclass that overrides
    them sets it to true."""

    def record(self, metric: Metric, value: float = 1, **labels: str) -> None:
        """A value of one row of ``METRICS``, with all of its labels."""

    def carrier(self) -> dict[str, str]:
        """The headers that carry the caller's trace to where a job runs (W3C trace context)."""
        return {}

    def watch(self, watched: Watched) -> Callable[[], None]:
        """Read its ``readings`` whenever they are wanted.

        A host lets itself be watched until it closes; an orchestrator of charts is watched by the
        program that wants its numbers. The function that is returned ends it.
        """
        del watched
        return _nothing

    def span(
        self, name: str, carrier: Mapping[str, str] | None = None, /, **attributes: Attribute
    ) -> Span:
        """A span around one operation; with ``carrier`` it goes on with the trace that it names."""
        del name, carrier, attributes
        return _NO_SPAN

    def began(
        self,
        name: str,
        key: str,
        carrier: Mapping[str, str] | None = None,
        /,
        **attributes: Attribute,
    ) -> None:
        """A span begins that ends elsewhere; ``key`` is unique to it among those that are open."""

    def noted(self, key: str, what: str, /, **attributes: Attribute) -> None:
        """Something worth a mark happened in a span that ``began``."""

    def ended(self, key: str, how: str, /, *, error: bool) -> None:
        """A span that ``began`` has ended so."""


class CombinedTelemetry(Telemetry):
    """Tells several listeners, and keeps their mistakes away from leases. Made by ``combine``."""

    active = True

    def __init__(self, parts: tuple[Telemetry, ...], log: logging.Logger) -> None:
        self.parts = parts
        self.tracing = any(part.tracing for part in parts)
        self._log = log
        # At most one entry per listener and method: a broken listener does not flood the log.
        self._failed: set[tuple[int, str]] = set()

    def record(self, metric: Metric, value: float = 1, **labels: str) -> None:
        """Tell all."""
        for part in self.parts:
            try:
                part.record(metric, value, **labels)
            except Exception:  # noqa: BLE001 - a listener is foreign code
                self._report(part, metric.name)

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

    def span(
        self, name: str, carrier: Mapping[str, str] | None = None, /, **attributes: Attribute
    ) -> Span:
        """One span of each listener that traces."""
        return self._spans(lambda part: part.span(name, carrier, **attributes))

    def _spans(self, make: Callable[[Telemetry], Span]) -> Span:
        if not self.tracing:
            return _NO_SPAN
        spans: list[tuple[Telemetry, Span]] = []
        for part in self.parts:
            if part.tracing:
                self.shield(part, "span", lambda part=part: spans.append((part, make(part))))
        return _CombinedSpan(self, spans)

    def began(
        self,
        name: str,
        key: str,
        carrier: Mapping[str, str] | None = None,
        /,
        **attributes: Attribute,
    ) -> None:
        """Tell all."""
        self._tell("began", lambda part: part.began(name, key, carrier, **attributes))

    def noted(self, key: str, what: str, /, **attributes: Attribute) -> None:
        """Tell all."""
        self._tell("noted", lambda part: part.noted(key, what, **attributes))

    def ended(self, key: str, how: str, /, *, error: bool) -> None:
        """Tell all."""
        self._tell("ended", lambda part: part.ended(key, how, error=error))

    def shield(self, part: Telemetry, what: str, call: Callable[[], object]) -> None:
        """Call; log what it raises, the first time that this listener fails at ``what``."""
        try:
            call()
        except Exception:  # noqa: BLE001 - a listener is foreign code
            self._report(part, what)

    def _tell(self, what: str, call: Callable[[Telemetry], None]) -> None:
        for part in self.parts:
            self.shield(part, what, lambda part=part: call(part))

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
