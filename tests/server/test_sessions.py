"""A worker has one session, and is promised no more time than the store was told."""

from __future__ import annotations

import asyncio

import pytest

from outlive.model.bearer import Scope
from outlive.model.session import HostSession
from outlive.names import HostId
from outlive.testing import ManualClock
from tests.server.api import Api, application, make_token, open_memory

W = {"worker_id": "w1", "queues": ["mail"]}


@pytest.fixture
async def clock():
    return ManualClock()


@pytest.fixture
async def timed(store, clock):
    """A server whose time stands still."""
    driver = await open_memory(store, "shop", clock)
    app = application({"shop": driver}, clock)
    _, token = await make_token(driver, "shop", *Scope)
    yield Api(app, token)
    app.close()
    await driver.close()


@pytest.fixture
def hosts_of(timed, monkeypatch):
    """What the server asked of the store's sessions; each answer takes a turn of the loop."""
    hosts = timed.app.spaces.all[0].driver.hosts
    asked: list[str] = []

    def slow(name, real):
        async def call(*values):
            asked.append(name)
            await asyncio.sleep(0)
            return await real(*values)

        return call

    for name in ("open", "renew"):
        monkeypatch.setattr(hosts, name, slow(name, getattr(hosts, name)))
    return asked


async def taken(api: Api, **more):
    got = await api.post("/worker/next", {**W, **more})
    assert got.status == 200, got
    return got.document


async def fill(api: Api, count: int) -> None:
    got = await api.post("/queues/mail/items", [{"payload": n} for n in range(count)])
    assert got.status == 200


async def beat(api: Api, **more):
    got = await api.post("/worker/heartbeat", {"worker_id": "w1", **more})
    assert got.status == 200
    return got.document


@pytest.mark.parametrize("session", [None, "s1"])
async def test_no_claim_is_promised_for_longer_than_the_store_keeps_it(timed, clock, session):
    await fill(timed, 2)
    first = await taken(timed, ttl=300, session=session)
    claims = [{"claim_id": first["claim_id"]}]
    assert (await beat(timed, ttl=5, session=session, claims=claims))["expires_in"] == 5
    second = await taken(timed, ttl=300, session=session)
    assert second["expires_in"] == 300
    clock.advance(9)
    got = await timed.post("/worker/complete", {"claim_id": second["claim_id"]})
    assert got.status == 200
    renewed = await beat(timed, session=session, claims=claims)
    assert [one["state"] for one in renewed["claims"]] == ["ok"]


@pytest.mark.parametrize("session", [None, "s1"])
async def test_a_heartbeat_without_a_ttl_keeps_that_of_the_session(timed, clock, session):
    await fill(timed, 1)
    claims = [{"claim_id": (await taken(timed, ttl=300, session=session))["claim_id"]}]
    assert (await beat(timed, session=session, claims=claims))["expires_in"] == 300
    assert (await beat(timed, ttl=200, session=session, claims=claims))["expires_in"] == 200
    assert (await beat(timed, session=session))["expires_in"] == 200


async def test_a_server_that_never_saw_the_session_asks_the_store_for_its_ttl(timed, clock):
    await fill(timed, 1)
    (space,) = timed.app.spaces.all
    # More of them, and older ones, than any list shows.
    for number in range(1001):
        older = HostSession(id=HostId(f"h{number}"), name="h", ttl_us=60_000_000, metadata="{}")
        await space.driver.hosts.open(older)
    claims = [{"claim_id": (await taken(timed, ttl=300, session="s1"))["claim_id"]}]
    other = application({"shop": space.driver}, clock)
    beaten = await beat(Api(other, timed.token), session="s1", claims=claims)
    assert beaten["expires_in"] == 300
    other.close()


async def test_requests_that_come_together_share_a_new_session(timed, hosts_of):
    await fill(timed, 4)
    got = await asyncio.gather(*(taken(timed, ttl=5) for _ in range(4)))
    assert hosts_of.count("open") == 1
    (space,) = timed.app.spaces.all
    records = [await space.jobs.get(item["id"]) for item in got]
    assert len({record.session for record in records}) == 1


async def test_requests_that_meet_the_end_of_a_session_share_the_next(timed, clock, hosts_of):
    await timed.post("/worker/next", {**W, "ttl": 5})
    clock.advance(8)
    got = await asyncio.gather(*(timed.post("/worker/next", {**W, "ttl": 5}) for _ in range(6)))
    assert {one.status for one in got} == {204}
    assert hosts_of.count("open") == 2


async def test_all_who_name_a_session_that_ended_are_told_so(timed, clock, hosts_of):
    named = {**W, "ttl": 5, "session": "s1"}
    await timed.post("/worker/next", named)
    clock.advance(8)
    got = await asyncio.gather(*(timed.post("/worker/next", named) for _ in range(4)))
    assert {(one.status, one.code) for one in got} == {(409, "session-ended")}


async def test_no_queue_starves_behind_a_full_one(timed):
    queues = ["a", "b", "c"]
    for queue in queues:
        await timed.post(f"/queues/{queue}/items", [{}] * 40)
    seen = set()
    for _ in range(40):
        item = await taken(timed, queues=queues)
        seen.add(item["queue"])
        await timed.post("/worker/complete", {"claim_id": item["claim_id"]})
    assert seen == set(queues)


async def test_what_came_in_a_reply_that_was_lost_goes_back(timed, clock):
    await fill(timed, 3)
    kept = await taken(timed, ttl=30, session="s1")
    lost = await taken(timed, ttl=30, session="s1")
    claims = [{"claim_id": kept["claim_id"]}]
    clock.advance(20)
    fresh = await taken(timed, ttl=30, session="s1")
    # Its reply may still be on its way.
    beaten = await beat(timed, session="s1", claims=claims, complete=True)
    assert beaten["released"] == []
    clock.advance(15)
    assert (await beat(timed, session="s1", claims=claims))["released"] == []
    beaten = await beat(timed, session="s1", claims=claims, complete=True)
    assert beaten["released"] == [lost["id"]]
    (space,) = timed.app.spaces.all
    states = [(await space.jobs.get(item["id"])).state for item in (kept, lost, fresh)]
    assert states == ["claimed", "ready", "claimed"]
    stale = await timed.post("/worker/complete", {"claim_id": lost["claim_id"]})
    assert (stale.status, stale.code) == (409, "claim-stale")


async def test_what_was_named_once_or_asked_for_again_is_not_lost(timed, clock):
    await fill(timed, 2)
    named = await taken(timed, ttl=30, session="s1")
    again = await taken(timed, ttl=30, session="s1", request_id="r1")
    await beat(timed, session="s1", claims=[{"claim_id": named["claim_id"]}])
    clock.advance(20)
    assert (await taken(timed, ttl=30, session="s1", request_id="r1"))["id"] == again["id"]
    clock.advance(15)
    assert (await beat(timed, session="s1", complete=True))["released"] == []
