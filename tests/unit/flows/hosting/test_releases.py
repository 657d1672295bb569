"""Flows that a newer release wrote: never failed, left to its hosts, and in nobody's way."""

from __future__ import annotations

import asyncio
import json
import logging
from itertools import count

import pytest

import outlive
from outlive import App, HistoryTooNew
from outlive.flows.events import Forked, SignalReceived, decode_events
from outlive.flows.rewinding import fork_history
from outlive.model.flow_options import FlowOptions
from outlive.model.instance import (
    Commit,
    HistoryRow,
    InstanceClaimRequest,
    InstanceStatus,
    Message,
    NewInstance,
)
from outlive.model.session import HostSession
from outlive.names import HostId, InstanceId, Token
from outlive.ports.wakeups import Wakeup
from tests.unit.work.conftest import until

FUTURE = '[{"event":"from-the-future","at":1}]'

_numbers = count(1)


def make_app() -> App:
    app = App("releases")

    @app.step
    async def add(number: int) -> int:
        return number + 1

    @app.flow
    async def sum_up(number: int) -> int:
        return await add(number)

    @app.flow
    async def wait() -> int:
        return await outlive.wait_signal("go", int)

    return app


async def newer_session(host):
    session = HostId(f"of-another-release-{next(_numbers)}")
    opened = HostSession(id=session, name="new", ttl_us=60_000_000, metadata="{}")
    await host._driver.hosts.open(opened)
    return session


async def continue_newer(host, name="sum_up", flow="newer", events=FUTURE):
    """A flow that a host of a newer release began, committed and gave up."""
    store, session, id_ = host._driver.instances, await newer_session(host), InstanceId(flow)
    new = NewInstance(id=id_, kind="flow", name=name, input="[1]", request=flow, session=session)
    await store.start([new])
    commit = Commit(
        id=id_, token=Token(1), version=1, commit="c", events=events, due_at_us=1, release=True
    )
    (answer,) = await store.commit([commit])
    assert answer.ok
    return host.flows.get(flow)


def left(caplog):
    return [record for record in caplog.records if "left to hosts" in record.getMessage()]


async def test_what_a_newer_release_wrote_is_given_back_and_not_failed(fleet, caplog):
    app = make_app()
    host, spy = await fleet.spied(app)
    handle = await continue_newer(host)
    await until(lambda: spy.calls["release"] >= 1, 5)
    (record,) = left(caplog)
    assert record.levelno == logging.WARNING
    assert "from-the-future" in record.getMessage()
    assert record.exc_info is None
    status = await handle.status()
    assert status.status is InstanceStatus.RUNNING
    assert "outlive.stuck" not in status.attributes
    # Nobody of that release is there: it comes back, is marked, and held for longer and longer.
    await until(lambda: _stuck(handle), 10)
    assert (await handle.status()).status is InstanceStatus.RUNNING
    assert "HistoryTooNew" in (await handle.status()).attributes["outlive.stuck"]
    assert len(left(caplog)) == 1


async def _stuck(handle):
    return "outlive.stuck" in (await handle.status()).attributes


async def test_one_that_went_on_elsewhere_and_comes_back_is_left_again_and_is_not_stuck(
    fleet, caplog
):
    host, _ = await fleet.spied(make_app())
    handle = await continue_newer(host)
    store, session = host._driver.instances, await newer_session(host)
    for visit in (1, 2, 3):
        await until(lambda visit=visit: len(left(caplog)) == visit, 10)
        (claimed,) = await claim_newer(store, session, f"visit-{visit}")
        commit = Commit(
            id=claimed.id,
            token=claimed.token,
            version=claimed.version + 1,
            commit=f"visit-{visit}",
            events=FUTURE,
            due_at_us=1,
            release=True,
        )
        (answer,) = await store.commit([commit])
        assert answer.ok
    assert not await _stuck(handle)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    # Nobody of that release comes any more.
    await until(lambda: _stuck(handle), 20)
    assert len(left(caplog)) == 4


async def test_what_another_old_host_says_of_it_is_not_that_it_went_on(fleet, caplog):
    """Two old releases do not know two things; each would overwrite what the other says."""
    host, _ = await fleet.spied(make_app())
    handle = await continue_newer(host)
    await until(lambda: _stuck(handle), 20)
    store, session = host._driver.instances, await newer_session(host)
    (claimed,) = await claim_newer(store, session, "other")
    other = {"outlive.stuck": "HistoryTooNew: something else"}
    commit = Commit(
        id=claimed.id,
        token=claimed.token,
        version=claimed.version + 1,
        commit="other",
        events="[]",
        attributes=json.dumps(other),
        due_at_us=1,
        release=True,
    )
    (answer,) = await store.commit([commit])
    assert answer.ok
    tried = len(held(caplog))
    await until(lambda: len(held(caplog)) > tried, 20)
    assert len(left(caplog)) == 1
    assert (await handle.status()).attributes == other
    assert len(await store.history(InstanceId("newer"), after=0, limit=10)) == 3


async def test_what_its_host_does_with_it_is_not_that_it_went_on_elsewhere(fleet, caplog):
    """A letter is not understood here; others are, and are read each time the flow is claimed."""
    app = App("collecting")

    @app.flow
    async def collect() -> list[int]:
        return [await outlive.wait_signal("go", int) for _ in range(100)]

    host, _ = await fleet.spied(app)
    handle = await host.flows.start(collect, id="c")
    store = host._driver.instances
    await store.send([Message(InstanceId("c"), "m", "postcard", "", "1")])
    for number in range(1, 4):
        await until(lambda number=number: len(left(caplog)) + len(held(caplog)) >= number, 20)
        await handle.signal("go", number)
    await until(lambda: _stuck(handle), 20)
    assert len(left(caplog)) == 1
    # The mark is there again though what was read had taken it away.
    tried = len(held(caplog))
    await handle.signal("go", 4)
    await until(lambda: len(held(caplog)) > tried, 20)
    await until(lambda: _stuck(handle), 20)


def held(caplog):
    return [record for record in caplog.records if "cannot go on" in record.getMessage()]


async def claim_newer(store, session, request):
    """Claim it as soon as it is given back, before its host asks for it again."""
    while True:
        claimed = await store.claim(
            InstanceClaimRequest(
                session=session,
                worker="new",
                request=request,
                kind="flow",
                names=("sum_up",),
                limit=1,
            )
        )
        if claimed.instances:
            return claimed.instances
        await asyncio.sleep(0.01)


async def test_while_it_is_left_to_others_its_host_does_not_ask_for_it(fleet):
    """Every other host is rung, also one that left no note in the store."""
    app = make_app()
    one, spy = await fleet.spied(app, "one")
    yielding = one._desk.host.home.yielding
    asked: list[tuple[set[str], frozenset[str]]] = []
    spy.before["claim"] = lambda request: asked.append((set(request.names), yielding.names))
    rung: list[str] = []
    other = await fleet.host("other")
    other._driver.wakeups.subscribe(lambda wakeup: rung.append(wakeup.topic))
    await continue_newer(one)
    await until(lambda: "instances/flow/sum_up" in rung, 5)
    assert yielding.names == {"sum_up"}
    await one.flows.start("wait", id="w")
    await other._driver.wakeups.ring(Wakeup("instances/flow/sum_up"))
    await other._driver.wakeups.ring(Wakeup("instances/flow/wait"))
    await until(lambda: bool(asked) and asked[-1][1], 5)
    record = await one._driver.instances.get(InstanceId("newer"))
    assert record.owner is None
    await until(lambda: not yielding.names, 5)
    assert any(away for _, away in asked)
    assert not any(names & away for names, away in asked)


async def test_flows_of_the_same_name_are_not_held_up(fleet):
    app = make_app()
    host, _ = await fleet.spied(app)
    for number in range(20):
        await continue_newer(host, flow=f"newer-{number}")
    waiting = [
        asyncio.ensure_future((await host.flows.start(app.flows["sum_up"], n)).result(timeout=20))
        for n in range(20)
    ]
    assert await asyncio.gather(*waiting) == list(range(1, 21))


async def test_a_letter_of_a_newer_release_stays_in_the_mailbox(fleet, caplog):
    app = make_app()
    host, _ = await fleet.spied(app, flows=FlowOptions(park_grace=60))
    handle = await host.flows.start(app.flows["wait"], id="w")
    store = host._driver.instances
    await store.send([Message(InstanceId("w"), "m", "postcard", "", "1")])
    await until(lambda: bool(left(caplog)), 5)
    assert "postcard" in left(caplog)[0].getMessage()
    assert [letter.kind for letter in await store.letters(InstanceId("w"), after=0, limit=9)] == [
        "postcard"
    ]
    # What this release understands is not kept from it.
    await handle.signal("go", 7)
    assert await handle.result(timeout=20) == 7


async def test_who_looks_at_it_is_told_what_to_do(fleet):
    app = make_app()
    host = await fleet.host("looker", app=app)
    handle = await continue_newer(host)
    for look in (handle.history, lambda: handle.fork(at=1)):
        with pytest.raises(HistoryTooNew, match="install that release here"):
            await look()


def test_a_copy_keeps_fields_that_this_release_does_not_know():
    known = '{"event":"signal","at":1,"name":"n","id":"i","payload":1}'
    more = known.replace("}", ',"colour":"blue"}')
    rows = [HistoryRow(1, Token(1), None, 0, f"[{more}]")]
    assert decode_events(rows[0].events) == decode_events(f"[{known}]")
    assert isinstance(decode_events(rows[0].events)[0], SignalReceived)
    copied = fork_history(rows, Forked(at=2, id="f", version=1))
    assert copied[0] == rows[0].events
    assert isinstance(decode_events(copied[1])[0], Forked)
