"""Every route asks who is there: no token, a wrong scope, a foreign namespace, an old token."""

from __future__ import annotations

import logging
import time

import pytest

from outlive.model.bearer import Scope
from outlive.names import BearerId
from outlive.server.limits import BEARER_BELIEVED_S, Limits
from outlive.testing import ManualClock
from tests.server.api import Api, application, make_token, open_memory

FLOWS = "/runtime/orchestrations"
# What each route needs to be reached at all; the walk fails if a route is missing here.
BODIES = {
    "/worker/next": {"worker_id": "w", "queues": ["mail"]},
    "/worker/complete": {"claim_id": "CLAIM"},
    "/worker/fail": {"claim_id": "CLAIM", "error": "x"},
    "/worker/release": {"claim_id": "CLAIM"},
    "/worker/heartbeat": {"worker_id": "w", "claims": [{"claim_id": "CLAIM"}]},
    "/queues/{queue:path}/items": {"payload": 1},
    FLOWS + "/start/{name:path}": {"input": {"order": 7}},
    FLOWS + "/{flow:path}/raiseEvent/{event:path}": {"payload": 1},
    FLOWS + "/{flow:path}/fork": {"at": 0},
}
NO_BODY = ("cancel", "terminate", "suspend", "resume", "retry")
QUERIES = {"/worker/next": "worker_id=w&queues=mail"}
# What is somebody else's is not found; what has no name in it shows the own namespace, empty.
FOREIGN = {
    "/worker/complete": 404,
    "/worker/fail": 404,
    "/worker/release": 404,
    "/worker/next": 204,
    "/worker/heartbeat": 200,
    "/items/{item:path}": 404,
    "/queues/{queue:path}/items": 404,
    "/queues": 200,
    "/metrics": 200,
    FLOWS: 200,
}
# Stands for each part of a path; it is there in the namespace that is walked through.
NAMES = {"queue": "mail", "name": "checkout", "flow": "order-7", "event": "paid"}


async def prepared(api: Api) -> tuple[str, str]:
    """An item that is there, and the claim of another."""
    item = (await api.post("/queues/mail/items", {"payload": "CANARY"})).document["id"]
    await api.post("/queues/mail/items", {"payload": "CANARY", "priority": 5})
    claimed = (await api.post("/worker/next", BODIES["/worker/next"])).document
    canary = {"id": NAMES["flow"], "input": {"x": "CANARY"}, "attributes": {"x": "CANARY"}}
    assert (await api.post(FLOWS + "/start/checkout", canary)).status == 202
    return item, claimed["claim_id"]


async def walk(api: Api, as_whom: Api, item: str, claim: str):
    """Use every route that asks for a token, as it is meant to be used."""
    for endpoint in api.app.endpoints:
        if endpoint.scope is None:
            continue
        path = endpoint.path.replace(":path}", "}").format(**NAMES, item=item)
        if endpoint.method == "GET":
            got = await as_whom.get(path, QUERIES.get(endpoint.path, ""))
        elif endpoint.method == "DELETE":
            got = await as_whom.delete(path)
        elif endpoint.path.endswith(NO_BODY):
            got = await as_whom.send("POST", path)
        else:
            document = _filled(BODIES[endpoint.path], claim)
            got = await as_whom.post(path, document)
        yield endpoint, got


def _filled(document, claim):
    if isinstance(document, dict):
        return {name: _filled(value, claim) for name, value in document.items()}
    if isinstance(document, list):
        return [_filled(value, claim) for value in document]
    return claim if document == "CLAIM" else document


async def test_without_a_token_every_route_answers_401(api):
    item, claim = await prepared(api)
    walked = 0
    for token in (None, "", "x", "olt_", "olt_" + "A" * 43 + ".shop", "olt_" + "A" * 43 + ".none"):
        async for _, got in walk(api, api.with_token(token), item, claim):
            walked += 1
            assert (got.status, got.code) == (401, "unauthenticated")
            assert got.headers["www-authenticate"].startswith("Bearer")
            assert b"CANARY" not in got.body
    assert walked >= 6 * 20


async def test_a_token_in_the_query_counts_for_nothing(api):
    got = await api.with_token(None).get("/queues", f"token={api.token}&access_token={api.token}")
    assert got.status == 401


async def test_with_a_wrong_scope_every_route_answers_403(api, drivers):
    item, claim = await prepared(api)
    for wrong in Scope:
        if wrong is Scope.ADMIN:
            continue
        _, token = await make_token(drivers["shop"], "shop", wrong)
        refused = 0
        async for endpoint, got in walk(api, api.with_token(token), item, claim):
            if endpoint.scope is wrong:
                assert got.status < 400 or got.status in (404, 409)
            else:
                refused += 1
                assert (got.status, got.code) == (403, "forbidden")
                assert endpoint.scope is not None
                assert endpoint.scope.value in got.document["detail"]
        assert refused >= 4
    _, nothing = await make_token(drivers["shop"], "shop")
    async for _, got in walk(api, api.with_token(nothing), item, claim):
        assert got.status == 403


# What answers with whatever the namespace of the bearer has.
OWN_LISTS = ("next", "postNext", "queues", "hosts")


async def test_a_foreign_namespace_finds_nothing_and_changes_nothing(api, foreign):
    item, claim = await prepared(api)
    before = (await api.get("/queues")).body
    walked = 0
    async for endpoint, got in walk(api, foreign, item, claim):
        walked += 1
        if endpoint.name in ("enqueue", "startFlow"):
            # It adds what has that name in its own namespace.
            assert got.status in (201, 202)
            continue
        # Whatever goes by the id of a flow does not find it.
        expected = FOREIGN.get(endpoint.path, 404)
        if endpoint.path.startswith("/queues/") or endpoint.name in OWN_LISTS:
            # The walk's own enqueue may have made a queue there.
            assert got.status in (expected, 200)
        else:
            assert got.status == expected
        if endpoint.name == "heartbeat":
            assert [beat["state"] for beat in got.document["claims"]] == ["lost"]
        assert b"CANARY" not in got.body
    assert walked >= 20
    flow = await api.get(FLOWS + "/order-7")
    assert (flow.status, flow.document["status"]) == (202, "pending")
    assert (await api.get("/queues")).body.split(b"oldest")[0] == before.split(b"oldest")[0]
    assert (await api.post("/worker/complete", {"claim_id": claim})).status == 200


async def test_a_foreign_queue_and_item_are_not_found(api, foreign):
    item, _ = await prepared(api)
    named = {"/queues/mail/items": "queue 'mail'", f"/items/{item}": f"item {item!r}"}
    for path, what in named.items():
        assert (await api.get(path)).status == 200
        got = await foreign.get(path)
        assert (got.status, got.code) == (404, "not-found")
        assert got.document["detail"] == f"No {what} in this namespace."
    got = await foreign.post("/worker/next", {"worker_id": "w", "queues": ["mail"], "item": item})
    assert got.status == 404


async def test_a_token_whose_namespace_was_changed_is_no_token(api):
    assert api.token is not None
    got = await api.with_token(api.token.replace(".shop", ".other")).get("/queues")
    assert got.status == 401


async def test_an_admin_may_all_but_see_payloads(api, drivers):
    item, _ = await prepared(api)
    _, token = await make_token(drivers["shop"], "shop", Scope.ADMIN)
    admin = api.with_token(token)
    got = await admin.get(f"/items/{item}")
    assert got.status == 200
    assert b"CANARY" not in got.body
    assert "payload" not in got.document
    assert b"CANARY" not in (await admin.get("/queues/mail/items")).body
    assert b"CANARY" in (await api.get(f"/items/{item}")).body
    assert b"CANARY" in (await admin.post("/worker/next", BODIES["/worker/next"])).body


async def test_a_revoked_token_is_refused_within_seconds(drivers):
    clock = ManualClock()
    app = application(drivers, clock)
    token_id, token = await make_token(drivers["shop"], "shop", Scope.READ)
    api = Api(app, token)
    assert (await api.get("/queues")).status == 200
    await drivers["shop"].tokens.revoke(BearerId(token_id), actor="test")
    clock.advance(BEARER_BELIEVED_S + 0.01)
    assert (await api.get("/queues")).status == 401
    app.close()


async def test_an_expired_token_is_refused(request):
    clock = ManualClock()
    driver = await open_memory(request.node.name, "shop", clock)
    app = application({"shop": driver}, clock)
    _, token = await make_token(driver, "shop", Scope.READ, ttl_s=60)
    api = Api(app, token)
    assert (await api.get("/queues")).status == 200
    clock.advance(61)
    assert (await api.get("/queues")).status == 401
    app.close()
    await driver.close()


async def test_an_address_that_fails_too_often_is_slowed_down_and_others_are_not(drivers):
    clock = ManualClock()
    app = application(drivers, clock, bounds=Limits(failures=3, failure_s=0.0))
    _, token = await make_token(drivers["shop"], "shop", Scope.READ)
    good, bad = Api(app, token, "10.0.0.1"), Api(app, "olt_wrong", "10.0.0.1")
    assert (await good.get("/queues")).status == 200
    statuses = [(await bad.get("/queues")).status for _ in range(5)]
    assert statuses == [401, 401, 401, 429, 429]
    # Who is known goes on, even from there; strangers from elsewhere are looked at.
    assert (await good.get("/queues")).status == 200
    assert (await Api(app, "olt_wrong", "10.0.0.2").get("/queues")).status == 401
    clock.advance(10)
    assert (await bad.get("/queues")).status == 401
    app.close()


async def test_a_stranger_does_not_keep_the_workers_behind_the_same_proxy_out(drivers):
    clock = ManualClock()
    app = application(drivers, clock, bounds=Limits(failures=3, failure_s=0.0))
    token_id, token = await make_token(drivers["shop"], "shop", Scope.READ)
    good, bad = Api(app, token, "10.0.0.1"), Api(app, "olt_wrong", "10.0.0.1")
    assert (await good.get("/queues")).status == 200
    for _ in range(20):
        clock.advance(BEARER_BELIEVED_S + 0.01)
        while (await bad.get("/queues")).status != 429:
            pass
        assert (await good.get("/queues")).status == 200
    await drivers["shop"].tokens.revoke(BearerId(token_id), actor="test")
    clock.advance(BEARER_BELIEVED_S + 0.01)
    while (await bad.get("/queues")).status != 429:
        pass
    assert [(await good.get("/queues")).status for _ in range(2)] == [401, 429]
    app.close()


async def test_every_failure_takes_the_same_time(drivers):
    app = application(drivers, bounds=Limits(failure_s=0.05, failures=1000))
    _, old = await make_token(drivers["shop"], "shop", Scope.READ, ttl_s=0.001)
    for token in (None, "x", "olt_" + "A" * 43 + ".none", "olt_" + "A" * 43 + ".shop", old):
        begun = time.monotonic()
        assert (await Api(app, token).get("/queues")).status == 401
        assert time.monotonic() - begun >= 0.05
    app.close()


async def test_a_server_open_to_its_machine_closes_when_the_first_token_is_made(drivers):
    clock = ManualClock()
    app = application(drivers, clock, open_to="shop")
    api = Api(app, None, "127.0.0.1")
    assert (await api.post("/queues/mail/items", {"payload": 1})).status == 201
    got = await api.get("/queues/mail/items")
    assert [item["payload"] for item in got.document["items"]] == [1]
    await make_token(drivers["other"], "other", Scope.READ)
    clock.advance(BEARER_BELIEVED_S + 0.01)
    assert (await api.get("/queues")).status == 401
    app.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ((("host", "evil.example"),), 421),
        ((("host", "127.0.0.1.evil.example:8420"),), 421),
        ((("host", ""),), 400),
        ((("host", "LOCALHOST:1"),), 200),
        ((("host", "[::1]:8420"),), 200),
        ((("origin", "https://evil.example"),), 403),
        ((("origin", "null"),), 403),
        ((("origin", "http://["),), 403),
        ((("origin", "http://127.0.0.1:8420"),), 200),
        ((("sec-fetch-site", "cross-site"),), 403),
        ((("sec-fetch-site", "same-site"),), 403),
        ((("sec-fetch-site", "none"),), 200),
    ],
)
async def test_pages_of_other_sites_get_nowhere(api, headers, status):
    got = await api.get("/queues", headers=headers)
    assert got.status == status
    assert "access-control-allow-origin" not in got.headers


async def test_every_answer_forbids_to_be_kept_or_guessed(api):
    for path in ("/queues", "/healthz", "/openapi.json", "/no/such/path", "/metrics"):
        for caller in (api, api.with_token(None)):
            got = await caller.get(path)
            assert got.headers["cache-control"] == "no-store"
            assert got.headers["x-content-type-options"] == "nosniff"
            assert "server" not in got.headers


async def test_no_secret_reaches_a_log_or_an_answer(api, drivers, caplog):
    caplog.set_level(logging.DEBUG)
    item, claim = await prepared(api)
    _, weak = await make_token(drivers["shop"], "shop")
    bodies = []
    for caller in (api, api.with_token(weak), api.with_token("olt_CANARYTOKEN")):
        async for _, got in walk(api, caller, item, claim):
            bodies.append(got.body)
    secrets = [api.token, weak, "CANARYTOKEN"]
    said = caplog.text + b"".join(bodies).decode() + repr(vars(api.app))
    assert [secret for secret in secrets if secret in said] == []


async def test_a_store_that_fails_is_told_without_its_words(api, drivers):
    await drivers["shop"].close()
    got = await api.get("/queues")
    assert (got.status, got.code) == (503, "store-unavailable")
    assert "memory" not in got.document["detail"]
    got = await api.with_token(None).get("/healthz")
    assert (got.status, got.document) == (503, {"status": "unavailable"})


async def test_a_failed_authentication_is_logged_with_its_address_and_without_the_token(
    api, drivers, caplog
):
    _, token = await make_token(drivers["shop"], "shop", Scope.READ)
    await api.with_token(token).get("/queues")
    assert caplog.records == []
    await api.with_token(token + "x", "10.0.0.7").get("/queues")
    await api.with_token(None, "10.0.0.8").get("/queues")
    unknown, absent = caplog.records
    assert (unknown.levelname, unknown.address) == ("WARNING", "10.0.0.7")
    assert "10.0.0.7" in unknown.getMessage()
    assert "revoked" in unknown.getMessage()
    assert "no token" in absent.getMessage()
    assert token[:8] not in caplog.text


async def test_the_access_log_says_who_asked_for_what_and_how_it_ended(api, drivers, caplog):
    token_id, token = await make_token(drivers["shop"], "shop", Scope.READ)
    await api.with_token(token).get("/queues")
    assert caplog.records == []
    caplog.set_level("INFO", "outlive.server.access")
    await api.with_token(token, "10.0.0.7").get("/items/a b", "secret=1", raw_path=b"/items/a%0Ab")
    await api.get("/healthz")
    found, health = (record.getMessage() for record in caplog.records)
    assert found.startswith(f"10.0.0.7 {token_id} GET /items/a%0Ab 404 in ")
    assert health.startswith("10.0.0.1 - GET /healthz 200 in ")


@pytest.mark.parametrize("given", [(), ("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "evil.example")])
async def test_a_request_has_one_host_header(api, given):
    got = await api.send("GET", "/healthz", headers=[("host", host) for host in given], plain=True)
    assert (got.status, got.code) == (400, "invalid-request")
    assert "exactly one Host header" in got.document["detail"]
