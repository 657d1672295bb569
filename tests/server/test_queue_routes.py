"""Filling queues and looking at them over HTTP."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta, timezone
from urllib.parse import quote

import pytest

from outlive.model.bearer import Scope
from outlive.model.job import NewJob
from outlive.server import limits
from tests.server.api import make_token


async def test_a_list_is_added_as_one_with_an_outcome_for_each(api):
    items = [{"payload": n, "unique_key": f"k{n % 2}", "on_duplicate": "return"} for n in range(3)]
    got = await api.post("/queues/mail/items", items)
    assert got.status == 200
    first, second, third = got.document["items"]
    assert [item["outcome"] for item in (first, second, third)] == [
        "created",
        "created",
        "existing",
    ]
    assert third["id"] == first["id"]


async def test_the_same_id_twice_is_one_item(api):
    for status in (201, 200):
        got = await api.post("/queues/mail/items", {"payload": 1, "id": "order-7"})
        assert (got.status, got.document["id"]) == (status, "order-7")
    got = await api.get("/queues/mail/items")
    assert [item["id"] for item in got.document["items"]] == ["order-7"]


async def test_a_known_id_is_existing_and_another_payload_is_told(api):
    answers = []
    for payload in (1, 1, 2):
        got = await api.post("/queues/mail/items", {"payload": payload, "id": "order-7"})
        answers.append((got.status, got.document))
    assert answers == [
        (201, {"id": "order-7", "outcome": "created"}),
        (200, {"id": "order-7", "outcome": "existing"}),
        (200, {"id": "order-7", "outcome": "existing", "payload_differs": True}),
    ]
    got = await api.post("/queues/mail/items", [{"id": "a"}, {"id": "a", "payload": 4}])
    assert got.document["items"][1] == {"id": "a", "outcome": "existing", "payload_differs": True}


async def test_an_id_of_another_queue_is_a_conflict(api):
    await api.post("/queues/mail/items", {"id": "order-7"})
    got = await api.post("/queues/other/items", {"id": "order-7"})
    assert (got.status, got.code) == (409, "conflict")
    got = await api.post("/queues/other/items", [{"id": "order-7"}, {"id": "order-8"}])
    assert [item["outcome"] for item in got.document["items"]] == ["conflict", "created"]


async def test_a_duplicate_is_refused_and_names_who_was_first(api):
    first = await api.post("/queues/mail/items", {"unique_key": "k"})
    got = await api.post("/queues/mail/items", {"unique_key": "k"})
    assert (got.status, got.code) == (409, "duplicate")
    assert first.document["id"] in got.document["detail"]


async def test_a_draining_queue_takes_nothing(api, drivers):
    from outlive.model.job import QueueMode, QueueSettings

    await drivers["shop"].jobs.put_queue(QueueSettings(name="mail", mode=QueueMode.DRAINING))
    got = await api.post("/queues/mail/items", {"payload": 1})
    assert (got.status, got.code) == (409, "queue-draining")


async def test_pages_of_a_queue_join_without_gaps(api):
    await api.post("/queues/mail/items", [{"payload": n} for n in range(7)])
    await api.post("/queues/other/items", {"payload": "not here"})
    seen, query = [], "limit=3"
    while True:
        page = (await api.get("/queues/mail/items", query)).document
        seen += [item["payload"] for item in page["items"]]
        if page["next_after"] is None:
            break
        query = f"limit=3&after={page['next_after']}"
    assert seen == list(range(7))


async def test_a_page_of_large_payloads_ends_early_and_the_next_goes_on(api, monkeypatch):
    from outlive.server import limits

    monkeypatch.setattr(limits, "PAGE_BYTES_MAX", 50_000)
    await api.post("/queues/mail/items", [{"payload": f"{n:02}" + "x" * 5000} for n in range(30)])
    seen, sizes, after = [], [], ""
    while True:
        page = (await api.get("/queues/mail/items", f"limit=30{after}")).document
        seen += [int(item["payload"][:2]) for item in page["items"]]
        sizes.append(len(page["items"]))
        if page["next_after"] is None:
            break
        after = f"&after={page['next_after']}"
    assert seen == list(range(30))
    assert max(sizes) < 30


async def test_items_are_filtered_by_state(api):
    await api.post("/queues/mail/items", [{"payload": 1}, {"payload": 2, "delay": 60}])
    page = (await api.get("/queues/mail/items", "state=scheduled")).document
    assert [item["payload"] for item in page["items"]] == [2]
    assert (await api.get("/queues/mail/items", "state=dead")).document["items"] == []


async def test_queues_show_what_is_in_them(api):
    await api.post("/queues/mail/items", [{}, {}, {"delay": 60}])
    await api.post("/worker/next", {"worker_id": "w", "queues": ["mail"]})
    (queue,) = (await api.get("/queues")).document["queues"]
    assert (queue["name"], queue["mode"]) == ("mail", "open")
    assert (queue["concurrency"], queue["limits_by"]) == (None, None)
    counts = {state: count for state, count in queue["counts"].items() if count}
    assert counts == {"ready": 1, "scheduled": 1, "claimed": 1}


async def test_queues_show_whose_their_limits_are(api, drivers):
    from outlive.model.job import LimitsBy, QueueSettings

    for limits_by in LimitsBy:
        limits = QueueSettings(name="mail", concurrency=3, limits_by=limits_by)
        await drivers["shop"].jobs.put_queue(limits)
        (queue,) = (await api.get("/queues")).document["queues"]
        assert (queue["concurrency"], queue["limits_by"]) == (3, limits_by.value)


async def test_an_item_shows_who_claimed_it(api):
    item = (await api.post("/queues/mail/items", {})).document["id"]
    await api.post("/worker/next", {"worker_id": "w-7", "queues": ["mail"]})
    shown = (await api.get(f"/items/{item}")).document
    assert (shown["claimed_by"], shown["token"]) == ("w-7", 1)
    assert shown["claimed_at"] is not None


async def test_a_path_that_is_no_text_names_no_queue(api):
    got = await api.post("/queues/\ufffd\ufffd/items", {}, raw_path=b"/queues/%ff%fe/items")
    assert (got.status, got.code) == (400, "invalid-request")
    got = await api.post("/queues/\u00e9/items", {}, raw_path=b"/queues/%C3%A9/items")
    assert got.status == 201


async def test_an_item_is_not_claimed_before_its_instant(api, drivers):
    at = datetime(2030, 1, 31, 3, 0, tzinfo=timezone(timedelta(hours=1)))
    got = await api.post("/queues/mail/items", {"at": at.isoformat()})
    found = await drivers["shop"].jobs.get(got.document["id"])
    assert (found.state, found.due_at) == ("scheduled", at)
    for wrong in (
        {"at": "2030-01-31T03:00:00"},
        {"at": "9999-01-31T03:00:00Z"},
        {"at": at.isoformat(), "delay": 5},
    ):
        got = await api.post("/queues/mail/items", wrong)
        assert (got.status, got.code) == (400, "invalid-request")


async def test_an_item_has_a_retry_policy_of_its_own(api, drivers):
    jobs = drivers["shop"].jobs
    policy = {"first": 100, "factor": 1, "jitter": 0, "max_attempts": 3, "never": ["Boom"]}
    item = (await api.post("/queues/mail/items", {"retry": policy})).document["id"]
    assert (await jobs.get(item)).max_attempts == 3
    for error_type, state in (("Other", "retrying"), ("Boom", "dead")):
        await jobs.retry([item])
        got = await api.post("/worker/next", {"worker_id": "w", "queues": ["mail"]})
        claim_id = got.document["claim_id"]
        failed = {"claim_id": claim_id, "error": "no", "error_type": error_type}
        assert (await api.post("/worker/fail", failed)).status == 200
        found = await jobs.get(item)
        assert found.state == state
        if state == "retrying":
            assert 99 < (found.due_at - datetime.now(UTC)).total_seconds() <= 100
    both = {"retry": {"max_attempts": 3, "first": 2}, "max_attempts": 7}
    item = (await api.post("/queues/mail/items", both)).document["id"]
    found = await jobs.get(item)
    assert (found.max_attempts, json.loads(found.retry)) == (7, {"max_attempts": 7, "first": 2})
    got = await api.post("/queues/mail/items", {"retry": {"first": -1}})
    assert got.status == 400


async def test_pages_of_queues_join_without_gaps(api):
    names = ["B", "a", "c/d", "\u00e9"]
    for name in names:
        await api.post(f"/queues/{name}/items", {})
    seen, after = [], ""
    while after is not None:
        query = f"limit=3&after={quote(after)}" if after else "limit=3"
        page = (await api.get("/queues", query)).document
        assert len(page["queues"]) <= 3
        seen += [queue["name"] for queue in page["queues"]]
        after = page["next_after"]
    assert seen == sorted(names)
    assert (await api.get("/queues", "limit=501")).status == 400


@pytest.mark.parametrize("shown", [False, True])
async def test_a_page_never_holds_many_payloads(api, drivers, monkeypatch, shown):
    """Few records are read at a time, and what is shown ends at its size."""
    payload = '"' + "x" * 500_000 + '"'
    jobs = drivers["shop"].jobs
    await jobs.enqueue([NewJob(id=f"i{n}", queue="mail", payload=payload) for n in range(40)])
    read: list[int] = []
    real = jobs.list

    async def listing(which, *, after, limit):
        found = await real(which, after=after, limit=limit)
        read.append(len(found))
        return found

    monkeypatch.setattr(jobs, "list", listing)
    scopes = [Scope.READ, Scope.PAYLOAD] if shown else [Scope.READ]
    _, token = await make_token(drivers["shop"], "shop", *scopes)
    reader = api.with_token(token)
    seen, query = [], "limit=500"
    while query:
        got = await reader.get("/queues/mail/items", query)
        assert len(got.body) < limits.PAGE_BYTES_MAX + 1_000_000
        page = got.document
        seen += [item["id"] for item in page["items"]]
        assert all(("payload" in item) == shown for item in page["items"])
        query = page["next_after"] and f"limit=500&after={page['next_after']}"
    assert seen == [f"i{n}" for n in range(40)]
    assert max(read) <= 8


async def test_small_items_are_read_in_larger_parts(api, drivers, monkeypatch):
    jobs = drivers["shop"].jobs
    await jobs.enqueue([NewJob(id=f"i{n}", queue="mail", payload="1") for n in range(500)])
    calls: list[int] = []
    real = jobs.list

    async def listing(which, *, after, limit):
        calls.append(limit)
        return await real(which, after=after, limit=limit)

    monkeypatch.setattr(jobs, "list", listing)
    page = (await api.get("/queues/mail/items", "limit=500")).document
    assert len(page["items"]) == 500
    assert len(calls) <= 12


async def test_a_dead_item_says_why(api, drivers):
    await api.post("/queues/mail/items", {"payload": 1, "id": "late", "expires": 0.001})
    await asyncio.sleep(0.01)
    await drivers["shop"].jobs.tend(limit=10)
    got = await api.get("/items/late")
    assert (got.document["state"], got.document["error"]) == (
        "dead",
        "expired: not claimed within 0.001 s",
    )
