"""Claims that nobody has: found by any server, and never while somebody may have them."""

from __future__ import annotations

import asyncio

import pytest

from outlive.model.bearer import Scope
from outlive.names import HostId, JobId, Token
from outlive.server import spaces
from outlive.server.spaces import Handed
from outlive.testing import ManualClock
from tests.server.api import Api, application, make_token, open_memory

W = {"worker_id": "w1", "queues": ["mail"], "ttl": 30, "session": "s1"}


@pytest.fixture
async def clock():
    return ManualClock()


@pytest.fixture
async def shop(store, clock):
    driver = await open_memory(store, "shop", clock)
    yield driver
    await driver.close()


@pytest.fixture
async def fleet(shop, clock):
    """Two servers on one store, whose time stands still."""
    _, token = await make_token(shop, "shop", *Scope)
    apps = [application({"shop": shop}, clock) for _ in range(2)]
    yield [Api(app, token) for app in apps]
    for app in apps:
        app.close()


async def fill(api: Api, count: int) -> None:
    got = await api.post("/queues/mail/items", [{"payload": n} for n in range(count)])
    assert got.status == 200


async def take(api: Api, **more):
    got = await api.post("/worker/next", {**W, **more})
    return got.document if got.status == 200 else None


async def beat(api: Api, *claims, **more):
    body = {"worker_id": "w1", "session": "s1", "claims": [*claims], "complete": True, **more}
    got = await api.post("/worker/heartbeat", body)
    assert got.status == 200
    return got.document


def named(item) -> dict:
    return {"claim_id": item["claim_id"]}


async def test_an_item_that_another_server_gave_to_nobody_goes_back(fleet, clock):
    one, two = fleet
    await fill(one, 2)
    kept = await take(two)
    # Its reply is lost, and so is the link to the server that gave it.
    lost = await take(one, request_id="r1")
    for _ in range(5):
        clock.advance(10)
        assert await take(two, queues=["mail"], item="none") is None
        assert (await beat(two, named(kept)))["released"] == []
    clock.advance(10)
    assert (await beat(two, named(kept)))["released"] == [lost["id"]]
    assert (await take(two, request_id="r2"))["id"] == lost["id"]


async def test_a_claim_that_is_named_anywhere_in_time_is_never_given_back(fleet, clock):
    one, two = fleet
    await fill(one, 1)
    kept = await take(one)
    await take(two)
    for _ in range(4):
        # As long as its reply is on its way, and at the other server.
        clock.advance(29)
        await beat(two)
        clock.advance(1)
        assert (await beat(two, named(kept)))["released"] == []
    assert (await beat(one, named(kept)))["claims"][0]["state"] == "ok"


async def test_a_heartbeat_of_one_who_hung_up_gives_nothing_back(fleet, clock, shop):
    one, _ = fleet
    await fill(one, 1)
    item = await take(one)
    clock.advance(20)
    await beat(one, complete=False)
    clock.advance(11)
    gone = asyncio.Event()
    gone.set()
    body = b'{"worker_id": "w1", "session": "s1", "complete": true}'
    got = await one.send("POST", "/worker/heartbeat", body, hang_up=gone)
    assert got.document["released"] == []
    assert (await shop.jobs.get(item["id"])).state == "claimed"
    assert (await beat(one))["released"] == [item["id"]]


async def test_only_what_really_went_back_is_told(fleet, clock):
    one, two = fleet
    await fill(one, 2)
    done, lost = await take(one), await take(one)
    # At a server that knows nothing of what the first one doubts.
    assert (await two.post("/worker/complete", named(done))).status == 200
    clock.advance(20)
    await beat(one, complete=False)
    clock.advance(11)
    assert (await beat(one))["released"] == [lost["id"]]


async def test_who_hung_up_takes_nothing_however_it_asked(fleet, shop):
    one, _ = fleet
    gone = asyncio.Event()
    body = b'{"worker_id": "w1", "queues": ["mail"], "wait": 30, "request_id": "r1"}'
    waiting = asyncio.create_task(one.send("POST", "/worker/next", body, hang_up=gone))
    await asyncio.sleep(0.05)
    # Both in one turn: the bell rings for one who has left.
    gone.set()
    await fill(one, 1)
    async with asyncio.timeout(5):
        assert (await waiting).status == 204
    assert (await take(one))["payload"] == 0


def test_sessions_that_are_forgotten_are_not_looked_for(monkeypatch):
    monkeypatch.setattr(spaces, "_ASKED_MAX", 2)
    clock = ManualClock()
    given = Handed(clock)
    for session in ("a", "b", "a", "c"):
        given.asked(HostId(session), ("mail",))
    clock.advance(30)
    assert [given.to_look(HostId(each), 30) for each in "abc"] == [("mail",), (), ("mail",)]
    assert given.to_look(HostId("a"), 30) == ()
    given.asked(HostId("a"), ("post",))
    clock.advance(30)
    assert given.to_look(HostId("a"), 30) == ("post",)


def test_a_newer_claim_of_the_same_item_is_in_doubt_from_its_own_time():
    clock = ManualClock()
    given = Handed(clock)
    session, job = HostId("a"), JobId("j")
    given.found(session, job, Token(1))
    clock.advance(20)
    given.found(session, job, Token(1))
    clock.advance(10)
    assert given.lost(session, 30) == [(job, Token(1))]
    given.found(session, job, Token(2))
    assert given.lost(session, 30) == []
