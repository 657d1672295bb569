"""The record of a key: what fits in a blob's metadata, what does not, and what others are told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.drivers.azblob.records import (
    BlobRecord,
    Seen,
    decode,
    encode,
    is_in_content,
    lease_record,
    next_token,
)
from outlive.errors import SchemaMismatch, StoreError
from outlive.names import Owner

pytestmark = pytest.mark.whitebox

NOW_US = 1_800_000_000_000_000
RECORD = BlobRecord(
    key="k",
    token=7,
    version=3,
    owner=Owner("web/1"),
    ttl_us=30_000_000,
    acquired_us=NOW_US,
    renewed_us=NOW_US,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@given(texts, texts, st.none() | texts)
def test_a_record_round_trips_as_ascii_headers(owner, metadata, state):
    record = replace(RECORD, owner=Owner(f"{owner}/1"), metadata=metadata, state=state)
    fields, content = encode(record)
    for name, text in fields.items():
        assert name.isidentifier()
        assert text.isascii()
        assert text.isprintable()
        assert text
        assert not set(text) & set(" <>&")
    assert decode("n/k", fields, content) == record


def test_nobody_owns_what_was_released():
    fields, content = encode(RECORD.ended())
    assert "outlive_owner" not in fields
    after = decode("n/k", fields, content)
    assert after is not None
    assert (after.owner, after.token, after.version) == (None, 7, 4)


def test_an_empty_state_is_not_none():
    for state in (None, ""):
        fields, _ = encode(replace(RECORD, state=state))
        found = decode("n/k", fields, None)
        assert found is not None
        assert found.state == state


def test_what_is_too_long_goes_into_the_content_and_the_rest_stays_within_the_limit():
    long = replace(
        RECORD,
        key="\U0001f511" * 128,
        owner=Owner("\U0001f511" * 128 + "/" + "x" * 40),
        metadata='{"x":"' + "y" * 8180 + '"}',
        state="\u2603" * 1365,
    )
    fields, content = encode(long)
    assert content is not None
    assert is_in_content(fields)
    assert decode("n/k", fields, content) == long
    inline, none = encode(replace(long, metadata="y" * 4096, state=None))
    assert none is None
    assert not is_in_content(inline)
    for metadata in (fields, inline):
        assert sum(len(name) + len(text) for name, text in metadata.items()) <= 8 * 1024


def test_a_blob_of_others_has_no_record():
    assert decode("n/k", None, None) is None
    assert decode("n/k", {"token": "7"}, None) is None


@pytest.mark.parametrize("name", ["key", "version", "ttl_us", "acquired_us", "schema"])
def test_a_damaged_record_is_said_to_be(name):
    fields, _ = encode(RECORD)
    for damaged in ({**fields, f"outlive_{name}": ""}, dict(fields)):
        if damaged == fields:
            del damaged[f"outlive_{name}"]
        elif name == "key":
            continue
        with pytest.raises(StoreError, match=r"'n/k'.*changed by another program"):
            decode("n/k", damaged, None)


def test_a_record_of_a_newer_release_is_refused():
    fields, _ = encode(RECORD)
    with pytest.raises(SchemaMismatch, match="newer release"):
        decode("n/k", {**fields, "outlive_schema": "2"}, None)


def test_tokens_grow_by_the_record_and_by_the_clock():
    assert next_token(None, NOW_US) == NOW_US
    assert next_token(RECORD, NOW_US) == NOW_US
    assert next_token(replace(RECORD, token=NOW_US + 5), NOW_US) == NOW_US + 6


def seen(state: str, record: BlobRecord | None = RECORD) -> Seen:
    return Seen(etag="e", lease_state=state, record=record)


@pytest.mark.parametrize(
    ("state", "active"),
    [("leased", True), ("breaking", True), ("expired", False), ("broken", False)],
)
def test_only_the_service_says_whether_somebody_owns(state, active):
    told = lease_record(seen(state), NOW_US + 1_000_000)
    assert told is not None
    assert (told.owner, told.active) == ("web/1", active)
    assert told.remaining_s == (29 if active else 0)


def test_a_lease_that_outlasts_its_record_is_somebody_elses():
    assert seen("leased").owner_at(NOW_US + 31_000_000) == "web/1"
    assert seen("leased").owner_at(NOW_US + 33_000_000) is None
    assert seen("leased", RECORD.ended()).owner_at(NOW_US) is None
    assert seen("leased", None).owner_at(NOW_US) is None
