"""An item's life over HTTP: claimed, kept, settled once, and never by a stale claim."""

from __future__ import annotations

import asyncio

import pytest

from outlive.model.bearer import Scope
from outlive.names import HostId
from outlive.runtime.runtime import Runtime
from outlive.server import limits
from outlive.server.application import Application
from outlive.server.limits import Limits
from outlive.testing import ManualClock
from tests.server.api import Api, application, make_token, open_memory

W = {"worker_id": "w1", "queues": ["mail"]}


async def enqueue(api: Api, payload=None, queue: str = "mail", **options) -> str:
    got = await api.post(f"/queues/{queue}/items", {"payload": payload, **options})
    assert got.status == 201, got
    return got.document["id"]


async def claim(api: Api, **more):
    got = await api.post("/worker/next", {**W, **more})
    assert got.status == 200, got
    return got.document


async def state_of(api: Api, item: str) -> str:
    return (await api.get(f"/items/{item}")).document["state"]


async def test_a_claimed_item_comes_with_all_a_worker_needs(api):
    item = await enqueue(api, {"to": "ann"}, headers={"trace": "t1"})
    got = await claim(api)
    assert (got["id"], got["queue"], got["payload"]) == (item, "mail", {"to": "ann"})
    assert (got["token"], got["attempt"], got["headers"]) == (1, 1, {"trace": "t1"})
    assert 0 < got["expires_in"] <= 30
    assert got["deadline"].endswith("Z")


async def test_next_may_be_asked_with_get(api):
    item = await enqueue(api, 1, queue="a/b c")
    got = await api.get("/worker/next", "worker_id=w1&queues=x&queues=a/b%20c&ttl=10")
    assert got.document["id"] == item


async def test_nothing_to_do_is_no_content(api):
    got = await api.post("/worker/next", W)
    assert (got.status, got.body) == (204, b"")


async def test_a_completed_item_keeps_its_result_and_a_repeat_is_fine(api):
    item = await enqueue(api)
    claimed = await claim(api)
    for _ in range(2):
        got = await api.post(
            "/worker/complete", {"claim_id": claimed["claim_id"], "result": {"n": 1}}
        )
        assert (got.status, got.document) == (200, {"state": "ok"})
    shown = (await api.get(f"/items/{item}")).document
    assert (shown["state"], shown["result"]) == ("done", {"n": 1})


async def test_a_failed_item_is_retried_as_the_request_says_or_its_policy(api):
    await enqueue(api, max_attempts=3)
    for expected, more in (("retrying", {}), ("ready", {"retry_in": 0}), ("dead", {})):
        await asyncio.sleep(0)
        got = await api.post("/worker/next", {**W, "wait": 3})
        claimed = got.document
        body = {"claim_id": claimed["claim_id"], "error": "no route", "error_type": "Net", **more}
        assert (await api.post("/worker/fail", body)).status == 200
        shown = (await api.get(f"/items/{claimed['id']}")).document
        assert shown["state"] in (expected, "retrying" if more else expected)
        assert shown["error"] == {"message": "no route", "type": "Net"}
    assert len(shown["tries"]) == 3


async def test_dead_says_that_it_is_of_no_use(api):
    await enqueue(api)
    claimed = await claim(api)
    await api.post("/worker/fail", {"claim_id": claimed["claim_id"], "error": "x", "dead": True})
    assert await state_of(api, claimed["id"]) == "dead"


async def test_a_released_item_is_claimed_again_under_a_greater_token(api):
    await enqueue(api)
    first = await claim(api)
    assert (await api.post("/worker/release", {"claim_id": first["claim_id"]})).status == 200
    second = await claim(api)
    assert (second["id"], second["attempt"]) == (first["id"], 1)
    assert second["token"] > first["token"]


@pytest.mark.parametrize("verb", ["complete", "fail", "release"])
async def test_a_stale_claim_is_refused_and_changes_nothing(api, verb):
    await enqueue(api)
    stale = await claim(api)
    await api.post("/worker/release", {"claim_id": stale["claim_id"]})
    fresh = await claim(api, worker_id="w2")
    more = {"error": "late"} if verb == "fail" else {}
    got = await api.post(f"/worker/{verb}", {"claim_id": stale["claim_id"], **more})
    assert (got.status, got.code) == (409, "claim-stale")
    shown = (await api.get(f"/items/{fresh['id']}")).document
    assert (shown["state"], shown["token"], shown["attempts"]) == ("claimed", fresh["token"], 0)
    done = await api.post("/worker/complete", {"claim_id": fresh["claim_id"]})
    assert done.status == 200


@pytest.mark.parametrize("verb", ["complete", "fail", "release"])
async def test_a_forged_claim_is_not_found(api, verb):
    await enqueue(api)
    claimed = await claim(api)
    body, _, mac = claimed["claim_id"].partition(".")
    other = await claim_of_another_item(api)
    more = {"error": "x"} if verb == "fail" else {}
    for forged in (body, f"{body}.", f"{body}.{mac[:-2]}", f"{body}.{other.partition('.')[2]}"):
        got = await api.post(f"/worker/{verb}", {"claim_id": forged, **more})
        assert (got.status, got.code) == (404, "not-found")
    assert await state_of(api, claimed["id"]) == "claimed"


async def claim_of_another_item(api: Api) -> str:
    await enqueue(api)
    return (await claim(api))["claim_id"]


async def test_another_bearer_of_the_namespace_cannot_use_a_claim(api, drivers):
    await enqueue(api)
    claimed = await claim(api, request_id="r1")
    _, token = await make_token(drivers["shop"], "shop", Scope.WORK)
    other = api.with_token(token)
    got = await other.post("/worker/complete", {"claim_id": claimed["claim_id"]})
    assert got.status == 404
    # Nor have it by asking as the same worker with the same request.
    assert (await other.post("/worker/next", {**W, "request_id": "r1"})).status == 204


async def test_a_repeated_request_gives_the_same_item(api):
    await enqueue(api)
    await enqueue(api)
    first = await claim(api, request_id="r1", session="s1")
    again = await claim(api, request_id="r1", session="s1")
    assert (again["id"], again["token"]) == (first["id"], first["token"])
    other = await claim(api, request_id="r2", session="s1")
    assert other["id"] != first["id"]


async def test_a_targeted_item_is_had_or_not_found(api):
    await enqueue(api)
    wanted = await enqueue(api)
    got = await claim(api, item=wanted)
    assert got["id"] == wanted
    assert (await api.post("/worker/next", {**W, "item": wanted})).status == 204
    other = await enqueue(api)
    for named in ({"item": "never-was"}, {"item": other, "queues": ["post", "parcels"]}):
        got = await api.post("/worker/next", {**W, **named})
        assert (got.status, got.code) == (404, "not-found")
    assert (await claim(api, item=other, queues=["post", "mail"]))["id"] == other


async def test_a_heartbeat_tells_what_became_of_each_claim(api, drivers):
    for _ in range(3):
        await enqueue(api)
    kept, lost, stopped = [await claim(api) for _ in range(3)]
    await api.post("/worker/release", {"claim_id": lost["claim_id"]})
    await drivers["shop"].jobs.cancel([stopped["id"]], reason="not needed")
    claims = [{"claim_id": item["claim_id"]} for item in (kept, lost, stopped)]
    claims[0]["progress"] = {"percent": 40}
    claims.append({"claim_id": "forged"})
    got = await api.post("/worker/heartbeat", {"worker_id": "w1", "claims": claims})
    assert [beat["state"] for beat in got.document["claims"]] == ["ok", "lost", "cancel", "lost"]
    assert 0 < got.document["expires_in"] <= 30
    shown = (await api.get(f"/items/{kept['id']}")).document
    assert shown["progress"] == {"percent": 40}


@pytest.mark.parametrize(
    ("verb", "more", "state"),
    [
        ("complete", {}, "done"),
        ("fail", {"error": "stopped"}, "cancelled"),
        ("release", {}, "cancelled"),
    ],
)
async def test_an_item_that_was_to_be_cancelled_is_settled_as_any_other(
    api, drivers, verb, more, state
):
    await enqueue(api)
    stopped = await claim(api)
    await drivers["shop"].jobs.cancel([stopped["id"]], reason="not needed")
    got = await api.post(f"/worker/{verb}", {"claim_id": stopped["claim_id"], **more})
    assert (got.status, got.document) == (200, {"state": "ok"})
    assert (await api.get(f"/items/{stopped['id']}")).document["state"] == state


async def test_a_waiting_worker_is_woken_by_an_enqueue(api):
    waiting = asyncio.create_task(claim(api, wait=30))
    await asyncio.sleep(0.05)
    item = await enqueue(api)
    async with asyncio.timeout(5):
        assert (await waiting)["id"] == item


async def test_who_hangs_up_leaves_the_item_to_others(api):
    hang_up = asyncio.Event()
    body = b'{"worker_id": "w1", "queues": ["mail"], "wait": 30}'
    waiting = asyncio.create_task(api.send("POST", "/worker/next", body, hang_up=hang_up))
    await asyncio.sleep(0.05)
    hang_up.set()
    item = await enqueue(api)
    async with asyncio.timeout(5):
        assert (await waiting).status == 204
        assert (await claim(api, worker_id="w2", wait=5))["id"] == item


async def test_a_server_that_stops_lets_waiters_go(api):
    waiting = asyncio.create_task(api.post("/worker/next", {**W, "wait": 30}))
    await asyncio.sleep(0.05)
    api.app.close()
    async with asyncio.timeout(5):
        assert (await waiting).status == 204


async def test_a_token_that_is_revoked_while_it_waits_gets_no_item(api, drivers, monkeypatch):
    monkeypatch.setattr(limits, "BEARER_BELIEVED_S", 0.01)
    token_id, token = await make_token(drivers["shop"], "shop", Scope.WORK)
    revoked = api.with_token(token)
    waiting = asyncio.create_task(revoked.post("/worker/next", {**W, "wait": 30}))
    await asyncio.sleep(0.05)
    await drivers["shop"].tokens.revoke(token_id, actor="test")
    item = await enqueue(api)
    async with asyncio.timeout(5):
        assert (await waiting).status == 401
        assert (await claim(api))["id"] == item


async def test_waiters_of_one_token_are_limited(drivers):
    app = application(drivers, bounds=Limits(waiters_per_bearer=2))
    _, token = await make_token(drivers["shop"], "shop", Scope.WORK)
    _, second = await make_token(drivers["shop"], "shop", Scope.WORK)
    api = Api(app, token)
    waiting = [asyncio.create_task(api.post("/worker/next", {**W, "wait": 30})) for _ in range(2)]
    await asyncio.sleep(0.05)
    got = await api.post("/worker/next", {**W, "wait": 30})
    assert (got.status, got.code) == (429, "too-many-requests")
    assert (await api.post("/worker/next", W)).status == 204
    assert (await api.with_token(second).post("/worker/next", {**W, "wait": 0.01})).status == 204
    app.close()
    for got in await asyncio.gather(*waiting):
        assert got.status == 204


class TestOnAClockMovedByHand:
    @pytest.fixture
    async def clock(self):
        return ManualClock()

    @pytest.fixture
    async def shop(self, clock, store):
        driver = await open_memory(store, "shop", clock)
        yield driver
        await driver.close()

    @pytest.fixture
    async def api(self, clock, shop):
        app = Application(
            {"shop": shop}, runtime=Runtime(clock=clock), bounds=Limits(failure_s=0.0)
        )
        _, token = await make_token(shop, "shop", *Scope)
        yield Api(app, token)
        app.close()

    async def reap(self, shop) -> None:
        await shop.hosts.reap(limit=100)
        await shop.jobs.reclaim(limit=100)

    async def test_a_silent_worker_loses_its_claims_after_its_ttl(self, api, shop, clock):
        await enqueue(api)
        claimed = await claim(api, ttl=10)
        clock.advance(9)
        await self.reap(shop)
        assert await state_of(api, claimed["id"]) == "claimed"
        clock.advance(2)
        await self.reap(shop)
        again = await claim(api, worker_id="w2", ttl=10)
        assert (again["id"], again["token"]) == (claimed["id"], claimed["token"] + 1)
        got = await api.post("/worker/complete", {"claim_id": claimed["claim_id"]})
        assert got.status == 409
        beat = {"worker_id": "w1", "ttl": 10, "claims": [{"claim_id": claimed["claim_id"]}]}
        got = await api.post("/worker/heartbeat", beat)
        assert [beat["state"] for beat in got.document["claims"]] == ["lost"]

    async def test_one_heartbeat_keeps_all_claims_of_a_worker(self, api, shop, clock):
        items = [await enqueue(api) for _ in range(3)]
        claimed = [await claim(api, ttl=10) for _ in items]
        for _ in range(4):
            clock.advance(8)
            # Not one of them is named: they hang on the worker's session.
            await api.post("/worker/heartbeat", {"worker_id": "w1", "ttl": 10})
            await self.reap(shop)
        for one in claimed:
            got = await api.post("/worker/complete", {"claim_id": one["claim_id"]})
            assert got.status == 200

    async def test_a_session_that_ended_is_said_so_and_a_new_one_goes_on(self, api, shop, clock):
        await enqueue(api)
        await claim(api, ttl=10, session="s1")
        clock.advance(11)
        got = await api.post("/worker/next", {**W, "ttl": 10, "session": "s1"})
        assert (got.status, got.code) == (409, "session-ended")
        await self.reap(shop)
        got = await api.post("/worker/next", {**W, "ttl": 10, "session": "s1"})
        assert (got.status, got.code) == (409, "session-ended")
        assert (await claim(api, ttl=10, session="s2"))["token"] == 2

    async def test_a_server_chooses_a_new_session_for_who_named_none(self, api, shop, clock):
        await enqueue(api)
        await claim(api, ttl=10)
        clock.advance(11)
        await self.reap(shop)
        assert (await claim(api, ttl=10))["token"] == 2

    async def after_a_day(self, api, clock):
        await enqueue(api)
        claimed = await claim(api, ttl=3600)
        for _ in range(25):
            clock.advance(3500)
            await api.post("/worker/heartbeat", {"worker_id": "w1", "ttl": 3600})
        return claimed

    async def test_a_claim_that_is_named_after_a_day_is_lost_and_goes_to_others(self, api, clock):
        claimed = await self.after_a_day(api, clock)
        claims = [{"claim_id": claimed["claim_id"]}]
        got = await api.post("/worker/heartbeat", {"worker_id": "w1", "claims": claims})
        assert got.document["claims"][0]["state"] == "lost"
        assert (await claim(api, worker_id="w2"))["id"] == claimed["id"]
        got = await api.post("/worker/complete", {"claim_id": claimed["claim_id"]})
        assert (got.status, got.code) == (409, "claim-stale")

    @pytest.mark.parametrize(
        ("verb", "state"), [("complete", "done"), ("fail", "retrying"), ("release", "ready")]
    )
    async def test_a_claim_can_be_settled_however_old_it_is(self, api, clock, verb, state):
        claimed = await self.after_a_day(api, clock)
        more = {"error": "late"} if verb == "fail" else {}
        got = await api.post(f"/worker/{verb}", {"claim_id": claimed["claim_id"], **more})
        assert got.status == 200
        assert await state_of(api, claimed["id"]) == state

    async def test_the_session_is_in_the_store_and_has_no_guessable_id(self, api, shop):
        await enqueue(api)
        await claim(api, session="s1")
        (session,) = await shop.hosts.list(limit=10)
        assert session.name == "w1"
        assert len(session.id) == 32
        assert "s1" not in session.id
        assert session.id != HostId("w1")
