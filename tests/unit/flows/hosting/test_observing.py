"""What is measured and told of flows, on which loops they run, and what nobody must see."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

import outlive
from outlive import App, PrometheusTelemetry, Retry, blocking
from outlive.errors import FlowFailed, OutcomeUnknown, UsageError
from outlive.flows import asking
from outlive.flows.bell import claimable
from outlive.flows.store_clock import StoreClock
from outlive.model.instance import Commit
from outlive.testing import ManualClock
from tests.unit.work.conftest import until

pytestmark = pytest.mark.whitebox


async def test_metrics_tell_what_became_of_flows_without_naming_them(fleet):
    app, registry = App("a"), CollectorRegistry()

    @app.step(retry=Retry(max_attempts=2, first=0.01))
    async def flaky() -> int:
        if outlive.current().attempt == 1:
            raise ValueError("again")
        return 1

    @app.flow
    async def flow() -> int:
        await asyncio.sleep(0.01)
        return await flaky()

    host, _ = await fleet.run(app, telemetry=PrometheusTelemetry(registry))
    handle = await host.flows.start(flow, id="a-secret-id")
    assert await handle.result(timeout=5) == 1

    def sample(name, **labels):
        return registry.get_sample_value(name, labels)

    assert sample("outlive_flows_total", event="started") == 1
    assert sample("outlive_flows_ended_total", flow="flow", outcome="completed") == 1
    assert sample("outlive_flows_active") == 0
    assert sample("outlive_step_run_seconds_count", step="flaky", outcome="retried") == 1
    assert sample("outlive_step_run_seconds_count", step="flaky", outcome="completed") == 1
    assert sample("outlive_flow_timer_lag_seconds_count") >= 1
    assert sample("outlive_flow_activation_seconds_count") >= 3
    values = [
        value
        for metric in registry.collect()
        for each in metric.samples
        for value in each.labels.values()
    ]
    assert "a-secret-id" not in values


def _counter(registry):
    def count(event):
        return registry.get_sample_value("outlive_flows_total", {"event": event})

    return count


async def test_children_are_counted_as_started_once(fleet):
    app, registry = App("a"), CollectorRegistry()
    count = _counter(registry)

    @app.step
    async def step() -> None:
        pass

    @app.flow
    async def child() -> None:
        await step()

    @app.flow
    async def parent() -> None:
        await asyncio.gather(child(), child())
        outlive.start_child(child, id="alone", on_parent_end="abandon")
        outlive.start_child(child, id="there", on_parent_end="abandon")

    host, spy = await fleet.spied(app, telemetry=PrometheusTelemetry(registry))
    await (await host.flows.start(child, id="there")).result(timeout=5)
    lost = [OutcomeUnknown("the answer was lost")]

    def lose(_answer):
        if lost:
            raise lost.pop()

    spy.after["commit"] = lose
    await (await host.flows.start(parent, id="p")).result(timeout=10)
    await host.flows.get("alone").result(timeout=5)

    def ended():
        name, labels = "outlive_flows_ended_total", {"outcome": "completed"}
        flows = [{"flow": flow, **labels} for flow in ("child", "parent")]
        return sum(registry.get_sample_value(name, each) or 0 for each in flows)

    await until(lambda: ended() == 5)
    assert not lost
    assert count("started") == 5


def _waiting():
    app, release, begun = App("a"), asyncio.Event(), []

    @app.step
    async def step() -> int:
        begun.append(1)
        await release.wait()
        return 1

    @app.flow
    async def flow() -> int:
        return await step()

    return app, flow, release, begun


def _other(commit):
    return Commit(
        id=commit.id, token=commit.token, version=commit.version, commit="other", events="[]"
    )


async def test_a_commit_is_refused_by_its_token_or_by_its_version(fleet):
    app, flow, release, begun = _waiting()
    registry = CollectorRegistry()
    count = _counter(registry)
    host, spy = await fleet.spied(app, telemetry=PrometheusTelemetry(registry))
    store = host._driver.instances
    await host.flows.start(flow, id="taken")
    await until(lambda: begun)
    spy.before["commit"] = lambda _: store.terminate("taken", outcome="{}")
    release.set()
    await until(lambda: count("fenced"))
    assert (count("fenced"), count("conflict"), count("lost")) == (1, 0, 1)

    begun.clear()
    release.clear()
    spy.before.clear()
    await host.flows.start(flow, id="written")
    await until(lambda: begun)

    async def write_before(commits):
        spy.before.clear()
        (mine,) = commits
        await store.commit([_other(mine)])

    spy.before["commit"] = write_before
    release.set()
    await until(lambda: count("conflict"))
    assert (count("fenced"), count("conflict"), count("lost")) == (1, 1, 2)


async def test_a_flow_that_is_lost_with_its_session_is_counted_once(fleet):
    app, flow, release, begun = _waiting()
    registry = CollectorRegistry()
    count = _counter(registry)
    host, _ = await fleet.run(app, telemetry=PrometheusTelemetry(registry))
    handle = await host.flows.start(flow)
    await until(lambda: begun)
    await host._driver.hosts.close(host._sessions.now.id)
    host._sessions.doubt(host._sessions.now)
    await until(lambda: count("lost"))
    release.set()
    assert await handle.result(timeout=10) == 1
    assert (count("lost"), count("claimed"), count("unknown")) == (1, 1, 0)


async def test_a_ring_that_brought_nothing_is_a_claim_that_was_missed(fleet):
    app, flow, release, _ = _waiting()
    registry = CollectorRegistry()
    count = _counter(registry)
    host, _ = await fleet.run(app, telemetry=PrometheusTelemetry(registry))
    other = await fleet.host("other", app=app)
    release.set()
    # Another host was quicker: the ring leads to nothing.
    await other._desk.wakeups.ring(claimable("flow"))
    await until(lambda: count("missed"))
    assert (count("missed"), count("claimed")) == (1, 0)
    handle = await other.flows.start(flow)
    assert await handle.result(timeout=10) == 1
    assert (count("missed"), count("claimed")) == (1, 1)
    del host


async def test_what_the_code_of_a_flow_leads_to_is_logged_with_its_host(fleet, caplog, monkeypatch):
    monkeypatch.setattr(asking, "EVENTS_WARNED", 0)
    caplog.set_level("INFO")
    app = App("a")

    @app.step(retry=Retry(max_attempts=1))
    async def fail() -> None:
        raise ValueError("never")

    @app.flow
    async def flow() -> None:
        outlive.logger().info("begun")
        outlive.logger("shop.orders").info("begun too")
        async with outlive.saga() as saga:
            saga.add(fail)
            await fail()

    host, _ = await fleet.run(app, name="worker-1")
    with pytest.raises(outlive.FlowFailed):
        await (await host.flows.start(flow, id="f")).result(timeout=5)
    told = [each for each in caplog.records if getattr(each, "flow", None) == "f"]
    assert [each.getMessage().split(":")[0] for each in told if "step" not in vars(each)] == [
        *("flow f of 'flow' started", "begun", "begun too"),
        "flow 'f' (flow) has more than 0 events in its history, and will fail at 50000",
        "could not undo a step in a saga of flow 'f'",
        "flow f of 'flow' failed",
    ]
    assert {each.host for each in told} == {"worker-1"}


async def test_a_copy_that_answers_a_query_is_told_of_with_the_host_that_runs_it(fleet, caplog):
    app, changed = App("a"), App("a")

    @app.step
    async def step() -> None:
        pass

    @app.flow
    async def flow() -> None:
        await step()
        outlive.set_status("waits")
        await outlive.wait_signal("go")

    @changed.flow(name="flow")
    async def shorter() -> None:
        outlive.on_query("one")(lambda: 1)
        await outlive.wait_signal("go")

    host, _ = await fleet.run(app)
    handle = await host.flows.start(flow, id="f")

    async def waits():
        return (await handle.status()).custom == "waits"

    await until(waits)
    looker = await fleet.host("looker", app=changed)
    assert await looker.flows.get("f").query("one") == 1
    (told,) = (each for each in caplog.records if "no longer calls" in each.getMessage())
    assert told.host == "looker"


def test_flows_run_under_uvloop():
    uvloop = pytest.importorskip("uvloop")
    app = App("a")

    @app.step
    async def add(a: int, b: int) -> int:
        await asyncio.sleep(0)
        return a + b

    @app.step
    def double(n: int) -> int:
        return 2 * n

    @app.flow
    async def flow(n: int) -> int:
        sums = await asyncio.gather(*(add(i, 1) for i in range(n)))
        async with asyncio.timeout(5):
            await asyncio.sleep(0.01)
        return await double(sum(sums))

    async def main() -> int:
        async with outlive.connect("memory://uvloop", app=app) as host:
            running = asyncio.create_task(host.run())
            handle = await host.flows.start(flow, 10)
            found = await handle.result(timeout=5)
            host.stop()
            await running
            return found

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == 110


def test_flows_without_await():
    app = App("a")

    @app.flow
    async def flow(n: int) -> int:
        return n + await outlive.wait_signal("more", int)

    with blocking.connect("memory://blocking-flows", app=app) as host:
        handle = host.flows.start(flow, 1, id="f")
        handle.signal("more", 2)
        assert host.flows.get("f", flow).status().status == "pending"
        assert [info.id for info in host.flows.list()] == ["f"]
        handle.terminate("done")
        with pytest.raises(outlive.FlowTerminated):
            handle.result(timeout=5)
        assert host.flows.purge("f") == 1


async def test_a_host_without_flows_has_nothing_to_fence(fleet):
    app, seen = App("a"), []

    @app.step
    async def write() -> None:
        fence = outlive.fence()
        seen.append((fence.key, fence.token))
        fence.check(1)
        with pytest.raises(outlive.Fenced):
            fence.check(0)

    @app.flow
    async def flow() -> None:
        await write()

    host, _ = await fleet.run(app)
    await (await host.flows.start(flow, id="f")).result(timeout=5)
    assert seen == [("f", 1)]
    with pytest.raises(UsageError, match="a handler or a step"):
        outlive.fence()


def test_the_estimate_of_the_stores_clock_is_never_ahead():
    clock = ManualClock()
    store = StoreClock(clock, 0.01)
    assert not store.known
    store.heard(1_000_000)
    clock.advance(10)
    assert store.now_us() == 1_000_000 + 9_900_000
    # A reply that was long under way lowers nothing; a clock that was set back does.
    store.heard(10_000_000)
    assert store.now_us() == 10_900_000
    store.heard(2_000_000)
    assert store.now_us() == 2_000_000
    assert store.wait_s(2_990_000) == pytest.approx(1.0)
    assert store.wait_s(1) == 0.0


async def test_what_fails_is_in_the_log_of_its_host(fleet, caplog):
    app = App("a")

    class Declined(Exception):
        pass

    @app.step(retry=Retry(max_attempts=2, first=0.01), errors=(Declined,))
    async def pay(how: str) -> None:
        raise Declined(how) if how == "expected" else ConnectionError("postgresql://u:canary@h")

    @app.flow
    async def buys(how: str) -> None:
        await pay(how)

    @app.flow
    async def breaks() -> float:
        return 1 / 0

    host, _ = await fleet.run(app)
    caplog.set_level("INFO", logger="outlive")
    for id_, flow, args in (("a", buys, ("lost",)), ("b", buys, ("expected",)), ("c", breaks, ())):
        with pytest.raises(FlowFailed):
            await (await host.flows.start(flow, *args, id=id_)).result(timeout=5)
    told = [
        (r.levelname, r.getMessage().splitlines()[0].replace(Declined.__qualname__, "Declined"))
        for r in caplog.records
        if getattr(r, "flow", None) in {"a", "b", "c"} and "started" not in r.getMessage()
    ]
    lost = "ConnectionError: postgresql://u:***@h"
    assert [level for level, _ in told] == ["WARNING"] * 2 + [
        "ERROR",
        "WARNING",
        "INFO",
        "ERROR",
    ] + ["ERROR"]
    assert told[0][1].startswith("step pay#0 of flow a failed at attempt 1, next attempt in")
    assert told[0][1].endswith(lost)
    assert told[1][1] == f"step pay#0 of flow a failed permanently at attempt 2: {lost}"
    assert told[2][1].startswith("flow a of 'buys' failed: outlive.errors.StepFailed")
    assert told[6][1] == "flow c of 'breaks' failed: ZeroDivisionError: division by zero"
    assert "in breaks" in caplog.text
    assert "canary" not in caplog.text


@pytest.mark.parametrize("options", [{}, {"queue": "elsewhere"}, {"transactional": True}])
async def test_a_result_of_the_wrong_type_is_told_as_such(tmp_path, caplog, options):
    app = App("a")

    @app.step(**options)
    def number() -> int:
        return "none"

    @app.flow
    async def flow() -> int:
        return await number()

    url = f"sqlite:///{tmp_path / 'outlive.db'}"
    async with outlive.connect(url, app=app) as host, host.running():
        with pytest.raises(FlowFailed, match="the result of step number: Expected `int`, got `s"):
            await (await host.flows.start(flow, id="f")).result(timeout=10)
    wrong = "outlive.errors.InvalidPayload: the result of step number: Expected `int`, got `str`"
    (told,) = [r for r in caplog.records if "permanently" in r.getMessage()]
    said = f"step number#0 of flow f failed permanently at attempt 1: {wrong}"
    assert told.getMessage().splitlines()[0] == said
    assert (told.levelname, told.flow, told.step) == ("WARNING", "f", "number#0")
