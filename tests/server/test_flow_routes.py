"""Looking at flows over HTTP: status, history, pages, and waiting for an end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import msgspec
import pytest

from outlive.flows import events
from outlive.flows.info import FlowCommit
from outlive.model.bearer import Scope
from outlive.names import BearerId
from outlive.server import flow_answers, limits
from outlive.server.limits import BEARER_BELIEVED_S
from outlive.testing import ManualClock
from tests.server.api import Api, application, make_token
from tests.server.flow_shop import FLOWS


async def test_a_live_flow_is_202_and_an_ended_one_200(shop):
    flow = await shop.start("checkout", id="order-7", input={"amount": 7}, attributes={"by": "ann"})
    got = await shop.api.get(f"{FLOWS}/{flow}", "showInput")
    assert got.status == 202
    shown = got.document
    assert (shown["id"], shown["name"], shown["status"]) == ("order-7", "checkout", "pending")
    assert (shown["input"], shown["attributes"]) == ({"amount": 7}, {"by": "ann"})
    assert (shown["outcome"], shown["ended_at"], shown["host"]) == (None, None, None)
    assert shown["links"]["terminate"] == f"{FLOWS}/order-7/terminate"
    await shop.run()
    shown = await shop.ended(flow)
    assert (shown["status"], shown["outcome"]) == ("completed", "paid 7")
    assert shown["custom"] == {"seen": "CANARY"}
    assert shown["ended_at"] is not None
    assert "input" not in shown
    assert "history" not in shown


@pytest.mark.parametrize(
    ("query", "there"),
    [
        ("showInput", True),
        ("showInput=true", True),
        ("showInput=1", True),
        ("showInput=false", False),
        ("showInput=0", False),
        ("", False),
    ],
)
async def test_a_flag_without_a_value_is_true(api, query, there):
    await api.post(f"{FLOWS}/start/checkout", {"id": "f"})
    assert ("input" in (await api.get(f"{FLOWS}/f", query)).document) is there


@pytest.mark.parametrize(
    "query", ["showInput=perhaps", "showAll", "showInput&showInput", "wait=x", "historyAfter=-1"]
)
async def test_a_parameter_that_makes_no_sense_is_refused(api, query):
    await api.post(f"{FLOWS}/start/checkout", {"id": "f"})
    got = await api.get(f"{FLOWS}/f", query)
    assert (got.status, got.code) == (400, "invalid-request")


async def test_the_history_says_what_happened_and_shows_results_if_asked(shop):
    await shop.run()
    shop.broken.add("charge")
    flow = await shop.start("checkout", input={"amount": 7})
    plain = (await shop.ended(flow, "showHistory"))["history"]
    events = [event for commit in plain for event in commit["events"]]
    (step,) = [event for event in events if event["event"] == "step-ended"]
    assert (step["step"], step["error"]) == ("charge#0", {"type": "ValueError"})
    assert step["at"].startswith("20")
    assert "CANARY" not in str(plain)
    assert [commit["version"] for commit in plain] == list(range(1, len(plain) + 1))
    whole = (await shop.ended(flow, "showHistory&showHistoryOutput"))["history"]
    (step,) = [e for commit in whole for e in commit["events"] if e["event"] == "step-ended"]
    assert (step["input"], step["error"]["message"]) == ({"amount": 7}, "CANARY no money")


async def test_a_long_history_is_shown_in_parts(shop, monkeypatch):
    monkeypatch.setattr(limits, "PAGE_MAX", 3)
    monkeypatch.setattr(limits, "PAGE_READ", 2)
    await shop.run()
    shop.broken.add("charge")
    flow = await shop.start("checkout")
    for _ in range(4):
        await shop.ended(flow)
        assert (await shop.api.send("POST", f"{FLOWS}/{flow}/retry")).status == 202
    version = (await shop.ended(flow))["version"]
    seen, after = [], 0
    while after is not None:
        page = await shop.ended(flow, f"showHistory&historyAfter={after}")
        seen += [commit["version"] for commit in page["history"]]
        after = page["next_history_after"]
    assert seen == list(range(1, version + 1))
    assert version > 4


async def test_who_may_not_read_payloads_sees_nothing_that_users_wrote(shop):
    await shop.run()
    secret = {"order": "CANARY"}
    flow = await shop.start("approval", input=secret, attributes={"customer": "CANARY"})
    body = {"payload": "CANARY"}
    assert (await shop.api.post(f"{FLOWS}/{flow}/raiseEvent/decided", body)).status == 202
    await shop.ended(flow)
    checked_out = await shop.start("checkout")
    await shop.ended(checked_out)
    cancelled = await shop.start("approval", input=secret)
    await shop.api.send("POST", f"{FLOWS}/{cancelled}/cancel", query="reason=CANARY")
    await shop.ended(cancelled)
    query = "showInput&showHistory&showHistoryOutput"
    reader, admin = await shop.may(Scope.READ), await shop.may(Scope.ADMIN)
    for caller in (reader, admin):
        for id_ in (flow, checked_out, cancelled):
            got = await caller.get(f"{FLOWS}/{id_}", query)
            assert got.status == 200
            assert b"CANARY" not in got.body
            assert got.document["history"]
            assert not {"input", "outcome", "custom", "attributes"} & set(got.document)
        got = await caller.get(FLOWS, "showInput")
        assert len(got.document["flows"]) == 3
        assert b"CANARY" not in got.body
        got = await caller.get(FLOWS, "attribute=customer=CANARY")
        assert (got.status, got.code) == (403, "forbidden")
    assert b"CANARY" in (await shop.api.get(f"{FLOWS}/{flow}", query)).body


async def test_flows_are_found_by_name_status_prefix_and_attributes(shop):
    await shop.start("checkout", id="a-1", attributes={"by": "ann", "tries": 3, "vip": True})
    await shop.start("checkout", id="a-2", attributes={"by": "bob", "tries": 4, "zip": "01"})
    await shop.start("approval", id="b-1", input={"order": "o"}, attributes={"by": "ann"})
    await shop.api.send("POST", f"{FLOWS}/a-2/terminate")

    async def found(query: str) -> list[str]:
        got = await shop.api.get(FLOWS, query)
        assert got.status == 200, got.body
        return [flow["id"] for flow in got.document["flows"]]

    assert await found("") == ["a-1", "a-2", "b-1"]
    assert await found("name=checkout") == ["a-1", "a-2"]
    assert await found("prefix=b-") == ["b-1"]
    assert await found("prefix=%25") == []
    assert await found("prefix=_-") == []
    assert await found("status=terminated") == ["a-2"]
    assert await found("status=terminated&status=pending") == ["a-1", "a-2", "b-1"]
    assert await found("attribute=by=ann") == ["a-1", "b-1"]
    assert await found("attribute=by=ann&attribute=tries=3") == ["a-1"]
    assert await found("attribute=vip=true") == ["a-1"]
    assert await found('attribute=tries="3"') == []
    assert await found("attribute=zip=01") == ["a-2"]
    assert await found("attribute=by=") == []
    for odd in ("[" * 1000, "1e999", "null", "{}", '"', "%F0%9F", "NaN"):
        assert await found(f"attribute=by={odd}") == []
    for wrong in ("status=lost", "limit=0", "limit=501", "attribute=by", "colour=red"):
        assert (await shop.api.get(FLOWS, wrong)).status == 400
    assert (await shop.api.get(FLOWS, "after=never-was")).status == 404


async def test_flows_that_are_stuck_are_found(shop):
    await shop.start("checkout", id="fine", attributes={"by": "ann"})
    await shop.start("checkout", id="stuck", attributes={"outlive.stuck": "NonDeterminism: CANARY"})
    reader = await shop.may(Scope.READ)
    got = await reader.get(FLOWS, "stuck=true")
    assert [flow["id"] for flow in got.document["flows"]] == ["stuck"]
    assert b"CANARY" not in got.body
    ended = await reader.get(FLOWS, "stuck=true&status=failed")
    assert (ended.status, ended.document["flows"]) == (200, [])


async def test_pages_of_flows_join_without_gaps(shop):
    for number in range(23):
        await shop.start("checkout", id=f"f/{number:02}#")
    seen, query = [], "limit=10"
    while True:
        page = (await shop.api.get(FLOWS, query)).document
        assert len(page["flows"]) <= 10
        seen += [flow["id"] for flow in page["flows"]]
        if page["next_after"] is None:
            break
        query = f"limit=10&after={page['next_after'].replace('#', '%23')}"
    assert seen == [f"f/{number:02}#" for number in range(23)]


async def test_a_page_ends_early_when_it_is_large(shop, monkeypatch):
    monkeypatch.setattr(limits, "PAGE_BYTES_MAX", 50_000)
    for number in range(20):
        await shop.start("checkout", id=f"f-{number:02}", input={"x": "x" * 10_000})
    page = (await shop.api.get(FLOWS, "showInput&limit=20")).document
    assert 5 <= len(page["flows"]) <= 8
    assert page["next_after"] == page["flows"][-1]["id"]
    assert len((await shop.api.get(FLOWS, "limit=20")).document["flows"]) == 20


async def test_a_waiting_request_learns_of_the_end_at_once(shop):
    await shop.run()
    flow = await shop.start("approval", input={"order": "o"})
    waiting = asyncio.create_task(shop.api.get(f"{FLOWS}/{flow}", "wait=50"))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await shop.api.post(f"{FLOWS}/{flow}/raiseEvent/decided", {"payload": "yes"})
    got = await asyncio.wait_for(waiting, 30)
    assert (got.status, got.document["outcome"]) == (200, "o: yes")


async def test_who_waits_in_vain_is_told_that_it_goes_on(shop):
    flow = await shop.start("checkout")
    got = await shop.api.get(f"{FLOWS}/{flow}", "wait=0.05")
    assert (got.status, got.document["status"]) == (202, "pending")
    assert (await shop.api.get(f"{FLOWS}/none", "wait=5")).status == 404


async def test_a_server_that_stops_lets_those_go_who_wait(shop):
    flow = await shop.start("checkout")
    waiting = asyncio.create_task(shop.api.get(f"{FLOWS}/{flow}", "wait=50"))
    await asyncio.sleep(0.1)
    shop.api.app.close()
    assert (await asyncio.wait_for(waiting, 30)).status == 202


async def test_who_hangs_up_waits_no_more(shop):
    flow = await shop.start("checkout")
    gone = asyncio.Event()
    waiting = asyncio.create_task(
        shop.api.send("GET", f"{FLOWS}/{flow}", query="wait=50", hang_up=gone)
    )
    await asyncio.sleep(0.1)
    gone.set()
    await asyncio.wait_for(waiting, 30)


async def test_a_token_that_is_revoked_while_it_waits_sees_nothing(drivers, hosts):
    clock = ManualClock()
    app = application(drivers, clock, flows={"shop": hosts["shop"].flows})
    id_, token = await make_token(drivers["shop"], "shop", Scope.READ)
    await hosts["shop"].flows.start("checkout", id="f")
    waiting = asyncio.create_task(Api(app, token).get(f"{FLOWS}/f", "wait=50"))
    await asyncio.sleep(0.1)
    await drivers["shop"].tokens.revoke(BearerId(id_), actor="test")
    clock.advance(BEARER_BELIEVED_S + 0.01)
    await hosts["shop"].flows.get("f").terminate()
    assert (await asyncio.wait_for(waiting, 30)).status == 401
    app.close()


def test_what_is_shown_of_an_event_is_what_no_user_wrote():
    failure = events.Failure("E", "CANARY", msgspec.Raw(b'"CANARY"'))
    secret = msgspec.Raw(b'"CANARY"')
    every = (
        events.StepEnded(at=1, step="s#0", input=secret, result=secret, error=failure),
        events.StepRetrying(at=1, step="s#0", attempt=1, error=failure, due=2),
        events.SignalReceived(at=1, name="n", id="i", payload=secret),
        events.UpdateReceived(at=1, name="n", id="i", payload=secret),
        events.ChildEnded(at=1, child="c#0", result=secret, error=failure),
        events.CancelRequested(at=1, reason="CANARY"),
        events.StepIntended(at=1, step="s#0", input=secret),
        events.StepSent(at=1, step="s#0", job="j", input=secret),
        events.ChildStarted(at=1, child="c#0", id="i", input=secret),
    )
    commit = FlowCommit(version=1, token=1, host=None, at=datetime.now(UTC), events=every)
    hidden = flow_answers.commit_of(commit, shown=False)
    assert "CANARY" not in str(hidden)
    assert [event["event"] for event in hidden.events] == [
        type(event).__struct_config__.tag for event in every
    ]
    assert str(flow_answers.commit_of(commit, shown=True)).count("CANARY") >= len(every)
