"""Each metric moves as it should, on real leases, and the number of series never grows."""

from __future__ import annotations

import asyncio
import gc
import sys
import uuid

import pytest

prometheus_client = pytest.importorskip("prometheus_client")

from outlive.charts import Chart  # noqa: E402
from outlive.charts.orchestrator import Orchestrator  # noqa: E402
from outlive.connect import connect  # noqa: E402
from outlive.drivers.memory.lease_store import MemoryLeaseStore  # noqa: E402
from outlive.errors import (  # noqa: E402
    AcquireTimeout,
    ConfigurationError,
    LeaseHeld,
    LeaseLost,
    StoreUnavailable,
)
from outlive.leases.events import Lost, Renewed, RenewFailed  # noqa: E402
from outlive.telemetry import PrometheusTelemetry, events  # noqa: E402


class Metrics:
    def __init__(self):
        self.registry = prometheus_client.CollectorRegistry()
        self.telemetry = PrometheusTelemetry(self.registry)

    def __call__(self, name, **labels):
        value = self.registry.get_sample_value(f"outlive_{name}", labels)
        assert value is not None, f"no series outlive_{name} {labels}"
        return value

    def series(self):
        return {
            (sample.name, *sorted(sample.labels.items()))
            for metric in self.registry.collect()
            for sample in metric.samples
        }


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
async def pair(metrics):
    """Two hosts of one store, measured together."""
    url = f"memory://{uuid.uuid4().hex}"
    first = connect(url, name="a", telemetry=metrics.telemetry)
    second = connect(url, name="b", telemetry=PrometheusTelemetry(metrics.registry))
    async with first as a, second as b:
        yield a, b


def signal(host, kind):
    """What is set when this event happens next on this host."""
    happened = asyncio.Event()
    host.leases.on(kind, lambda _event: happened.set())
    return happened


async def test_a_grant_and_a_release_are_counted_and_timed(pair, metrics):
    a, _ = pair
    async with a.leases.hold("k"):
        pass
    assert metrics("lease_acquisitions_total", outcome="granted") == 1
    assert metrics("lease_acquire_seconds_count", outcome="granted") == 1
    assert metrics("lease_acquire_seconds_sum", outcome="granted") >= 0
    assert metrics("lease_releases_total") == 1
    assert metrics("lease_conflicts_total") == 0
    assert metrics("lease_takeovers_total") == 0


async def test_a_refusal_is_held_and_a_conflict(pair, metrics):
    a, b = pair
    async with a.leases.hold("k"):
        assert await b.leases.try_acquire("k") is None
        with pytest.raises(LeaseHeld):
            await b.leases.acquire("k", timeout=0)
    assert metrics("lease_acquisitions_total", outcome="held") == 2
    assert metrics("lease_acquire_seconds_count", outcome="held") == 2
    assert metrics("lease_conflicts_total") == 2


async def test_a_timeout_is_one_conflict_however_often_it_asked(pair, metrics):
    a, b = pair
    async with a.leases.hold("k"):
        with pytest.raises(AcquireTimeout):
            await b.leases.acquire("k", timeout=0.1, acquire_retry=(0.01, 0.01))
    assert metrics("lease_acquisitions_total", outcome="timeout") == 1
    assert metrics("lease_conflicts_total") == 1
    assert metrics("lease_acquire_seconds_sum", outcome="timeout") >= 0.1


def test_what_the_store_charges_is_added_up_by_its_unit(metrics):
    before = metrics.series()
    metrics.telemetry.record(events.STORE_SPENT, 10.5, unit="request_units")
    metrics.telemetry.record(events.STORE_SPENT, 1, unit="request_units")
    metrics.telemetry.record(events.STORE_SPENT, 3, unit="bananas")
    assert metrics("store_spent_total", unit="request_units") == 11.5
    assert metrics("store_spent_total", unit="other") == 3
    assert metrics.series() == before


async def test_a_cancelled_wait_is_counted(pair, metrics):
    a, b = pair
    async with a.leases.hold("k"):
        task = asyncio.create_task(b.leases.acquire("k"))
        while metrics("lease_conflicts_total") == 0:  # noqa: ASYNC110 - a metric has no event
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert metrics("lease_acquisitions_total", outcome="cancelled") == 1


async def test_a_store_that_is_away_is_an_error(pair, metrics, monkeypatch):
    async def away(self, request):
        raise StoreUnavailable("away")

    a, _ = pair
    monkeypatch.setattr(MemoryLeaseStore, "acquire", away)
    with pytest.raises(StoreUnavailable):
        await a.leases.try_acquire("k")
    assert metrics("lease_acquisitions_total", outcome="error") == 1
    assert metrics("lease_conflicts_total") == 0


async def test_renewals_of_the_keeper_are_timed(pair, metrics):
    a, _ = pair
    renewed = signal(a, Renewed)
    async with a.leases.hold("k", ttl=0.3):
        await renewed.wait()
    assert metrics("lease_renew_seconds_count") >= 1
    assert metrics("lease_renew_failures_total") == 0


async def test_failed_renewals_and_the_loss_they_end_in(pair, metrics, monkeypatch):
    async def away(self, grant, ttl_us, *, state=None):
        raise StoreUnavailable("away")

    a, _ = pair
    failed = signal(a, RenewFailed)
    monkeypatch.setattr(MemoryLeaseStore, "renew", away)
    with pytest.raises(LeaseLost):
        async with a.leases.hold("k", ttl=0.3):
            await failed.wait()
            assert metrics("lease_renew_failures_total") >= 1
            await asyncio.Event().wait()
    assert metrics("lease_losses_total", reason="expired") == 1
    assert metrics("lease_releases_total") == 0


async def test_losses_carry_their_reason(pair, metrics):
    a, b = pair
    lost = signal(a, Lost)
    broken = await a.leases.acquire("broken")
    await b.leases.break_lease("broken", reason="test")
    with pytest.raises(LeaseLost):
        await broken.renew()
    await lost.wait()
    dropped = await a.leases.acquire("dropped")
    del dropped
    gc.collect()
    assert metrics("lease_losses_total", reason="broken") == 1
    assert metrics("lease_losses_total", reason="abandoned") == 1
    assert metrics("lease_losses_total", reason="expired") == 0
    assert metrics("leases_held") == 0


async def test_a_takeover_is_counted(pair, metrics):
    a, b = pair
    stale = await a.leases.acquire("k", ttl=0.05, auto_renew=False)
    async with b.leases.hold("k") as lease:
        assert lease.previous_owner == stale.owner
    assert metrics("lease_takeovers_total") == 1
    assert metrics("lease_acquisitions_total", outcome="granted") == 2


async def test_gauges_are_read_from_all_hosts_at_the_scrape(pair, metrics):
    a, b = pair
    assert metrics("leases_held") == 0
    assert metrics("lease_seconds_since_renewal") == 0
    async with a.leases.hold("x"), a.leases.hold("y"), b.leases.hold("z") as newest:
        assert metrics("leases_held") == 3
        before = metrics("lease_seconds_since_renewal")
        assert before > 0
        await newest.renew()
        # The oldest counts, and it was not renewed.
        assert metrics("lease_seconds_since_renewal") > before
        await b.close()
        assert metrics("leases_held") == 2
    assert metrics("leases_held") == 0
    assert metrics("lease_seconds_since_renewal") == 0


class Pulse:
    def readings(self):
        return (events.LEASES_HELD, 5, {}), (events.SINCE_RENEWAL, 1.5, {})


def test_a_host_that_is_dropped_is_not_kept_alive_by_its_metrics(metrics):
    host = Pulse()
    end = metrics.telemetry.watch(host)
    assert metrics("leases_held") == 5
    assert metrics("lease_seconds_since_renewal") == 1.5
    del host
    gc.collect()
    assert metrics("leases_held") == 0
    end()


async def test_a_thousand_keys_make_no_new_series(pair, metrics):
    a, b = pair
    before = metrics.series()
    for number in range(1000):
        async with a.leases.hold(f"key-{number}"):
            assert await b.leases.try_acquire(f"key-{number}") is None
    assert metrics.series() == before
    assert metrics("lease_acquisitions_total", outcome="granted") == 1000
    labels = {name for _, *pairs in before for name, _ in pairs}
    assert labels == {"event", "outcome", "reason", "unit", "le"}


def test_unknown_values_share_one_series(metrics):
    before = metrics.series()
    for number in range(100):
        metrics.telemetry.record(events.LEASE_ACQUISITIONS, outcome=f"new-{number}")
        metrics.telemetry.record(events.LEASE_LOSSES, reason=f"new-{number}")
    assert metrics.series() == before
    assert metrics("lease_acquisitions_total", outcome="other") == 100
    assert metrics("lease_losses_total", reason="other") == 100


async def test_an_orchestrator_of_charts_is_read_at_the_scrape(metrics):
    light = {
        "id": "light",
        "initial": "red",
        "states": {"red": {"on": {"GO": "green"}}, "green": {}},
    }
    hub = Orchestrator()
    end = metrics.telemetry.watch(hub)
    first = await hub.start(Chart.load(light))
    second = await hub.start(Chart.load(light), id="second")
    await first.request("GO")
    await second.stop()
    second.unregister()
    assert metrics("chart_machines", chart="light") == 1
    assert metrics("chart_registrations_total") == 2
    assert metrics("chart_ends_total") == 1
    assert metrics("chart_events_total", outcome="succeeded") == 1
    assert metrics("chart_events_total", outcome="dead_letter") == 0
    assert metrics("chart_lanes") > 0
    end()
    assert metrics("chart_registrations_total") == 0
    await hub.force_cleanup()


def test_names_that_are_made_of_data_end_in_one_series(metrics):
    for number in range(events.NAMES_MAX + 50):
        metrics.telemetry.record(events.JOBS_ENQUEUED, 2, queue=f"q-{number}")
    assert metrics("jobs_enqueued_total", queue="q-0") == 2
    assert metrics("jobs_enqueued_total", queue="other") == 100
    queues = {
        pairs for name, *pairs_ in metrics.series() for pairs in pairs_ if pairs[0] == "queue"
    }
    assert len(queues) == events.NAMES_MAX + 1


def test_many_telemetries_share_a_registry(metrics):
    second = PrometheusTelemetry(metrics.registry)
    metrics.telemetry.record(events.LEASE_CONFLICTS)
    second.record(events.LEASE_CONFLICTS)
    assert metrics("lease_conflicts_total") == 2
    assert PrometheusTelemetry(prometheus_client.CollectorRegistry()) is not second


def test_names_that_are_taken_are_explained():
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.Gauge("outlive_leases_held", "Somebody else's.", registry=registry)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="outlive_leases_held"):
            PrometheusTelemetry(registry)


def test_a_missing_client_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'outlive\[metrics\]'"):
        PrometheusTelemetry()
