"""Blocks and leaders begin only while the lease is held, and end before others may own the key."""

from __future__ import annotations

import asyncio

from outlive.errors import LeaseLost
from tests.simulation.fleet import CALM, OPTIONS, Fleet
from tests.simulation.worker import TTL_S


def on_one_host(act):
    """Run ``act(host, machine, now)`` on a connected machine of a calm simulation."""
    fleet = Fleet(1, plan=CALM)

    async def main(simulation):
        machine = simulation.start_host("a")

        async def connected():
            host = await fleet._store.connect(machine, OPTIONS)
            result = await act(host, machine, lambda: simulation.now)
            await host.close()
            return result

        task = machine.spawn(connected())
        await machine.join(task)
        return task.result()

    return fleet.simulation.run(main)


def test_a_block_is_not_entered_when_the_grant_came_too_late():
    async def act(host, machine, now):
        # The machine stops right after the request has left, and goes on when the ttl has passed.
        asyncio.get_running_loop().call_later(0.01, machine.pause, 3 * TTL_S)
        started, entered = now(), []
        try:
            async with host.leases.hold("k") as lease:
                entered.append(lease.is_held)
        except LeaseLost:
            pass
        return now() - started, entered

    waited, entered = on_one_host(act)
    assert waited >= 3 * TTL_S
    assert entered in ([], [True])


def test_a_leader_does_not_begin_when_the_grant_came_too_late():
    async def act(host, machine, now):
        del now
        asyncio.get_running_loop().call_later(0.01, machine.pause, 3 * TTL_S)
        begun = []

        async def body(lease):
            begun.append(lease.is_held)
            await asyncio.sleep(1)

        leading = asyncio.create_task(host.leases.lead("k", body))
        await asyncio.sleep(4 * TTL_S)
        leading.cancel()
        await asyncio.wait((leading,))
        return begun

    assert set(on_one_host(act)) <= {True}


def test_closing_ends_blocks_and_leaders_before_their_keys_are_given_up():
    async def act(host, machine, now):
        del machine, now
        ended = set()

        async def work(name):
            try:
                await asyncio.sleep(100)
            finally:
                ended.add(name)

        async def block():
            async with host.leases.hold("block"):
                await work("block")

        tasks = [
            asyncio.create_task(block()),
            asyncio.create_task(host.leases.lead("leader", lambda _: work("leader"))),
        ]
        await asyncio.sleep(1)
        await host.close()
        ended_by_then = set(ended)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return ended_by_then

    assert on_one_host(act) == {"block", "leader"}
