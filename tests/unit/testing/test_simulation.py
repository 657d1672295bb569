"""Simulated hosts: clocks of their own, crashes, pauses, restarts, and errors nobody handled."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from outlive.errors import UsageError
from outlive.testing import World
from outlive.testing.loop import VirtualLoop
from outlive.testing.simulation import Simulation, Unhandled


def test_hosts_differ_in_uptime_and_rate_within_the_bound():
    simulation = Simulation(1, drift_max=0.005)
    hosts = [simulation.start_host(name) for name in "abcdefgh"]
    assert len({host.clock.monotonic() for host in hosts}) == len(hosts)
    assert all(abs(host.rate - 1) <= 0.005 + 1e-12 for host in hosts)
    assert len({host.rate for host in hosts}) > 2


def test_wall_clocks_jump_by_days_and_the_monotonic_clock_does_not():
    async def main(simulation):
        host = simulation.start_host("a")
        wall, monotonic = host.clock.now(), host.clock.monotonic()
        await asyncio.sleep(60)
        moved = host.clock.now() - wall
        return host, moved, host.clock.monotonic() - monotonic

    host, moved, elapsed = Simulation(2).run(main)
    assert host.clock.jumps > 5
    assert elapsed == pytest.approx(60 * host.rate)
    assert (moved - timedelta(seconds=60)) % timedelta(days=1) == timedelta(0)


def test_a_restart_is_a_new_incarnation_on_the_same_machine():
    async def main(simulation):
        first = simulation.start_host("a")
        task = first.spawn(asyncio.sleep(1000))
        await asyncio.sleep(1)
        first.crash()
        second = simulation.start_host("a")
        done = await first.join(task)
        return first, second, done

    first, second, done = Simulation(3).run(main)
    assert not done
    assert first.crashed
    assert (first.name, second.name) == ("a#0", "a#1")
    assert (first.rate, first.offset) == (second.rate, second.offset)


def test_the_longest_pause_counts():
    async def main(simulation):
        host = simulation.start_host("a")
        task = host.spawn(asyncio.sleep(0))
        host.pause(5)
        host.pause(1)
        await host.join(task)
        return simulation.now

    assert Simulation(4).run(main) == 5


def test_an_error_nobody_handled_fails_the_run():
    async def main(simulation):
        simulation.loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with pytest.raises(Unhandled, match="seed 5"):
        Simulation(5).run(main)


def test_a_run_inside_another_loop_is_refused_and_leaves_that_loop_running():
    async def outer() -> str:
        with pytest.raises(UsageError, match="a plain `def test_"):
            World().run(lambda world: world.connect())
        await asyncio.sleep(0)
        return "goes on"

    assert asyncio.run(outer()) == "goes on"


def test_a_loop_that_is_closed_inside_another_gives_it_back():
    async def outer() -> str:
        left = VirtualLoop()
        left.create_task(asyncio.sleep(1))
        left.close()
        await asyncio.sleep(0)
        return "goes on"

    assert asyncio.run(outer()) == "goes on"
