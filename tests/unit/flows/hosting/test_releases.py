"""Flows that a newer release wrote: never failed, given back, and in nobody's way."""

from __future__ import annotations

import asyncio
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
from tests.unit.flows.hosting.conftest import Gate
from tests.unit.work.conftest import until

pytestmark = pytest.mark.whitebox

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


@pytest.fixture(autouse=True)
def tried_again_soon(monkeypatch):
    monkeypatch.setattr("outlive.flows.stuck._FIRST_S", 0.05)


def held(caplog):
    return [record for record in caplog.records if "is stuck" in record.getMessage()]


async def is_stuck(handle):
    return "outlive.stuck" in (await handle.status()).attributes


async def claim_newer(store, session, request):
    """Claim it as soon as it is given back."""
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


async def test_what_a_newer_release_wrote_is_kept_as_it_is_and_not_failed(fleet, caplog):
    host, spy = await fleet.spied(make_app())
    handle = await continue_newer(host)
    await until(lambda: is_stuck(handle), 10)
    (record, *_) = held(caplog)
    assert record.levelno == logging.ERROR
    assert "from-the-future" in record.getMessage()
    assert record.exc_info is None
    status = await handle.status()
    assert status.status is InstanceStatus.RUNNING
    assert "HistoryTooNew" in status.attributes["outlive.stuck"]
    # It is given back, and tried again; that adds nothing to its history.
    await until(lambda: spy.calls["release"] >= 1 and len(held(caplog)) >= 3, 20)
    store = host._driver.instances
    events = [row.events for row in await store.history(InstanceId("newer"), after=0, limit=10)]
    assert events == [FUTURE, "[]"]
    assert (await handle.status()).status is InstanceStatus.RUNNING


async def test_a_host_of_that_release_goes_on_with_it(fleet, caplog):
    host, spy = await fleet.spied(make_app())
    handle = await continue_newer(host)
    await until(lambda: is_stuck(handle), 10)
    # The host asks for it again as soon as it has given it back, and would win nearly always.
    spy.before["claim"] = gate = Gate()
    gate.shut = True
    store, session = host._driver.instances, await newer_session(host)
    (claimed,) = await claim_newer(store, session, "visit")
    # Nothing but the mark stands behind what that release wrote.
    assert (claimed.base, claimed.version) == (0, 2)
    commit = Commit(
        id=claimed.id,
        token=claimed.token,
        version=claimed.version + 1,
        commit="visit",
        events=FUTURE,
        attributes="{}",
        due_at_us=1,
        release=True,
    )
    (answer,) = await store.commit([commit])
    assert answer.ok
    gate.open()
    # Its mark is gone, until a host meets it that does not know what it says.
    tried = len(held(caplog))
    await until(lambda: len(held(caplog)) > tried, 20)
    await until(lambda: is_stuck(handle), 20)


async def test_a_mark_that_was_taken_away_is_there_again(fleet, caplog):
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
        await until(lambda number=number: len(held(caplog)) >= number, 20)
        await until(lambda: is_stuck(handle), 20)
        await handle.signal("go", number)


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
    await until(lambda: bool(held(caplog)), 5)
    assert "postcard" in held(caplog)[0].getMessage()
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
        with pytest.raises(HistoryTooNew, match="upgrade Outlive on this host"):
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
