"""Cases of reading: one key, and pages of many, without skip, repeat or pattern surprises."""

from __future__ import annotations

import asyncio
from datetime import UTC
from typing import Any

import pytest

from outlive.model.lease import LeaseRecord
from outlive.serialization import decode_metadata, encode_metadata
from outlive.testing.conformance.lab import LONG_S, Lab, Member, scenario


async def keys_with(member: Member, prefix: str = "", *, limit: int = 1000) -> list[str]:
    """The keys of one page of a listing, in its order."""
    page = await member.leases.list(
        prefix=prefix, owner=None, active=False, after=None, limit=limit
    )
    return [record.key for record in page]


async def all_pages(member: Member, prefix: str, limit: int) -> list[list[LeaseRecord]]:
    """Every page, following the cursor as a caller does."""
    pages: list[list[LeaseRecord]] = []
    after: str | None = None
    while True:
        page = await member.leases.list(
            prefix=prefix, owner=None, active=False, after=after, limit=limit
        )
        if not page:
            return pages
        pages.append(list(page))
        after = page[-1].key


class ReadingCases:
    """``get`` and ``list``."""

    @scenario
    async def test_a_key_never_granted_has_no_record(self, lab: Lab) -> None:
        a = await lab.host("a")
        assert len(await a.leases.get("nobody")) == 0

    @scenario
    async def test_a_refused_attempt_alone_makes_no_other_record(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        await a.own("k")
        await b.is_refused("k")
        assert await keys_with(a) == ["k"]

    @scenario
    async def test_a_record_tells_all_about_the_owner(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        grant = await a.own("k")
        (record,) = await b.leases.get("k")
        assert (record.key, record.slot, record.limit) == ("k", grant.slot, 1)
        assert (record.token, record.version) == (grant.token, grant.version)
        assert (record.owner, record.active) == (a.owner(), True)
        assert record.ttl_s == LONG_S
        assert LONG_S - 20 < record.remaining_s <= LONG_S
        assert record.state is None
        assert record.waiters == 0

    @scenario
    async def test_instants_of_a_record_are_aware_and_in_order(self, lab: Lab) -> None:
        a = await lab.host("a")
        grant = await a.own("k")
        await lab.advance(0.05)
        await a.renew(grant)
        record = await a.record("k")
        assert record.expires_at is not None
        assert record.acquired_at < record.renewed_at < record.expires_at
        for instant in (record.acquired_at, record.renewed_at, record.expires_at):
            assert instant.utcoffset() == UTC.utcoffset(None)

    @scenario
    async def test_an_expired_owner_is_still_named(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        await a.own_briefly("k")
        await lab.expire()
        record = await b.record("k")
        assert (record.owner, record.active, record.remaining_s) == (a.owner(), False, 0)

    @scenario
    async def test_raw_records_name_owner_and_token(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        grant = await a.own("k")
        await a.own("k2")
        (record,) = await b.leases.raw("k")
        told = " ".join(str(value) for value in record.values())
        # A record may keep the host and what tells its leases apart in two fields.
        assert all(part in told for part in a.owner().split("/"))
        assert str(grant.token) in told

    @scenario
    async def test_a_key_never_granted_has_no_raw_record(self, lab: Lab) -> None:
        a = await lab.host("a")
        await a.own("k")
        assert len(await a.leases.raw("nobody")) == 0

    @scenario
    async def test_raw_records_are_one_per_slot(self, lab: Lab) -> None:
        lab.require("semaphore")
        a = await lab.host("a")
        for number in range(3):
            await a.own("k", str(number), limit=3)
        told = [" ".join(map(str, record.values())) for record in await a.leases.raw("k")]
        assert [a.owner(str(number)) in text for number, text in enumerate(told)] == [True] * 3

    @scenario
    async def test_nested_metadata_round_trips(self, lab: Lab) -> None:
        a = await lab.host("a")
        metadata: dict[str, Any] = {
            "text": 'it\'s "quoted" \\ \N{SNOWMAN} \U0001f600 %s $1 :x ?',
            "numbers": [0, -1, 2**53, 1.5, 1e-9],
            "nested": {"a": {"b": [{"c": None}, True, False, []]}, "": {}},
        }
        await a.own("k", metadata=encode_metadata(metadata))
        assert decode_metadata((await a.record("k")).metadata) == metadata

    @scenario
    async def test_listing_an_empty_store_is_empty(self, lab: Lab) -> None:
        a = await lab.host("a")
        assert await keys_with(a) == []

    @scenario
    async def test_a_listing_is_in_code_point_order(self, lab: Lab) -> None:
        a = await lab.host("a")
        keys = ["b", "B", "a", "_", "-", "a/b", "a.b", "ab", "\u00e9", "z", "\uff5e", "\U0001f600"]
        for key in keys:
            await a.own(key)
        assert await keys_with(a) == sorted(keys)

    @pytest.mark.parametrize("prefix", ["%", "_", "\\", "a%", "a_", "*", "[a]", "?", "'", "\u00e9"])
    @scenario
    async def test_a_prefix_is_text_and_never_a_pattern(self, lab: Lab, prefix: str) -> None:
        a = await lab.host("a")
        keys = [prefix, f"{prefix}x", f"x{prefix}", "plain", "ax", "a", "E", "e", "x%x", "x_x"]
        for key in dict.fromkeys(keys):
            await a.own(key)
        expected = sorted({key for key in keys if key.startswith(prefix)})
        assert await keys_with(a, prefix) == expected

    @scenario
    async def test_a_prefix_respects_case(self, lab: Lab) -> None:
        a = await lab.host("a")
        for key in ("Inventory/1", "inventory/1", "INVENTORY/1"):
            await a.own(key)
        assert await keys_with(a, "inventory/") == ["inventory/1"]

    @scenario
    async def test_a_prefix_at_the_end_of_unicode_still_matches(self, lab: Lab) -> None:
        # Range scans add one to the last code point; there is none after this.
        a = await lab.host("a")
        for key in ("\U0010ffff", "\U0010ffff\U0010ffff", "\ud7ff", "\ud7ffx", "a"):
            await a.own(key)
        assert await keys_with(a, "\U0010ffff") == ["\U0010ffff", "\U0010ffff\U0010ffff"]
        assert await keys_with(a, "\ud7ff") == ["\ud7ff", "\ud7ffx"]

    @scenario
    async def test_pages_neither_skip_nor_repeat(self, lab: Lab) -> None:
        a = await lab.host("a")
        keys = [f"p/{number * 7919 % 250:03}" for number in range(250)]
        await asyncio.gather(*(a.own(key) for key in [*keys, "o", "q"]))
        pages = await all_pages(a, "p/", 37)
        assert [record.key for page in pages for record in page] == sorted(keys)
        assert all(len(page) == 37 for page in pages[:-1])

    @scenario
    async def test_a_page_ends_only_between_keys(self, lab: Lab) -> None:
        lab.require("semaphore")
        a = await lab.host("a")
        for key in ("a", "b", "c"):
            for number in range(3):
                await a.own(key, str(number), limit=3)
        pages = await all_pages(a, "", 2)
        seen = [(record.key, record.slot) for page in pages for record in page]
        assert seen == [(key, slot) for key in "abc" for slot in range(3)]

    @scenario
    async def test_active_keeps_what_somebody_owns_now(self, lab: Lab) -> None:
        a = await lab.host("a")
        await a.own("held")
        await a.leases.release(await a.own("released"))
        await a.own_briefly("expired")
        await lab.end("expired")
        page = await a.leases.list(prefix="", owner=None, active=True, after=None, limit=10)
        assert [record.key for record in page] == ["held"]
        assert await keys_with(a) == ["expired", "held", "released"]

    @scenario
    async def test_owner_matches_the_whole_owner_or_its_host(self, lab: Lab) -> None:
        web, web10 = await lab.host("web-1"), await lab.host("web-10")
        await web.own("a", "x")
        await web.own("b", "y")
        await web10.own("c", "x")
        await web.leases.release(await web.own("d", "z"))

        async def owned_by(owner: str) -> list[str]:
            page = await web.leases.list(prefix="", owner=owner, active=True, after=None, limit=10)
            return [record.key for record in page]

        assert await owned_by("web-1") == ["a", "b"]
        assert await owned_by("web-1/x") == ["a"]
        assert await owned_by("web-10") == ["c"]
        for nobody in ("web", "web-1/", "web%", "web__", "%", "x", "WEB-1", ""):
            assert await owned_by(nobody) == []

    @scenario
    async def test_filters_work_together_across_pages(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        for number in range(30):
            await (a if number % 3 == 0 else b).own(f"k/{number:02}")
        seen: list[str] = []
        after: str | None = None
        while page := await a.leases.list(
            prefix="k/", owner="a", active=True, after=after, limit=4
        ):
            seen.extend(record.key for record in page)
            after = page[-1].key
        assert seen == [f"k/{number:02}" for number in range(0, 30, 3)]
