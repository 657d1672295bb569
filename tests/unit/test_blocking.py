"""The façade: the same surface without await."""

from __future__ import annotations

import inspect
import os
import signal
import sqlite3
import threading
import time
from contextlib import closing

import pytest

import outlive
from outlive import blocking
from tests.unit.charts.orchestrator.charts_used import TOGGLE

_PAIRS = [
    (outlive.Leases, blocking.Leases),
    (outlive.Lease, blocking.Lease),
    (outlive.Host, blocking.Host),
    (outlive.Hosts, blocking.Hosts),
    (outlive.Work, blocking.Work),
    (outlive.Schedules, blocking.Schedules),
    (outlive.Job, blocking.Job),
    (outlive.Claim, blocking.Claim),
    (outlive.Flows, blocking.Flows),
    (outlive.FlowHandle, blocking.FlowHandle),
]
# What only the asynchronous side has: the keeper's own start, the state shared with it, and the
# ports, which are not usable without await.
_ASYNC_ONLY = {
    (outlive.Host, "start"),
    (outlive.Host, "driver"),
    (outlive.Host, "expect_session"),
    (outlive.Lease, "tenure"),
}


def _public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("asynchronous", "synchronous"), _PAIRS)
def test_both_sides_have_the_same_names(asynchronous, synchronous):
    expected = {n for n in _public(asynchronous) if (asynchronous, n) not in _ASYNC_ONLY}
    assert expected <= _public(synchronous) | {"leases", "options"}
    assert _public(synchronous) <= expected | {"leases", "options"}


@pytest.mark.parametrize(("asynchronous", "synchronous"), _PAIRS)
def test_both_sides_have_the_same_parameters(asynchronous, synchronous):
    compared = 0
    for name in _public(asynchronous):
        method = inspect.getattr_static(asynchronous, name)
        if (asynchronous, name) in _ASYNC_ONLY or not inspect.isfunction(method):
            continue
        ours = inspect.signature(method).parameters
        theirs = inspect.signature(inspect.getattr_static(synchronous, name)).parameters
        assert [(p.name, p.kind, p.default) for p in ours.values()] == [
            (p.name, p.kind, p.default) for p in theirs.values()
        ], name
        compared += 1
    assert compared >= (1 if asynchronous is outlive.Hosts else 3)


def test_charts_run_without_await():
    kept = []
    with blocking.Orchestrator(pool_size=2) as hub:
        with hub.group("orders") as group:
            machine = group.start(TOGGLE, id="light")
            unsubscribe = machine.subscribe(lambda seen: kept.append(seen.value))
            machine.send("FLIP")
            assert machine.wait_for(lambda seen: seen.matches("on"), timeout=5).value == "on"
            unsubscribe()
            assert group.get("light").id == machine.id
            assert machine.request("FLIP").value == "off"
            assert kept == ["on"]
            assert group.broadcast("FLIP") == 1
            saved = machine.settled() and machine.persist()
            again = group.restore(TOGGLE, saved, id="again").start()
            assert (again.snapshot.value, again.running) == ("on", True)
            machine.stop()
            with pytest.raises(outlive.UnknownTarget):
                machine.send("FLIP")
            assert hub.metrics().active_machines == 1
        assert group.machines == ()
        assert not again.running


def test_connect_has_the_same_parameters():
    ours = inspect.signature(outlive.connect).parameters
    theirs = inspect.signature(blocking.connect).parameters
    assert list(ours) == list(theirs)


def test_the_same_life_without_await():
    with blocking.connect("memory://sync", name="a") as host:
        lease = host.leases.try_acquire("k", ttl=5)
        assert lease is not None
        assert lease.is_held
        assert lease.token == 1
        lease.renew(state=[1])
        assert lease.state == [1]
        lease.release()
        with host.leases.hold("k") as held:
            assert held.token == 2
            assert [info.key for info in host.leases.list()] == ["k"]
        with host.leases.semaphore("s", limit=2), host.leases.hold_all(["x", "y"]) as both:
            assert len(both) == 2
            assert host.leases.owned == 3
        assert [entry.token for entry in host.leases.history("k")] == [2, 1]
        assert host.health().ok
    host.close()
    with pytest.raises(outlive.UsageError, match="closed"):
        host.leases.try_acquire("k")


def test_work_without_await():
    app = outlive.App("sync")

    @app.handler("q")
    def double(number: int) -> int:
        return number * 2

    with blocking.connect("memory://sync-work", name="a", app=app) as host:
        runner = threading.Thread(target=host.run)
        runner.start()
        assert host.work.enqueue(double, 21).result(timeout=5) == 42
        job = host.work.enqueue("other", {"a": 1}, unique_key="k")
        (claim,) = host.work.claim("other", wait=1)
        assert (claim.payload, claim.attempt, claim.losses) == ({"a": 1}, 1, 0)
        assert claim.token == claim.job.token
        claim.extend(progress=1)
        assert job.status().progress == 1
        claim.fail("no", retry_in=60)
        assert not claim.is_held
        with pytest.raises(outlive.ClaimLost):
            claim.check()
        assert host.work.retry(job.id) == 1
        (claim,) = host.work.claim(job=job.id)
        claim.release()
        assert job.cancel()
        assert host.work.purge(job.id) == 1
        assert [queue.name for queue in host.work.queues()] == ["q"]
        assert len(host.work.enqueue_many("many", range(3))) == host.work.count(queue="many") == 3
        host.work.pause("many")
        assert host.work.claim("many") == []
    runner.join(10)
    assert not runner.is_alive()


def test_flows_without_await():
    app = outlive.App("sync")

    @app.step
    def double(number: int) -> int:
        return number * 2

    @app.flow
    async def approve(number: int) -> int:
        @outlive.on_query("number")
        def asked() -> int:
            return number

        if not await outlive.wait_signal("approved", bool):
            raise ValueError("refused")
        return await double(number)

    with blocking.connect("memory://sync-flows", name="a", app=app) as host:
        runner = threading.Thread(target=host.run)
        runner.start()
        handle = host.flows.start(approve, 21, id="f-1", attributes={"team": "a"})
        assert handle.entry == "created"
        assert handle.id == "f-1"
        assert handle.query("number") == 21
        handle.signal("approved", True)
        assert handle.result(timeout=10) == 42
        assert handle.history()[-1].version == handle.status().version
        forked = handle.fork(at=0, id="f-2")
        forked.signal("approved", False)
        with pytest.raises(outlive.FlowFailed):
            host.flows.get("f-2", approve).result(timeout=10)
        many = host.flows.start_many(approve, [1, 2])
        for each in many:
            each.suspend()
            each.resume()
            each.terminate("enough")
        assert [info.id for info in host.flows.list(attributes={"team": "a"})] == ["f-1", "f-2"]
        assert host.flows.count()[outlive.InstanceStatus.TERMINATED] == 2
        assert host.flows.purge(status="terminated") == 2
    runner.join(10)
    assert not runner.is_alive()


def test_a_flow_is_started_in_a_transaction_of_the_calling_thread(tmp_path):
    app = outlive.App("sync")

    @app.flow
    async def greet(name: str) -> str:
        return f"hello {name}"

    file = tmp_path / "store.db"
    with (
        blocking.connect(f"sqlite:///{file}", name="a", app=app) as host,
        closing(sqlite3.connect(file, isolation_level=None)) as tx,
    ):
        runner = threading.Thread(target=host.run)
        runner.start()
        for end in ("ROLLBACK", "COMMIT"):
            tx.execute("BEGIN IMMEDIATE")
            host.flows.start(greet, "ann", id="f", delay=0.01, tx=tx)
            tx.execute(end)
            assert len(host.flows.list()) == (end == "COMMIT")
        assert host.flows.get("f", greet).result(timeout=30) == "hello ann"
    runner.join(10)
    assert not runner.is_alive()


def test_a_block_that_lost_its_lease_ends_with_the_loss():
    with (
        blocking.connect("memory://sync-lost") as host,
        pytest.raises(outlive.LeaseLost),
        host.leases.hold("k", ttl=1) as lease,
    ):
        host.leases.break_lease("k", reason="test")
        with pytest.raises(outlive.LeaseLost):
            lease.renew()


def test_many_threads_take_turns():
    inside, most = 0, 0
    with blocking.connect("memory://threads") as host:

        def body() -> None:
            nonlocal inside, most
            for _ in range(10):
                with host.leases.hold("k"):
                    inside += 1
                    most = max(most, inside)
                    inside -= 1

        threads = [threading.Thread(target=body) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert most == 1


def test_a_leader_runs_in_a_thread_and_ends_when_not_held():
    started = threading.Event()
    with blocking.connect("memory://sync-lead") as host:

        def body(lease: blocking.Lease) -> None:
            started.set()
            while lease.is_held:
                lease.check()

        thread = threading.Thread(
            target=lambda: _quietly(lambda: host.leases.lead("k", body)), daemon=True
        )
        thread.start()
        assert started.wait(5)
        host.leases.break_lease("k", reason="test")


def _quietly(function) -> None:
    try:
        function()
    except BaseException:
        return


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_told_to_connect_again():
    with blocking.connect("memory://forked") as host:
        lease = host.leases.acquire("k")
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                host.leases.try_acquire("x")
            except outlive.UsageError as error:
                os.write(write, f"{error}|{lease.is_held}".encode())
            os._exit(0)
        os.waitpid(pid, 0)
        os.close(write)
        answer = os.read(read, 1000).decode()
        assert "connect again" in answer
        assert answer.endswith("False")
        assert lease.is_held


def test_reentry_by_the_same_thread_is_refused_and_other_threads_wait():
    with blocking.connect("memory://sync-reentry") as host, host.leases.hold("k"):
        with pytest.raises(outlive.AlreadyOwned):
            host.leases.acquire("k")
        outcome = []

        def other() -> None:
            try:
                host.leases.acquire("k", timeout=0.05)
            except outlive.AcquireTimeout as error:
                outcome.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert len(outcome) == 1


def test_schedules_without_await():
    with blocking.connect("memory://sync-schedules") as host:
        made = host.schedules.create("s", "q", {"n": 1}, cron="@daily")
        assert host.schedules.list() == [made] == [host.schedules.get("s")]
        assert host.schedules.pause("s").paused
        assert not host.schedules.resume("s").paused
        assert host.schedules.run_now("s").status().payload == {"n": 1}
        host.schedules.delete("s")
        assert host.schedules.list() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_run_in_order(number):
    app = outlive.App("a")
    before = signal.getsignal(number)

    @app.handler("q")
    def handle(payload: int) -> str:
        os.kill(os.getpid(), number)
        time.sleep(0.1)
        return "ended within the grace"

    with blocking.connect("memory://", app=app, name="a") as host:
        job = host.work.enqueue(handle, 1)
        host.run(grace=10)
        assert job.result(timeout=1) == "ended within the grace"
    assert signal.getsignal(number) is before


def test_a_run_is_stopped_from_another_thread():
    app = outlive.App("a")

    @app.handler("q")
    def handle(payload: int) -> None: ...

    with blocking.connect("memory://", app=app, name="a") as host:
        host.stop()  # nothing runs
        running = threading.Thread(target=host.run)
        running.start()
        host.work.enqueue(handle, 1).result(timeout=5)
        host.stop()
        running.join(5)
        assert not running.is_alive()


def test_a_lease_that_is_dropped_names_the_line_that_acquired_it(caplog):
    with blocking.connect("memory://dropping") as host:
        line = inspect.currentframe().f_lineno
        host.leases.try_acquire("tried")
        host.leases.acquire("acquired")
        host.leases.acquire_all(["all"])
    told = [each.getMessage() for each in caplog.records if "dropped without" in each.message]
    assert len(told) == 3
    for offset, message in enumerate(told, start=1):
        assert f"acquired at {__file__}:{line + offset}, expires" in message
