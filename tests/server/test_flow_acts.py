"""Starting, signalling and operating flows over HTTP."""

from __future__ import annotations

from urllib.parse import quote, unquote

import pytest

from outlive.model.bearer import Scope
from outlive.model.instance import MAILBOX_MAX, Message
from outlive.names import InstanceId
from tests.server.api import Api, application, make_token
from tests.server.flow_shop import FLOWS

HOSTILE = [
    "a/b",
    "/a//b/",
    "a/../b",
    "..",
    "a#b",
    "a?b=c",
    "100%",
    "%2F",
    "über/straße \u2603",
    "a b+c&d",
    "'; drop table x; --",
    "terminate",
    "raiseEvent/x",
    "x" * 512,
]


async def test_a_started_flow_is_run_by_a_host_that_has_its_code(shop):
    await shop.run()
    flow = await shop.start("checkout", input={"amount": 7})
    shown = await shop.ended(flow)
    assert (shown["status"], shown["outcome"]) == ("completed", "paid 7")


async def test_the_answer_to_a_start_says_where_the_flow_is_reached(shop):
    got = await shop.api.post(f"{FLOWS}/start/checkout", {"id": "order/7"})
    path = f"{FLOWS}/order%2F7"
    assert (got.status, got.headers["location"]) == (202, path)
    assert got.document["id"] == "order/7"
    assert got.document["links"] == {
        "status": path,
        "signal": f"{path}/raiseEvent/{{event}}",
        "cancel": f"{path}/cancel",
        "terminate": f"{path}/terminate",
        "suspend": f"{path}/suspend",
        "resume": f"{path}/resume",
        "retry": f"{path}/retry",
        "fork": f"{path}/fork",
        "purge": path,
    }


async def test_an_id_starts_one_flow_however_often_it_is_asked_for(shop):
    told = [
        (await shop.api.post(f"{FLOWS}/start/checkout", {"id": "order-7"})).document["entry"]
        for _ in range(3)
    ]
    assert told == ["created", "existing", "existing"]
    page = (await shop.api.get(FLOWS)).document
    assert [flow["id"] for flow in page["flows"]] == ["order-7"]


async def test_an_id_of_another_flow_is_refused(shop):
    await shop.start("checkout", id="order-7")
    got = await shop.api.post(f"{FLOWS}/start/approval", {"id": "order-7"})
    assert (got.status, got.code) == (409, "conflict")


async def test_a_flow_begins_later_if_that_is_wanted(shop):
    delayed = await shop.start("checkout", delay=3600)
    timed = await shop.start("checkout", at="2100-01-01T00:00:00+00:00")
    await shop.run()
    shown = (await shop.api.get(f"{FLOWS}/{timed}")).document
    assert (shown["status"], shown["due_at"][:10]) == ("pending", "2100-01-01")
    assert (await shop.api.get(f"{FLOWS}/{delayed}")).document["status"] == "pending"
    for at, by_delay in (("2100-01-01", False), ("2020-01-01", True)):
        both = await shop.start("checkout", delay=3600, at=f"{at}T00:00:00+00:00")
        shown = (await shop.api.get(f"{FLOWS}/{both}")).document
        assert (shown["status"], shown["due_at"][:10] != at) == ("pending", by_delay)


@pytest.mark.parametrize(
    "wrong",
    [
        {"input": [1]},
        {"input": 1},
        {"at": "2100-01-01T00:00:00"},
        {"delay": -1},
        {"attributes": {"x": [1]}},
        {"attributes": {f"x{n}": 1 for n in range(65)}},
        {"id": ""},
        {"id": "a\nb"},
        {"id": "ü" * 300},
        {"namespace": "other"},
    ],
)
async def test_a_start_that_makes_no_sense_is_refused(api, wrong):
    got = await api.post(f"{FLOWS}/start/checkout", wrong)
    assert (got.status, got.code) == (400, "invalid-request")
    assert (await api.get(FLOWS)).document["flows"] == []


async def test_nothing_is_started_that_no_flow_could_be_called(api):
    got = await api.post(f"{FLOWS}/start/check#out", {})
    assert (got.status, got.code) == (400, "invalid-request")


async def test_a_signal_is_read_once_however_often_it_is_sent(shop):
    await shop.run()
    flow = await shop.start("approval", input={"order": "o7"})
    for _ in range(2):
        got = await shop.api.post(
            f"{FLOWS}/{flow}/raiseEvent/decided", {"payload": "yes", "id": "d1"}
        )
        assert (got.status, got.body) == (202, b"")
    assert (await shop.ended(flow))["outcome"] == "o7: yes"
    got = await shop.api.post(f"{FLOWS}/{flow}/raiseEvent/decided", {"payload": "no"})
    assert (got.status, got.code) == (404, "not-found")


TYPES = [(), (("content-type", "application/json"),), (("content-length", "0"),)]


@pytest.mark.parametrize("headers", TYPES)
async def test_a_start_and_a_signal_without_a_body_have_nothing_to_say(shop, headers):
    await shop.run()
    got = await shop.api.send("POST", f"{FLOWS}/start/patience", headers=headers)
    assert got.status == 202, got.body
    flow = got.document["id"]
    got = await shop.api.send("POST", f"{FLOWS}/{flow}/raiseEvent/enough", headers=headers)
    assert got.status == 202, got.body
    assert (await shop.ended(flow))["outcome"] == "heard None"


@pytest.mark.parametrize("headers", [(), (("content-type", "text/plain"),)])
async def test_a_body_that_is_there_is_json(api, headers):
    for more in ((), (("content-length", "2"),)):
        got = await api.send("POST", f"{FLOWS}/start/x", b"{}", headers=(*headers, *more))
        assert (got.status, got.code) == (415, "unsupported-media-type")
    got = await api.send("POST", f"{FLOWS}/f/fork", headers=headers)
    assert (got.status, got.code) == (415, "unsupported-media-type")


@pytest.mark.parametrize("event", ["decided", "cancel", "terminate", "a/b", "ü#?%"])
async def test_a_signal_may_be_called_what_it_likes(api, event):
    await api.post(f"{FLOWS}/start/approval", {"id": "f/1", "input": {"order": "o"}})
    got = await api.post(f"{FLOWS}/f/1/raiseEvent/{event}", {"payload": "yes"})
    assert got.status == 202
    assert (await api.get(f"{FLOWS}/f/1")).document["status"] == "pending"


async def test_a_mailbox_that_is_full_is_told(api, drivers):
    await api.post(f"{FLOWS}/start/approval", {"id": "f", "input": {"order": "o"}})
    letters = [Message(InstanceId("f"), f"{n}", "signal", "x", "1") for n in range(MAILBOX_MAX)]
    await drivers["shop"].instances.send(letters)
    got = await api.post(f"{FLOWS}/f/raiseEvent/x", {})
    assert (got.status, got.code) == (429, "too-many-requests")


async def test_cancel_reaches_the_code_and_says_why(shop):
    await shop.run()
    flow = await shop.start("approval", input={"order": "o"})
    for _ in range(2):
        got = await shop.api.send("POST", f"{FLOWS}/{flow}/cancel", query="reason=too%20late")
        assert got.status == 202
    shown = await shop.ended(flow)
    assert shown["status"] == "cancelled"
    assert "too late" in shown["outcome"]["message"]


async def test_terminate_ends_a_flow_that_nobody_runs(shop):
    flow = await shop.start("approval", input={"order": "o"})
    got = await shop.api.send("POST", f"{FLOWS}/{flow}/terminate", query="reason=stuck")
    assert got.status == 202
    shown = await shop.ended(flow)
    assert shown["status"] == "terminated"
    assert "stuck" in shown["outcome"]["message"]


async def test_a_suspended_flow_goes_on_when_it_is_resumed(shop):
    flow = await shop.start("checkout")
    for act, status in (("suspend", "suspended"), ("resume", "pending")):
        for _ in range(2):
            assert (await shop.api.send("POST", f"{FLOWS}/{flow}/{act}")).status == 202
        assert (await shop.api.get(f"{FLOWS}/{flow}")).document["status"] == status
    await shop.run()
    assert (await shop.ended(flow))["status"] == "completed"


async def test_a_failed_flow_is_tried_again_from_the_step_that_failed(shop):
    await shop.run()
    shop.broken.add("charge")
    flow = await shop.start("checkout", input={"amount": 7})
    shown = await shop.ended(flow)
    assert (shown["status"], shown["outcome"]["type"]) == (
        "failed",
        "outlive.errors.StepFailed",
    )
    shop.broken.clear()
    assert (await shop.api.send("POST", f"{FLOWS}/{flow}/retry")).status == 202
    assert (await shop.ended(flow))["outcome"] == "paid 7"
    got = await shop.api.send("POST", f"{FLOWS}/{flow}/retry")
    assert (got.status, got.code) == (409, "conflict")


@pytest.mark.parametrize(
    ("act", "said"),
    [
        ("retry", "only a failed, cancelled or terminated flow can be retried."),
        ("suspend", "an ended flow can only be retried, forked or purged."),
        ("resume", "an ended flow can only be retried, forked or purged."),
        ("terminate", "an ended flow can only be retried, forked or purged."),
    ],
)
async def test_what_a_status_does_not_allow_names_the_status(shop, act, said):
    await shop.run()
    flow = await shop.start("checkout")
    await shop.ended(flow)
    got = await shop.api.send("POST", f"{FLOWS}/{flow}/{act}")
    assert (got.status, got.code) == (409, "conflict")
    assert got.document["detail"] == f"Flow {flow!r} is completed: {said}"
    assert "first" not in got.document["title"]


async def test_what_a_retry_does_not_do_by_itself_is_said(shop):
    await shop.run()
    flow = await shop.start("undone")
    await shop.ended(flow)
    got = await shop.api.send("POST", f"{FLOWS}/{flow}/retry")
    assert (got.status, got.code) == (409, "conflict")
    assert "fork" in got.document["detail"]
    flow = "unknown"
    await shop.leave_unknown(flow)
    shown = await shop.ended(flow)
    assert shown["outcome"]["type"] == "outlive.errors.StepOutcomeUnknown"
    got = await shop.api.send("POST", f"{FLOWS}/{flow}/retry")
    assert (got.status, got.code) == (409, "conflict")
    assert "rerunUnknown=true" in got.document["detail"]
    path = f"{FLOWS}/{flow}/retry"
    got = await shop.api.send("POST", path, query="rerunUnknown=perhaps")
    assert got.status == 400
    got = await shop.api.send("POST", path, query="rerunUnknown=true")
    assert got.status == 202
    assert (await shop.ended(flow))["outcome"] == "wired"


async def test_why_a_child_is_not_retried_by_itself_is_said(shop):
    await shop.run()
    shop.broken.add("charge")
    flow = await shop.start("basket")
    assert (await shop.ended(flow))["status"] == "failed"
    for child, why in (("checkout#0", "acted on the end"), ("patience#0", "starts it again")):
        await shop.ended(f"{flow}/{child}")
        got = await shop.api.send("POST", f"{FLOWS}/{flow}/{child}/retry")
        assert (got.status, got.code) == (409, "conflict"), got.body
        assert why in got.document["detail"]
        assert "fork" in got.document["detail"]


async def test_a_fork_runs_a_step_again_with_other_arguments(shop):
    await shop.run()
    flow = await shop.start("checkout", input={"amount": 7})
    await shop.ended(flow)
    wanted = {"at": "charge#0", "id": "again", "input": {"amount": 9}}
    for _ in range(2):
        got = await shop.api.post(f"{FLOWS}/{flow}/fork", wanted)
        assert (got.status, got.headers["location"]) == (202, f"{FLOWS}/again")
    assert (await shop.ended("again"))["outcome"] == "paid 9"
    assert (await shop.ended(flow))["outcome"] == "paid 7"
    for other in ({**wanted, "at": 0}, {**wanted, "input": {"amount": 8}}, {"at": 0, "id": flow}):
        got = await shop.api.post(f"{FLOWS}/{flow}/fork", other)
        assert (got.status, got.code) == (409, "conflict")
    for at in ("no-such-step#0", 99):
        got = await shop.api.post(f"{FLOWS}/{flow}/fork", {"at": at})
        assert (got.status, got.code) == (404, "not-found")
    got = await shop.api.post(f"{FLOWS}/{flow}/fork", {"at": 0, "id": "ü" * 300})
    assert (got.status, got.code) == (400, "invalid-request")


async def test_an_ended_flow_is_purged_and_a_live_one_is_not(shop):
    flow = await shop.start("approval", input={"order": "o"})
    got = await shop.api.delete(f"{FLOWS}/{flow}")
    assert (got.status, got.code) == (409, "conflict")
    await shop.api.send("POST", f"{FLOWS}/{flow}/terminate")
    assert (await shop.api.delete(f"{FLOWS}/{flow}")).status == 204
    assert (await shop.api.get(f"{FLOWS}/{flow}")).status == 404
    assert (await shop.api.delete(f"{FLOWS}/{flow}")).status == 404


async def test_what_an_admin_did_is_on_record(shop):
    admin = await shop.may(Scope.ADMIN)
    await admin.post(f"{FLOWS}/start/approval", {"id": "f", "input": {"order": "CANARY"}})
    await admin.post(f"{FLOWS}/f/raiseEvent/hurry", {"payload": "CANARY"})
    await admin.post(f"{FLOWS}/f/fork", {"at": 0, "input": {"order": "CANARY"}})
    for act in ("suspend", "resume", "cancel", "terminate", "retry"):
        assert (await admin.send("POST", f"{FLOWS}/f/{act}")).status == 202
    await admin.delete(f"{FLOWS}/f")
    assert shop.driver.tokens is not None
    acts = [act for act in await shop.driver.tokens.acts(limit=20) if "flow" in act.action]
    assert [act.action.removeprefix("flow ") for act in reversed(acts)] == [
        *("fork", "suspend", "resume", "cancel", "terminate", "retry", "purge")
    ]
    assert {act.subject for act in acts} == {"f"}
    assert all(act.actor.startswith("admin (") for act in acts)
    assert "CANARY" not in repr(acts)


async def test_what_was_never_started_is_not_found(api):
    for act in ("suspend", "resume", "cancel", "terminate", "retry"):
        got = await api.send("POST", f"{FLOWS}/none/{act}")
        assert (got.status, got.code) == (404, "not-found")
        assert "flow 'none' in this namespace" in got.document["detail"]
    assert (await api.post(f"{FLOWS}/none/fork", {"at": 0})).status == 404
    assert (await api.post(f"{FLOWS}/none/raiseEvent/x", {})).status == 404
    assert (await api.delete(f"{FLOWS}/none")).status == 404


@pytest.mark.parametrize("flow", HOSTILE)
async def test_a_flow_is_reached_by_its_links_whatever_its_id_is(shop, flow):
    got = await shop.api.post(f"{FLOWS}/start/checkout", {"id": flow})
    assert (got.status, got.document["id"]) == (202, flow)
    # As a server hands a path on: without what escapes it.
    links = {name: unquote(link) for name, link in got.document["links"].items()}
    assert got.headers["location"] == f"{FLOWS}/{quote(flow, safe='')}"
    assert (await shop.api.get(links["status"])).document["id"] == flow
    assert (await shop.api.send("POST", links["suspend"])).status == 202
    assert (await shop.api.get(links["status"])).document["status"] == "suspended"
    assert (await shop.api.send("POST", links["terminate"])).status == 202
    assert (await shop.api.delete(links["purge"])).status == 204


@pytest.mark.parametrize(
    "flow", ["start", "start/x", "x/terminate", "a/raiseEvent/b", "start/", "x/fork"]
)
async def test_nothing_is_started_that_could_not_be_reached(shop, flow):
    got = await shop.api.post(f"{FLOWS}/start/checkout", {"id": flow})
    assert (got.status, got.code) == (400, "invalid-request")
    other = await shop.start("checkout")
    got = await shop.api.post(f"{FLOWS}/{other}/fork", {"id": flow, "at": 0})
    assert (got.status, got.code) == (400, "invalid-request")


async def test_a_store_that_keeps_no_flows_says_so(drivers):
    app = application(drivers)
    _, token = await make_token(drivers["shop"], "shop", *Scope)
    got = await Api(app, token).get(FLOWS)
    assert (got.status, got.code) == (422, "unsupported")
    app.close()
