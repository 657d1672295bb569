"""Items: what each write changes, what is read back, and ids in the order of their keys."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.drivers.cosmos.item_ids import item_id, names_of
from outlive.drivers.cosmos.items import (
    SCHEMA,
    Item,
    Moment,
    Writer,
    broken,
    granted,
    read_item,
    released,
    renewed,
)
from outlive.errors import SchemaMismatch, StoreError
from outlive.model.lease import AcquireRequest
from outlive.names import KEY_BYTES_MAX, NAMESPACE_LENGTH_MAX, HostId, Owner

pytestmark = pytest.mark.whitebox

NOW = datetime(2030, 1, 1, tzinfo=UTC)
WRITER = Writer("default", "host-1", "West Europe")
keys = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=60)


def request(owner: str = "web-1/x", metadata: str = '{"pid":7}') -> AcquireRequest:
    return AcquireRequest("orders/1", Owner(owner), 1_234_567, metadata, HostId("host-1"))


def moment(sent_us: int = 1, service_us: int = 1_000) -> Moment:
    return Moment(sent_us, NOW, service_us)


def first() -> Item:
    return granted(None, request(), WRITER, moment(), again=False)


def stored(item: Item, etag: str = '"e"', ts: int = 5) -> Item:
    return read_item({**item.body(), "_etag": etag, "_ts": ts})


@given(st.lists(keys, min_size=2, max_size=8))
def test_ids_are_in_the_order_of_the_keys(found):
    by_id = sorted(found, key=lambda key: item_id("n", key))
    assert by_id == sorted(found)


@given(keys, st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True))
def test_an_id_tells_its_namespace_and_key(key, namespace):
    identity = item_id(namespace, key)
    assert names_of(identity) == (namespace, key)
    assert identity.isascii()
    assert not set(identity) & set("/\\?# ")


def test_the_longest_names_fit_into_an_id():
    for letter in ("k", "\U0001f511"):
        key = letter * (KEY_BYTES_MAX // len(letter.encode()))
        assert len(item_id("n" * NAMESPACE_LENGTH_MAX, key)) <= 1023


def test_what_is_no_id_of_a_lease_is_refused():
    for identity in ("outlive-probe", "lease-", "lease-n", "n~abc"):
        with pytest.raises(ValueError, match="not the id"):
            names_of(identity)


def test_an_item_is_read_back_as_it_was_written():
    item = first()
    again = stored(item)
    assert again.body() == item.body()
    assert (again.etag, again.ts) == ('"e"', 5)
    assert again.is_write(item)


def test_an_item_tells_people_who_owns_it():
    body = granted(
        None,
        request(metadata='{"hostname":"m1","started_at":"noon","big":9007199254740993}'),
        WRITER,
        moment(),
        again=False,
    ).body()
    assert (body["ownerId"], body["leaseId"]) == ("web-1", "x")
    assert body["leaseKey"] == "orders/1"
    assert body["metadata"]["instanceId"] == "host-1"
    assert body["metadata"]["region"] == "West Europe"
    assert (body["metadata"]["hostname"], body["metadata"]["startTime"]) == ("m1", "noon")
    assert body["ttlMs"] == 1234.567
    # The container's default time to live must never delete it.
    assert body["ttl"] == -1
    assert stored(first()).metadata == '{"pid":7}'


def test_what_the_owner_calls_region_stays():
    item = granted(None, request(metadata='{"region":"us"}'), WRITER, moment(), again=False)
    assert item.body()["metadata"]["region"] == "us"


def test_a_first_token_is_the_clock_of_the_service():
    assert first().token == 1_000


def test_tokens_grow_with_the_clock_and_without_it():
    item = first()
    later = granted(item, request("b/1"), WRITER, moment(service_us=5_000), again=False)
    assert later.token == 5_000
    behind = granted(item, request("b/1"), WRITER, moment(service_us=10), again=False)
    assert behind.token == item.token + 1


def test_the_same_owner_keeps_its_token_and_its_beginning():
    item = first()
    again = granted(item, request(), WRITER, Moment(9, NOW.replace(hour=1), 9_000), again=True)
    assert (again.token, again.version) == (item.token, item.version + 1)
    assert (again.acquired_at, again.renewed_at) == (NOW, NOW.replace(hour=1))


def test_each_write_raises_the_version_and_keeps_state_and_token():
    item = stored(first())
    kept = renewed(item, WRITER, moment(2), ttl_us=5, state="page 7")
    assert (kept.token, kept.version, kept.ttl_us) == (item.token, item.version + 1, 5)
    assert renewed(kept, WRITER, moment(3), ttl_us=5, state=None).state == "page 7"
    free = released(kept, WRITER, moment(4))
    assert (free.owner, free.token, free.state) == (None, item.token, "page 7")
    assert free.body()["expiresAt"] is None
    ended = broken(kept, WRITER, moment(4), reason="stuck")
    assert (ended.owner, ended.token, ended.break_reason) == (None, item.token + 1, "stuck")
    assert {kept.etag, free.etag, ended.etag} == {item.etag}


def test_a_write_is_told_from_every_other():
    item = stored(first())
    writes = [
        renewed(item, WRITER, moment(2), ttl_us=5, state=None),
        renewed(item, WRITER, moment(3), ttl_us=5, state=None),
        renewed(item, WRITER._replace(host="host-2"), moment(2), ttl_us=5, state=None),
        released(item, WRITER, moment(2)),
        broken(item, WRITER, moment(2), reason="stuck"),
    ]
    assert not any(one.is_write(two) for one, two in itertools.permutations(writes, 2))


def test_an_item_of_a_newer_release_is_not_touched():
    with pytest.raises(SchemaMismatch):
        read_item({**first().body(), "schema": SCHEMA + 1})


def test_an_item_that_was_copied_to_another_key_is_refused():
    document = {**first().body(), "_etag": "e", "_ts": 1, "leaseKey": "orders/2"}
    with pytest.raises(StoreError, match="another lease"):
        read_item(document)


@pytest.mark.parametrize("missing", ["token", "_etag", "metadata", "acquiredAt", "schema"])
def test_a_foreign_item_is_named(missing):
    document = {**first().body(), "_etag": "e", "_ts": 1}
    document[missing] = None
    with pytest.raises(StoreError, match="not written by Outlive"):
        read_item(document)
    del document[missing]
    with pytest.raises(StoreError, match="lease-default~"):
        read_item(document)


def test_another_write_of_the_same_microsecond_is_not_taken_for_ones_own():
    # The host and its keeper write from two connections.
    before = stored(first())
    mine = renewed(before, WRITER, moment(7), ttl_us=9_000_000, state='{"tick":2}')
    assert stored(mine).is_write(mine)
    for state, ttl_us in ((None, 9_000_000), ('{"tick":2}', 8_000_000)):
        theirs = renewed(before, WRITER, moment(7), ttl_us=ttl_us, state=state)
        assert not stored(theirs).is_write(mine)
