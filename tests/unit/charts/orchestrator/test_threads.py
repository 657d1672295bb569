"""One orchestrator, many threads and event loops; and the one that a process shares."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

import outlive
from outlive.charts import Chart
from outlive.charts.orchestrator import Orchestrator
from outlive.errors import ChartError, GroupReleased, RequestTimeout, UnknownTarget
from tests.unit.charts.orchestrator.charts_used import RECORDER, TOGGLE, gated

THREADS = 16


@contextmanager
def elsewhere():
    """An event loop that runs in a thread of its own; gives a function that runs coroutines there.

    Nothing of a test may outlive it, so that the loop is closed here.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work, timeout_s=30):
        return asyncio.run_coroutine_threadsafe(work, loop).result(timeout_s)

    try:
        yield run
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def together(function):
    """Call ``function`` in many threads at the same moment; give what they returned."""
    barrier = threading.Barrier(THREADS)

    def call(number):
        barrier.wait()
        return function(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(call, range(THREADS)))


def test_the_shared_orchestrator_is_one_in_all_threads():
    program = (
        "import threading, outlive\n"
        "barrier = threading.Barrier(16)\n"
        "found = []\n"
        "def ask():\n"
        "    barrier.wait()\n"
        "    found.append(outlive.orchestrator())\n"
        "threads = [threading.Thread(target=ask) for _ in range(16)]\n"
        "for t in threads: t.start()\n"
        "for t in threads: t.join()\n"
        "print(len(found), len(set(map(id, found))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["16", "1"]
    assert outlive.orchestrator() is outlive.orchestrator()


def test_a_forked_process_has_its_own():
    mine = outlive.orchestrator()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, b"same" if outlive.orchestrator() is mine else b"own")
        os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"own"


def test_the_shared_orchestrator_is_set_up_once():
    program = (
        "import outlive\n"
        "hub = outlive.orchestrator(pool_size=3, unhandled='error')\n"
        "assert hub.pool.pool_size == 3\n"
        "assert outlive.orchestrator() is hub\n"
        "assert outlive.orchestrator(pool_size=3, metrics=True) is hub\n"
        "try:\n"
        "    outlive.orchestrator(pool_size=4)\n"
        "except outlive.UsageError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "is set up already, with pool_size=3" in done.stdout


def test_code_without_an_event_loop_releases_a_group():
    hub, ready = Orchestrator(), threading.Event()
    group = hub.group("g")
    ended: list[bool] = []

    async def live() -> None:
        machine = await group.start(TOGGLE)
        ready.set()
        with pytest.raises(ChartError):
            await machine.wait_for(lambda _: False, timeout=20)
        ended.append(not machine.running)

    thread = threading.Thread(target=lambda: asyncio.run(live()))
    thread.start()
    assert ready.wait(20)
    group.release()
    assert group.released
    thread.join(20)
    assert ended == [True]
    group.release()


def test_groups_made_in_many_threads_are_all_different():
    hub = Orchestrator()
    made = together(lambda number: [hub.group(f"g{number}") for _ in range(200)])
    groups = [group for each in made for group in each]
    assert len({group.id for group in groups}) == THREADS * 200
    assert set(hub.groups) == set(groups)


def test_machines_registered_in_many_threads_are_all_there():
    hub = Orchestrator()
    group = hub.group("g")
    made = together(lambda _: [group.register(TOGGLE) for _ in range(200)])
    assert len(group) == len({machine.id for each in made for machine in each}) == THREADS * 200
    together(lambda number: [machine.unregister() for machine in made[number]])
    assert len(group) == 0


async def test_plain_threads_send_and_each_keeps_its_order():
    hub = Orchestrator()
    machine = await hub.start(RECORDER)

    def send_many(number):
        for n in range(200):
            machine.send("NOTE", n=(number, n))

    await asyncio.to_thread(together, send_many)
    seen = (await machine.request("LOOK")).context["seen"]
    assert len(seen) == THREADS * 200
    for number in range(THREADS):
        assert [n for thread, n in seen if thread == number] == list(range(200))
    await hub.force_cleanup()


async def test_a_machine_of_another_loop_is_sent_to_requested_and_stopped():
    hub = Orchestrator()
    group = hub.group("g")
    with elsewhere() as run:
        machine = run(group.start(RECORDER))
        await machine.send("NOTE", n=1)
        assert (await machine.request("NOTE", n=2)).context["seen"] == [1, 2]
        near = await group.start(RECORDER)
        from_there = await asyncio.to_thread(run, near.request("NOTE", n=3))
        assert from_there.context["seen"] == [3]
        await machine.stop()
        assert machine.snapshot.status == "stopped"
        with pytest.raises(UnknownTarget):
            await machine.send("NOTE", n=4)
        assert hub.metrics().loops == 2
        await group.release()


async def test_a_machine_of_another_loop_is_waited_for():
    hub = Orchestrator()
    with elsewhere() as run:
        machine = run(hub.start(TOGGLE))
        waiting = asyncio.ensure_future(
            machine.wait_for(lambda snapshot: snapshot.value == "on", timeout=10)
        )
        await asyncio.sleep(0.01)
        machine.send("FLIP")
        assert (await waiting).value == "on"
        assert (await machine.settled()).value == "on"
        await hub.force_cleanup()


async def test_a_request_to_another_loop_times_out_here():
    hub = Orchestrator()
    gate = asyncio.Event()
    with elsewhere() as run:
        machine = run(hub.start(gated(gate)))
        machine.send("SLOW")
        with pytest.raises(RequestTimeout) as caught:
            await machine.request("PING", timeout=0.05)
        assert not caught.value.begun
        await hub.force_cleanup()
        assert machine.snapshot.context["pings"] == 0


async def test_a_group_on_several_loops_is_released_from_any():
    hub = Orchestrator()
    group = hub.group("g")
    with elsewhere() as run, elsewhere() as other:
        machines = [run(group.start(TOGGLE)), other(group.start(TOGGLE)), await group.start(TOGGLE)]
        gate = asyncio.Event()
        slow = run(group.start(gated(gate)))
        waiting = asyncio.ensure_future(slow.request("SLOW"))
        await asyncio.sleep(0.02)
        await group.release()
        with pytest.raises(GroupReleased):
            await waiting
        assert [machine.running for machine in (*machines, slow)] == [False] * 4


async def test_mutual_requests_across_loops_do_not_deadlock():
    hub = Orchestrator()
    group = hub.group("g")

    def chart(name, other, question):
        async def ask(actor) -> None:
            await actor.group.get(other).request(question, timeout=10)

        return Chart.load({"id": name, "on": {"ASK": {"actions": "ask"}}}, actions={"ask": ask})

    with elsewhere() as run:
        a = await group.start(chart("a", "b", "ASK"))
        run(group.start(chart("b", "a", "LOOK")))
        await a.request("ASK", timeout=10)
        await group.release()


def test_the_machines_of_a_loop_that_stands_still_can_be_stopped():
    hub = Orchestrator()
    gate: list[asyncio.Event] = []

    async def begin():
        gate.append(asyncio.Event())
        machine = await hub.start(gated(gate[0]))
        machine.send("SLOW")
        await asyncio.sleep(0.01)
        return machine

    with asyncio.Runner() as runner:
        machine = runner.run(begin())
        asyncio.run(hub.stop())
        assert not machine.running
        with pytest.raises(UnknownTarget, match="is not running"):
            asyncio.run(machine.wait_for(lambda _: True))
        # The cancelled action ends when its loop runs again.
        runner.run(asyncio.sleep(0))


def test_the_machines_of_a_closed_loop_are_gone():
    hub = Orchestrator()
    group = hub.group("g")

    async def begin():
        return await group.start(TOGGLE)

    machine = asyncio.run(begin())

    async def look():
        with pytest.raises(UnknownTarget, match="closed"):
            await machine.send("FLIP")
        with pytest.raises(UnknownTarget, match="closed"):
            await machine.request("FLIP")
        await group.release()
        assert not machine.running
        await hub.start(TOGGLE)
        assert hub.metrics().loops == 1

    asyncio.run(look())


def test_a_loop_that_was_closed_over_its_tasks_does_not_stand_in_the_way_of_a_release():
    async def wait() -> None:
        await asyncio.Event().wait()

    chart = Chart.load(
        {"id": "m", "invoke": {"src": "wait"}, "on": {"SLOW": {"actions": "wait"}}},
        actions={"wait": wait},
        services={"wait": wait},
    )
    hub = Orchestrator(logging=False)
    errors: list[BaseException] = []
    hub.on_error(lambda _, error: errors.append(error))
    group = hub.group("left behind")

    async def begin():
        machines = [await group.start(chart) for _ in range(2)]
        for machine in machines:
            machine.send("SLOW")
        await hub.idle()
        return machines

    loop = asyncio.new_event_loop()
    machines = loop.run_until_complete(begin())
    left = asyncio.all_tasks(loop)
    loop.close()
    try:
        group.release()
        assert not errors
        assert [machine.running for machine in machines] == [False, False]
    finally:
        for task in left:
            # They are this test's own, and nobody can end them any more.
            task._log_destroy_pending = False


async def test_whoever_stops_waiting_for_room_in_another_loop_does_no_harm():
    hub = Orchestrator()
    gate = asyncio.Event()
    harm: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: harm.append(context))
    async with hub.group("g") as group:
        machine = await group.start(gated(gate), mailbox_limit=1)
        machine.send("SLOW")
        await hub.idle()
        machine.send("PING")

        async def lose_patience() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await machine.send("PING")

        await asyncio.to_thread(asyncio.run, lose_patience())
        gate.set()
        await machine.wait_for(lambda snapshot: snapshot.context["pings"] == 2, timeout=10)
    assert not harm
