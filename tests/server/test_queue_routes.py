"""Filling queues and looking at them over HTTP."""

from __future__ import annotations


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
    for _ in range(2):
        got = await api.post("/queues/mail/items", {"payload": 1, "id": "order-7"})
        assert (got.status, got.document["id"]) == (201, "order-7")
    got = await api.get("/queues/mail/items")
    assert [item["id"] for item in got.document["items"]] == ["order-7"]


async def test_a_duplicate_is_refused_and_names_who_was_first(api):
    first = await api.post("/queues/mail/items", {"unique_key": "k"})
    got = await api.post("/queues/mail/items", {"unique_key": "k"})
    assert (got.status, got.code) == (409, "duplicate")
    assert first.document["id"] in got.document["detail"]


async def test_a_draining_queue_takes_nothing(api, drivers):
    from holdfast.model.job import QueueMode, QueueSettings

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
    from holdfast.server import limits

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
    counts = {state: count for state, count in queue["counts"].items() if count}
    assert counts == {"ready": 1, "scheduled": 1, "claimed": 1}


async def test_an_item_shows_who_claimed_it(api):
    item = (await api.post("/queues/mail/items", {})).document["id"]
    await api.post("/worker/next", {"worker_id": "w-7", "queues": ["mail"]})
    shown = (await api.get(f"/items/{item}")).document
    assert (shown["claimed_by"], shown["token"]) == ("w-7", 1)
    assert shown["claimed_at"] is not None
