"""The fault proxy: what each fault does to one call of any port, for its caller and its store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from outlive.errors import Conflict, OutcomeUnknown, OutliveError, StoreUnavailable
from outlive.testing import Fault, FaultPlan, FaultProxy, Faults, Interceptor, Simulation
from outlive.testing.simulation import SimHost

TTL_S = 2.0


class Store:
    """A port that counts what it carried out."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def put(self, name: str, *, fails: bool = False) -> str:
        self.done.append(name)
        if fails:
            raise Conflict(name)
        return f"put {name}"

    claim = suspend = enqueue_in = put

    def count(self) -> int:
        return len(self.done)


class Seen:
    """What one call came to."""

    def __init__(self) -> None:
        self.store = Store()
        self.answer: object = None
        self.took_s = 0.0
        self.host: SimHost | None = None
        self.counts: dict[Fault, int] = {}


def call(
    act: Callable[[FaultProxy], object],
    *,
    port: str = "port",
    interceptor: Interceptor | None = None,
    heal: bool = False,
    **plan: float,
) -> Seen:
    """Let a host call a port, wait for long, and tell what happened."""
    seen = Seen()
    simulation = Simulation(3, drift_max=0.0, wall_jumps=False)
    faults = Faults(simulation, FaultPlan(ttl_s=TTL_S, latency_s=0.01, jitter=False, **plan))

    async def calls(proxy: FaultProxy) -> None:
        began = simulation.now
        try:
            seen.answer = await act(proxy)
        except OutliveError as error:
            seen.answer = error
        seen.took_s = simulation.now - began

    async def main(simulation: Simulation) -> None:
        seen.host = simulation.start_host("a")
        if heal:
            faults.heal()
        proxy = FaultProxy(port, seen.store, faults, seen.host, interceptor)
        seen.host.spawn(calls(proxy))
        await asyncio.sleep(100 * TTL_S)

    simulation.run(main)
    seen.counts = dict(faults.counts)
    return seen


def test_without_a_fault_a_call_travels_there_and_back():
    seen = call(lambda proxy: proxy.put("x"))
    assert (seen.answer, seen.store.done) == ("put x", ["x"])
    assert seen.took_s == pytest.approx(0.02)


def test_what_the_port_raises_reaches_the_caller():
    seen = call(lambda proxy: proxy.put("x", fails=True))
    assert isinstance(seen.answer, Conflict)


def test_a_call_that_fails_before_is_not_carried_out():
    seen = call(lambda proxy: proxy.put("x"), fail_before=1.0)
    assert isinstance(seen.answer, StoreUnavailable)
    assert seen.store.done == []


@pytest.mark.parametrize(("lost", "done"), [("request_lost", []), ("reply_lost", ["x"])])
def test_a_lost_message_leaves_the_outcome_unknown(lost, done):
    seen = call(lambda proxy: proxy.put("x"), **{lost: 1.0})
    assert isinstance(seen.answer, OutcomeUnknown)
    assert seen.store.done == done


def test_a_late_call_is_later_than_the_network_alone():
    seen = call(lambda proxy: proxy.put("x"), delay=1.0)
    assert seen.answer == "put x"
    assert seen.took_s > 0.1


def test_a_duplicate_is_carried_out_twice_and_answered_once():
    seen = call(lambda proxy: proxy.put("x"), duplicate=1.0)
    assert (seen.answer, seen.store.done) == ("put x", ["x", "x"])


@pytest.mark.parametrize(
    ("port", "method", "reply_lost", "times"),
    [
        ("jobs", "claim", 0.0, 1),
        ("jobs", "claim", 1.0, 2),
        ("instances", "suspend", 1.0, 1),
        ("schedules", "suspend", 1.0, 2),
    ],
)
def test_some_calls_are_not_carried_out_twice(port, method, reply_lost, times):
    seen = call(
        lambda proxy: getattr(proxy, method)("x"), port=port, duplicate=1.0, reply_lost=reply_lost
    )
    assert seen.store.done == ["x"] * times


def test_what_was_sent_is_carried_out_though_its_host_crashes():
    seen = call(lambda proxy: proxy.put("x"), crash=1.0)
    assert (seen.answer, seen.store.done) == (None, ["x"])
    assert seen.host is not None
    assert seen.host.crashed


def test_a_pause_between_request_and_reply_is_time_for_the_caller():
    seen = call(lambda proxy: proxy.put("x"), pause=1.0)
    assert (seen.answer, seen.store.done) == ("put x", ["x"])
    assert seen.took_s > 0.1


def test_after_healing_nothing_goes_wrong():
    chances = ("fail_before", "request_lost", "delay", "duplicate", "crash", "pause")
    seen = call(lambda proxy: proxy.put("x"), heal=True, **dict.fromkeys(chances, 1.0))
    assert (seen.answer, seen.store.done) == ("put x", ["x"])
    assert {fault for fault, count in seen.counts.items() if count} == set()


def test_a_call_in_a_transaction_of_the_caller_passes_no_network():
    seen = call(lambda proxy: proxy.enqueue_in("x"), port="jobs", fail_before=1.0)
    assert (seen.answer, seen.took_s) == ("put x", 0.0)


def test_a_proxy_has_the_async_methods_of_its_port_and_no_others():
    simulation = Simulation(1)
    faults = Faults(simulation, FaultPlan())
    proxy = FaultProxy("port", Store(), faults, simulation.start_host("a"))
    assert hasattr(proxy, "put")
    for name in ("count", "done", "absent"):
        assert not hasattr(proxy, name)


class Log(Interceptor):
    def __init__(self) -> None:
        self.lines: list[str] = []

    async def on_host(self, host, operation, forward, args, kwargs):
        self.lines.append(f"{host.machine} calls {operation} {args[0]}")
        try:
            return await forward(*args, **kwargs)
        except OutcomeUnknown:
            self.lines.append("unknown")
            raise

    async def on_store(self, host, operation, forward, args, kwargs):
        self.lines.append(await forward(f"{args[0]}!", **kwargs))


def test_an_interceptor_sees_a_call_on_both_sides_and_may_change_it():
    log = Log()
    seen = call(
        lambda proxy: proxy.put("x"), port="jobs", interceptor=log, reply_lost=1.0, duplicate=1.0
    )
    assert log.lines[:2] == ["a calls jobs.put x", "put x!"]
    assert sorted(log.lines[2:]) == ["put x!", "unknown"]
    assert seen.store.done == ["x!", "x!"]
