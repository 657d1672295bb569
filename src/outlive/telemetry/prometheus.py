"""Metrics for Prometheus, when the ``metrics`` extra is installed.

Makes the table of ``events`` into counters, gauges and histograms. Must never import
``prometheus_client`` before somebody asks for metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING

from outlive.errors import ConfigurationError
from outlive.telemetry.events import (
    DECLARED,
    METRICS,
    OTHER,
    Kind,
    Labels,
    Metric,
    Readings,
    Telemetry,
    Watched,
)

if TYPE_CHECKING:
    from prometheus_client import Metric as Family
    from prometheus_client.registry import CollectorRegistry

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

    def record(self, metric: Metric, value: float = 1, **labels: str) -> None:
        """Count, time or follow it."""
        self._metrics.record(metric, value, labels)

    def watch(self, watched: Watched) -> Callable[[], None]:
        """Read the gauges of this host at each scrape, until it closes or is dropped."""
        return self._metrics.readings.watch(watched)


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


class _Metrics:
    """The collector: the rows of the table, which are told, and gauges that are read at a scrape.

    Every series with fixed labels alone exists from the start, at zero, so that a rate never misses
    the first event.
    """

    def __init__(self) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        self._collectors: dict[Metric, Counter | Gauge | Histogram] = {}
        self._labels = Labels()
        # What a value is given to, by the metric and its labels as they are told.
        self._tellers: dict[tuple[Metric, tuple[str, ...]], Callable[[float], None]] = {}
        for metric in METRICS:
            name, labels = f"outlive_{metric.name}", tuple(metric.labels)
            if metric.kind is Kind.COUNTER:
                self._collectors[metric] = Counter(name, metric.text, labels, registry=None)
            elif metric.kind is Kind.HISTOGRAM:
                self._collectors[metric] = Histogram(
                    f"{name}_seconds", metric.text, labels, buckets=metric.buckets, registry=None
                )
            else:
                self._collectors[metric] = Gauge(name, metric.text, labels, registry=None)
            if DECLARED not in metric.labels.values():
                for values in product(*((*each, OTHER) for each in metric.labels.values())):
                    self._teller(metric, dict(zip(metric.labels, values, strict=True)))
        self.readings = Readings()

    def record(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """Give a value to its series."""
        teller = self._tellers.get((metric, tuple(labels[name] for name in metric.labels)))
        (teller or self._teller(metric, labels))(value)

    def _teller(self, metric: Metric, labels: Mapping[str, str]) -> Callable[[float], None]:
        checked = self._labels.checked(metric, labels)
        collector = self._collectors[metric]
        series = collector.labels(**checked) if checked else collector
        act = {Kind.HISTOGRAM: "observe", Kind.GAUGE: "set"}.get(metric.kind, "inc")
        teller: Callable[[float], None] = getattr(series, act)
        if checked == labels:
            self._tellers[metric, tuple(checked.values())] = teller
        return teller

    def describe(self) -> Iterable[Family]:
        """What this collector will ever collect; asked once, by the registry."""
        return self.collect()

    def collect(self) -> Iterator[Family]:
        """Everything, as of now. Called by each scrape, on the scraper's thread."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for collector in self._collectors.values():
            yield from collector.collect()
        for metric, values in self.readings.read().items():
            kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
            family = kind(f"outlive_{metric.name}", metric.text, labels=tuple(metric.labels))
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family
