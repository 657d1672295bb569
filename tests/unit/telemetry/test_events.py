"""Telemetry as such: silence costs nothing, all listeners hear the same, mistakes harm nothing."""

from __future__ import annotations

import asyncio
import logging

import pytest

from outlive.connect import connect
from outlive.errors import LeaseLost, UsageError
from outlive.telemetry import events
from outlive.telemetry.events import CombinedTelemetry, Span, Telemetry, combine


class Recorder(Telemetry):
    tracing = True

    def __init__(self):
        self.heard = []

    def record(self, metric, value=1, **labels):
        assert value >= 0
        if metric not in (events.LEASE_ACQUIRE, events.LEASE_RENEW):
            self.heard.append(" ".join([metric.name, *labels.values()]))

    def began(self, name, key, carrier=None, /, **attributes):
        self.heard.append(f"began {attributes['key']}")

    def ended(self, key, how, /, *, error):
        self.heard.append(f"ended {how}")


class Broken(Telemetry):
    """Raises whatever it is told."""

    tracing = True

    def __getattribute__(self, name):
        if name in {"tracing", "active", "__class__"}:
            return object.__getattribute__(self, name)
        raise RuntimeError(f"no {name}")


class BrokenSpan(Span):
    def set(self, **attributes):
        raise RuntimeError("set")

    def __enter__(self):
        raise RuntimeError("enter")

    def __exit__(self, kind, error, traceback):
        raise RuntimeError("exit")


class BrokenSpans(Telemetry):
    tracing = True

    def span(self, name, carrier=None, /, **attributes):
        return BrokenSpan()


async def test_without_telemetry_no_method_is_called_on_the_hot_path(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("called although nobody listens")

    for name in ("record", "span", "began"):
        monkeypatch.setattr(Telemetry, name, refuse)
    async with connect("memory://", name="h") as host:
        lease = await host.leases.acquire("k")
        await lease.renew()
        await lease.release()
        async with host.leases.hold("k"):
            pass


def test_nothing_combined_is_silent_and_inactive():
    silent = combine(None, Telemetry())
    assert type(silent) is Telemetry
    assert not silent.active
    assert not silent.tracing


def test_combining_what_is_combined_stays_flat():
    first, second = Recorder(), Recorder()
    both = combine(combine(first), None, second)
    assert isinstance(both, CombinedTelemetry)
    assert both.parts == (first, second)
    assert both.active


def test_only_telemetries_are_accepted():
    with pytest.raises(UsageError, match="PrometheusTelemetry"):
        combine(object())  # pyright: ignore[reportArgumentType]


async def test_all_listeners_hear_the_same_story():
    first, second = Recorder(), Recorder()
    connecting = connect("memory://", name="h", telemetry=combine(first, second))
    async with connecting as host, host.leases.hold("k"):
        assert await host.leases.try_acquire("k") is None
    assert first.heard == [
        "lease_acquisitions granted",
        "began k",
        "lease_acquisitions held",
        "lease_conflicts",
        "lease_releases",
        "ended released",
    ]
    assert second.heard == first.heard


async def test_a_listener_that_raises_harms_nothing_and_is_logged_once(caplog):
    recorder = Recorder()
    telemetry = combine(Broken(), BrokenSpans(), recorder)
    async with connect("memory://", name="h", telemetry=telemetry) as host:
        for _ in range(3):
            lease = await host.leases.acquire("k")
            await lease.renew()
            await lease.release()
        with pytest.raises(LeaseLost) as caught:
            async with host.leases.hold("k") as lease:
                await host.leases.break_lease("k", reason="test")
                with pytest.raises(LeaseLost):
                    await lease.renew()
                # The loss must reach the block although a listener fails on the way.
                await asyncio.Event().wait()
    assert caught.value.reason == "broken"
    assert recorder.heard.count("lease_acquisitions granted") == 4
    assert recorder.heard[-2:] == ["lease_losses broken", "ended broken"]
    failures = [r for r in caplog.records if "telemetry" in r.getMessage()]
    assert {record.levelno for record in failures} == {logging.ERROR}
    assert {vars(record).get("host") for record in failures} == {"h"}
    texts = [record.getMessage() for record in failures]
    assert len(texts) == len(set(texts))


async def test_what_is_not_an_exception_of_ours_counts_as_an_error(monkeypatch):
    recorder = Recorder()
    async with connect("memory://", name="h", telemetry=recorder) as host:

        async def wrong(*_args, **_how):
            raise ZeroDivisionError

        monkeypatch.setattr(host.leases._acquirer, "attempt", wrong)
        with pytest.raises(ZeroDivisionError):
            await host.leases.try_acquire("k")
    assert recorder.heard == ["lease_acquisitions error"]


async def test_a_release_whose_caller_is_cancelled_is_counted():
    recorder = Recorder()
    async with connect("memory://", name="h", telemetry=recorder) as host:
        lease = await host.leases.acquire("k")
        original = host.leases._store.release
        begun = asyncio.Event()

        async def slow(grant):
            begun.set()
            await asyncio.sleep(0)
            await original(grant)

        host.leases._store.release = slow
        task = asyncio.create_task(lease.release())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert recorder.heard.count("lease_releases") == 1
    assert recorder.heard.count("ended released") == 1
