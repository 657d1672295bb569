"""Metrics for Prometheus, when the ``metrics`` extra is installed.

Owns the names and labels of the metrics. Labels take values from fixed sets only: a key, an owner
or a host never becomes a label, so the number of series does not grow with use. Must never import
``prometheus_client`` before somebody asks for metrics.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from outlive.errors import ConfigurationError
from outlive.telemetry.events import (
    FLOW_COUNTS,
    FLOW_OUTCOMES,
    JOB_OUTCOMES,
    OTHER,
    OUTCOMES,
    REASONS,
    STEP_OUTCOMES,
    UNITS,
    Telemetry,
    Watched,
)

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.registry import Collector, CollectorRegistry

# From a try on memory or SQLite (below a millisecond) to a long wait in a queue.
_ACQUIRE_BUCKETS_S = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)

# One write to the store; an attempt is abandoned after a third of the ttl, 10 s by default.
_RENEW_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

# A handler runs for a millisecond or for an hour, and a job waits from no time at all to a day.
_JOB_BUCKETS_S = (
    *(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 300.0, 1800.0, 3600.0, 21_600.0, 86_400.0),
)

# Flow code runs for microseconds, a step for a millisecond or a day; a timer is late by as much as
# a store is away.
_FLOW_BUCKETS_S = (
    *(0.00005, 0.0002, 0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
    *(30.0, 60.0, 300.0, 3600.0, 86_400.0),
)

# Where a registry keeps our collector: two hosts of one process find the same one, and it lives
# exactly as long as the registry.
_SLOT = "_outlive_metrics"


class PrometheusTelemetry(Telemetry):
    """Counts and times what leases do, for Prometheus to scrape.

    ``registry`` defaults to the client's global one. Any number of these may share a registry,
    and any number of hosts may share one of these: their numbers add up in the same series.

    Raises:
        ConfigurationError: ``prometheus_client`` is not installed.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise ConfigurationError(
                "metrics need the Prometheus client: pip install 'outlive[metrics]'"
            ) from None
        self._metrics = _metrics_of(prometheus_client.REGISTRY if registry is None else registry)

    def acquired(self, outcome: str, seconds: float) -> None:
        """Count and time an acquire."""
        metrics = self._metrics
        if outcome not in metrics.acquisitions:
            outcome = OTHER
        metrics.acquisitions[outcome].inc()
        metrics.acquire_seconds[outcome].observe(seconds)

    def conflict(self) -> None:
        """Count an acquire that met another owner."""
        self._metrics.conflicts.inc()

    def taken_over(self) -> None:
        """Count a takeover."""
        self._metrics.takeovers.inc()

    def renewed(self, seconds: float) -> None:
        """Time a renewal."""
        self._metrics.renew_seconds.observe(seconds)

    def renew_failed(self) -> None:
        """Count a failed attempt to renew."""
        self._metrics.renew_failures.inc()

    def lost(self, reason: str) -> None:
        """Count a loss by its reason."""
        losses = self._metrics.losses
        losses[reason if reason in losses else OTHER].inc()

    def released(self) -> None:
        """Count a release."""
        self._metrics.releases.inc()

    def spent(self, unit: str, amount: float) -> None:
        """Add up what the store charged."""
        spent = self._metrics.spent
        spent[unit if unit in spent else OTHER].inc(amount)

    def enqueued(self, count: int) -> None:
        """Count jobs that were enqueued."""
        self._metrics.jobs.enqueued.inc(count)

    def claimed(self, count: int) -> None:
        """Count jobs that were claimed."""
        self._metrics.jobs.claimed.inc(count)

    def job_waited(self, seconds: float) -> None:
        """Time a job's way from its enqueueing to its handler."""
        self._metrics.jobs.wait_seconds.observe(seconds)

    def job_ended(self, outcome: str, seconds: float | None) -> None:
        """Count the end of a claim, and time its run."""
        jobs = self._metrics.jobs
        if outcome not in jobs.ended:
            outcome = OTHER
        jobs.ended[outcome].inc()
        if seconds is not None:
            jobs.run_seconds[outcome].observe(seconds)

    def jobs_reclaimed(self, count: int) -> None:
        """Count claims that were taken back from hosts that are gone."""
        self._metrics.jobs.reclaimed.inc(count)

    def flows_counted(self, what: str, count: int = 1) -> None:
        """Count what happened to flows."""
        events = self._metrics.flows.events
        events.get(what, events[OTHER]).inc(count)

    def flows_active(self, change: int) -> None:
        """Follow how many flows do something here."""
        self._metrics.flows.active.inc(change)

    def flow_ended(self, outcome: str) -> None:
        """Count a flow that ended here."""
        ended = self._metrics.flows.ended
        ended.get(outcome, ended[OTHER]).inc()

    def flow_activated(self, seconds: float) -> None:
        """Time a run of flow code."""
        self._metrics.flows.activation_seconds.observe(seconds)

    def step_ended(self, outcome: str, seconds: float) -> None:
        """Time an attempt of a step."""
        steps = self._metrics.flows.step_seconds
        steps.get(outcome, steps[OTHER]).observe(seconds)

    def timer_fired(self, late_s: float) -> None:
        """Follow how late timers are."""
        self._metrics.flows.timer_seconds.observe(late_s)

    def watch(self, watched: Watched) -> Callable[[], None]:
        """Read the gauges of this host at each scrape, until it closes or is dropped."""
        return self._metrics.watch(watched)


def _metrics_of(registry: CollectorRegistry) -> _Metrics:
    """The one collector of this registry, made and registered by whoever asks first."""
    ours = _Metrics()
    # setdefault on a dict is one step for all threads.
    shared: _Metrics = vars(registry).setdefault(_SLOT, ours)
    if shared is ours:
        try:
            registry.register(ours)
        except ValueError as error:
            del vars(registry)[_SLOT]
            raise ConfigurationError(
                f"this Prometheus registry already has other metrics with Outlive's names: {error}"
            ) from None
    return shared


class _JobMetrics:
    """What is told of jobs."""

    def __init__(self) -> None:
        from prometheus_client import Counter, Histogram

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"outlive_jobs_{name}", text, labels, registry=None)

        self.enqueued = counter("enqueued", "Jobs enqueued by this process.")
        self.claimed = counter("claimed", "Jobs claimed by this process.")
        self.reclaimed = counter("reclaimed", "Claims recovered from dead hosts.")
        ended = counter("ended", "Claims of this process that ended, by outcome.", "outcome")
        run_seconds = Histogram(
            "outlive_job_run_seconds",
            "Time from the start of a handler to the end of its claim, by outcome.",
            ("outcome",),
            buckets=_JOB_BUCKETS_S,
            registry=None,
        )
        self.wait_seconds = Histogram(
            "outlive_job_wait_seconds",
            "Time from enqueueing a job to the start of its handler, delays included.",
            buckets=_JOB_BUCKETS_S,
            registry=None,
        )
        outcomes = (*JOB_OUTCOMES, OTHER)
        self.ended = {value: ended.labels(value) for value in outcomes}
        self.run_seconds = {value: run_seconds.labels(value) for value in outcomes}
        self.told: tuple[Collector, ...] = (
            *(self.enqueued, self.claimed, self.reclaimed, ended),
            *(run_seconds, self.wait_seconds),
        )


class _FlowMetrics:
    """What is told of flows."""

    def __init__(self) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        def seconds(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(
                f"outlive_{name}_seconds", text, labels, buckets=_FLOW_BUCKETS_S, registry=None
            )

        events = Counter(
            "outlive_flows", "Events of flows in this process, by event.", ("event",), registry=None
        )
        ended = Counter(
            "outlive_flows_ended",
            "Flows that ended in this process, by outcome.",
            ("outcome",),
            registry=None,
        )
        step_seconds = seconds("step_run", "Time of one attempt of a step, by outcome.", "outcome")
        self.active = Gauge(
            "outlive_flows_active",
            "Flows that run in this process now, without waiting ones.",
            registry=None,
        )
        self.activation_seconds = seconds(
            "flow_activation", "Time that flow code ran until its next wait."
        )
        self.timer_seconds = seconds("flow_timer_lag", "Delay of flow timers after their due time.")
        self.events = {value: events.labels(value) for value in (*FLOW_COUNTS, OTHER)}
        self.ended = {value: ended.labels(value) for value in (*FLOW_OUTCOMES, OTHER)}
        self.step_seconds = {value: step_seconds.labels(value) for value in (*STEP_OUTCOMES, OTHER)}
        self.told: tuple[Collector, ...] = (
            *(events, ended, step_seconds, self.active),
            *(self.activation_seconds, self.timer_seconds),
        )


class _Metrics:
    """The collector: counters and histograms that are told, gauges that are read at a scrape.

    Every series exists from the start, at zero, so that a rate never misses the first event.
    """

    def __init__(self) -> None:
        from prometheus_client import Counter, Histogram

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"outlive_lease_{name}", text, labels, registry=None)

        acquisitions = counter("acquisitions", "Acquire calls that ended, by outcome.", "outcome")
        acquire_seconds = Histogram(
            "outlive_lease_acquire_seconds",
            "Time from an acquire call to its end, waiting included, by outcome.",
            ("outcome",),
            buckets=_ACQUIRE_BUCKETS_S,
            registry=None,
        )
        losses = counter("losses", "Leases lost while owned, by reason code.", "reason")
        spent = Counter(
            "outlive_store_spent",
            "Cost that the store charged for requests, by unit.",
            ("unit",),
            registry=None,
        )
        outcomes, reasons = (*OUTCOMES, OTHER), (*REASONS, OTHER)
        self.spent = {value: spent.labels(value) for value in (*UNITS, OTHER)}
        self.acquisitions = {value: acquisitions.labels(value) for value in outcomes}
        self.acquire_seconds = {value: acquire_seconds.labels(value) for value in outcomes}
        self.losses = {value: losses.labels(value) for value in reasons}
        self.conflicts = counter("conflicts", "Acquire calls that found the key already owned.")
        self.takeovers = counter("takeovers", "Grants that took over from an expired owner.")
        self.releases = counter("releases", "Leases released by their owner.")
        self.renew_failures = counter("renew_failures", "Attempts to renew that failed.")
        self.renew_seconds = Histogram(
            "outlive_lease_renew_seconds",
            "Time from a renewal request to its acknowledgement.",
            buckets=_RENEW_BUCKETS_S,
            registry=None,
        )
        self.jobs = _JobMetrics()
        self.flows = _FlowMetrics()
        self._told: tuple[Collector, ...] = (
            *self.jobs.told,
            *self.flows.told,
            *(acquisitions, acquire_seconds, losses, self.conflicts, self.takeovers),
            *(self.releases, self.renew_failures, self.renew_seconds, spent),
        )
        self._lock = threading.Lock()
        # Weak: a host that was dropped without close must not be kept alive by its metrics.
        self._watched: weakref.WeakSet[Watched] = weakref.WeakSet()

    def watch(self, watched: Watched) -> Callable[[], None]:
        """Include a host in the gauges; the function that is returned takes it out."""
        with self._lock:
            self._watched.add(watched)
        reference = weakref.ref(watched)

        def end() -> None:
            gone = reference()
            if gone is not None:
                with self._lock:
                    self._watched.discard(gone)

        return end

    def describe(self) -> Iterable[Metric]:
        """What this collector will ever collect; asked once, by the registry."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """Everything, as of now. Called by each scrape, on the scraper's thread."""
        from prometheus_client.core import GaugeMetricFamily

        for told in self._told:
            yield from told.collect()
        with self._lock:
            watched = list(self._watched)
        pulses = [host.pulse() for host in watched]
        yield GaugeMetricFamily(
            "outlive_leases_held",
            "Leases owned by this process now.",
            value=sum(held for held, _ in pulses),
        )
        yield GaugeMetricFamily(
            "outlive_lease_seconds_since_renewal",
            "Age of the oldest last renewal among the leases owned now; 0 when none is.",
            value=max((age_s for _, age_s in pulses), default=0.0),
        )
