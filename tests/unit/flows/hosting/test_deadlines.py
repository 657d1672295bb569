"""A deadline and what comes close to it: the store's clock decides, however late a host is."""

from __future__ import annotations

import asyncio

import pytest

import outlive
from outlive import App, FlowCancelled
from outlive.errors import OutliveError
from outlive.flows.events import SignalReceived, TimerFired
from outlive.flows.host import FlowHost
from outlive.flows.intake import Intake
from outlive.model.instance import Letter
from outlive.testing import World
from tests.unit.flows.driving import Driven
from tests.unit.flows.hosting.conftest import Spy

pytestmark = pytest.mark.whitebox

DEADLINE_S = 20.0


def approvals() -> App:
    app = App("approvals")

    @app.flow
    async def by_argument() -> list[str]:
        try:
            return [await outlive.wait_signal("ok", str, timeout=DEADLINE_S)]
        except TimeoutError:
            return ["too late"]

    @app.flow
    async def by_block() -> list[str]:
        got: list[str] = []
        try:
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    got.append(await outlive.wait_signal("ok", str))
        except TimeoutError:
            return [*got, "too late"]

    return app


@pytest.mark.parametrize("name", ["by_argument", "by_block"])
@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        ((12.0,), {"by_argument": ["at 12"], "by_block": ["at 12", "too late"]}),
        ((25.0,), {"by_argument": ["too late"], "by_block": ["too late"]}),
        ((12.0, 25.0), {"by_argument": ["at 12"], "by_block": ["at 12", "too late"]}),
        ((25.0, 26.0), {"by_argument": ["too late"], "by_block": ["too late"]}),
    ],
)
def test_a_signal_that_was_sent_behind_the_deadline_is_too_late(name, signals, expected):
    app = approvals()

    async def story(world: World) -> list[str]:
        await world.serve(app, "one")
        async with await world.connect() as host:
            began = world.now
            handle = await host.flows.start(app.flows[name])
            # Nobody runs it from here on, until both have long passed.
            await asyncio.sleep(10)
            world.crash("one")
            for at in signals:
                await asyncio.sleep(at - (world.now - began).total_seconds())
                await handle.signal("ok", f"at {at:g}")
            await asyncio.sleep(40 - (world.now - began).total_seconds())
            await world.serve(app, "two")
            return await handle.result()

    assert World().run(story) == expected[name]


def family(takes_s: float) -> tuple[App, App]:
    """A parent with a deadline for its child, and an app that knows the child alone."""
    app, children = App("family"), App("children")

    @children.flow
    async def child() -> str:
        await asyncio.sleep(takes_s)
        return "in time"

    @app.flow
    async def parent() -> str:
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await child()
        except TimeoutError:
            return "too late"

    return app, children


def test_a_child_that_ended_behind_the_deadline_is_too_late():
    app, children = family(takes_s=30)
    app.flow(name="child")(children.flows["child"].function)

    async def story(world: World) -> str:
        await world.serve(app, "one")
        async with await world.connect() as host:
            handle = await host.flows.start(app.flows["parent"])
            await asyncio.sleep(10)
            world.crash("one")
            # A host that knows the child alone.
            await world.serve(children, "two")
            await asyncio.sleep(50)
            await world.serve(app, "three")
            return await handle.result()

    assert World().run(story) == "too late"


def test_no_deadline_comes_early_because_of_a_clock_that_was_set_back():
    async def code() -> None:
        await outlive.wait_signal("ok", str, timeout=DEADLINE_S)

    driven, intake = Driven(App("a").flow(name="f")(code)), Intake()
    due_us = driven.run.due_at_us
    letter = Letter(1, "m", "signal", "ok", '"x"', due_us + 1)
    # The store's clock showed more when it was sent than it does now.
    assert intake.put_letters(driven.run, [letter], due_us - 1, settled=True)
    assert [type(event) for event, _, _ in intake.waiting] == [SignalReceived]
    later = Intake()
    assert later.put_letters(driven.run, [letter], due_us + 2, settled=True)
    assert [type(event) for event, _, _ in later.waiting] == [TimerFired, SignalReceived]
    unsettled = Intake()
    assert unsettled.put_letters(driven.run, [letter], due_us + 2, settled=False)
    assert [type(event) for event, _, _ in unsettled.waiting] == [SignalReceived]


# -- a host that comes to it late -----------------------------------------------------------------


def busy_approvals() -> App:
    app = App("busy")

    @app.step
    async def work() -> None:
        await asyncio.sleep(30)

    @app.flow
    async def flow() -> str:
        working = asyncio.ensure_future(work())
        try:
            found = await outlive.wait_signal("ok", str, timeout=DEADLINE_S)
        except TimeoutError:
            found = "too late"
        await working
        return found

    return app


@pytest.mark.parametrize(("sent", "expected"), [(10, "at 10"), (22, "too late")])
def test_a_suspended_flow_takes_what_was_sent_before_the_deadline(sent, expected):
    app = busy_approvals()

    async def story(world: World) -> str:
        await world.serve(app, "one")
        async with await world.connect() as host:
            handle = await host.flows.start(app.flows["flow"])
            await asyncio.sleep(5)
            # Its step runs on, and so it stays where it is.
            await handle.suspend()
            await asyncio.sleep(sent - 5)
            await handle.signal("ok", f"at {sent}")
            await asyncio.sleep(25 - sent)
            await handle.resume()
            return await handle.result()

    assert World().run(story) == expected


@pytest.mark.parametrize("name", ["by_argument", "by_block"])
@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (12.0, {"by_argument": ["at 12"], "by_block": ["at 12", "too late"]}),
        (25.0, {"by_argument": ["too late"], "by_block": ["too late"]}),
    ],
)
def test_a_host_that_stood_still_takes_what_was_sent_before_the_deadline(name, sent, expected):
    app = approvals()

    async def story(world: World) -> list[str]:
        await world.serve(app, "one")
        async with await world.connect() as host:
            handle = await host.flows.start(app.flows[name])
            await asyncio.sleep(5)
            world.simulation.hosts["one"].pause(25)
            await asyncio.sleep(sent - 5)
            await handle.signal("ok", f"at {sent:g}")
            return await handle.result()

    assert World().run(story) == expected[name]


def test_a_child_that_ended_while_its_parents_host_stood_still_is_in_time():
    app, children = family(takes_s=10)

    async def story(world: World) -> str:
        await world.serve(app, "one")
        await world.serve(children, "two")
        async with await world.connect() as host:
            handle = await host.flows.start(app.flows["parent"])
            await asyncio.sleep(5)
            world.simulation.hosts["one"].pause(25)
            return await handle.result()

    assert World().run(story) == "in time"


def own_host(world: World, app: App, story):
    """Run ``story`` with a host of its own that runs ``app``, and a spy on its store."""

    async def run():
        async with await world.connect(app) as host:
            host._desk.store = host._desk.claimer._store = spy = Spy(host._driver.instances)
            running = asyncio.ensure_future(host.run())
            await asyncio.sleep(0.1)
            found = await story(host, spy)
            host.stop()
            await running
            return found

    return run()


def test_a_timer_that_is_fired_in_time_costs_no_look_into_the_mailbox():
    app = approvals()

    async def waits(host, spy):
        handles = [await host.flows.start(app.flows[name]) for name in ("by_argument", "by_block")]
        ends = [await handle.result() for handle in handles]
        return ends, spy.calls["letters"]

    ends, looks = World().run(lambda world: own_host(world, app, waits))
    assert ends == [["too late"], ["too late"]]
    assert looks == 0


def test_a_deadline_passes_though_the_mailbox_cannot_be_read():
    app = busy_approvals()

    async def suspended(host, spy):
        handle = await host.flows.start(app.flows["flow"])
        await asyncio.sleep(5)
        await handle.suspend()
        await handle.signal("ok", "unread")

        def unreadable(*_args, **_kwargs):
            raise OutliveError("nobody can read this")

        spy.before["letters"] = unreadable
        await asyncio.sleep(20)
        await handle.resume()
        return await handle.result(), spy.calls["letters"]

    found, looks = World().run(lambda world: own_host(world, app, suspended))
    assert found == "too late"
    assert looks


# -- what else comes in time ----------------------------------------------------------------------


def stoppable() -> App:
    app = App("stoppable")

    @app.step
    async def charge() -> str:
        return "charged"

    @app.step
    async def work() -> None:
        await asyncio.sleep(60)

    @app.flow
    async def flow() -> str:
        stops: list[str] = []
        outlive.on_update("stop")(lambda: stops.append("stopped"))
        # It stays in the memory of its host.
        working = asyncio.ensure_future(work())
        await asyncio.sleep(DEADLINE_S)
        working.cancel()
        return stops[0] if stops else await charge()

    return app


@pytest.mark.parametrize("how", ["cancel", "update"])
def test_a_host_that_stood_still_looks_for_whatever_was_sent_before_a_timer(how, monkeypatch):
    # As if its timers came before the rings that it could not hear.
    on_mail = FlowHost._on_mail

    def later(host: FlowHost, id_: str) -> None:
        asyncio.get_running_loop().call_later(0.05, on_mail, host, id_)

    monkeypatch.setattr(FlowHost, "_on_mail", later)
    app = stoppable()

    async def story(world: World) -> str:
        await world.serve(app, "one")
        async with await world.connect() as host:
            handle = await host.flows.start(app.flows["flow"])
            await asyncio.sleep(5)
            world.simulation.hosts["one"].pause(25)
            await asyncio.sleep(5)
            if how == "update":
                await handle.update("stop")
                return await handle.result()
            await handle.cancel()
            with pytest.raises(FlowCancelled):
                await handle.result()
            return "stopped"

    assert World().run(story) == "stopped"


def test_a_claim_saw_the_mailbox_when_it_was_made_and_not_when_it_was_answered():
    app = App("late")

    @app.flow
    async def flow() -> str:
        await outlive.wait_signal("first")
        try:
            return await outlive.wait_signal("ok", str, timeout=DEADLINE_S)
        except TimeoutError:
            return "too late"

    async def story(world: World) -> str:
        async with await world.connect(app) as host, await world.connect() as other:
            host._desk.store = host._desk.claimer._store = spy = Spy(host._driver.instances)
            handle = await other.flows.start(flow)
            async with host.running():
                await asyncio.sleep(0.1)
                await handle.signal("first")
                # It is parked by now, and a signal that nobody waits for has it claimed.
                await asyncio.sleep(18.8)
                assert handle.id not in host._desk.host.home.lives
                answered, claimed = asyncio.Event(), asyncio.Event()

                async def claim(request):
                    found = await host._driver.instances.claim(request)
                    if found.instances:
                        claimed.set()
                        await answered.wait()
                    return found

                spy.__dict__["claim"] = claim
                await handle.signal("other")
                await claimed.wait()
                await asyncio.sleep(0.5)
                await handle.signal("ok", "in time")
                await asyncio.sleep(1.2)
                answered.set()
                return await handle.result()

    assert World().run(story) == "in time"
