"""Cases of names: hostile keys stay exactly what they are, and namespaces stay apart."""

from __future__ import annotations

import unicodedata

import pytest

from outlive.errors import Fenced, LeaseNotFound
from outlive.names import KEY_BYTES_MAX, check_key
from outlive.testing.conformance.lab import Lab, scenario

HOSTILE_KEYS = [
    "it's",
    'say "hi"',
    "a; DROP TABLE lease; --",
    "100%",
    "%s %(x)s {} {0} $1 ?1 :key @x",
    "a_b",
    "back\\slash\\",
    "a//b",
    "/",
    "//",
    "..",
    "../../etc/passwd",
    ".",
    " leading",
    "trailing ",
    " ",
    "two  spaces",
    "#hash?query=1&x=y",
    "NULL",
    "null",
    "0",
    "\U0001f511",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\u0645\u0641\u062a\u0627\u062d",
    "\u202ertl",
    "\u7530\u4e2d",
    "k" * KEY_BYTES_MAX,
    "\U0001f511" * (KEY_BYTES_MAX // 4),
    "\ufeffbom",
    "\uffff",
]

TWINS = [
    ("Key", "key"),
    ("stra\u00dfe", "strasse"),
    ("\u0130", "i"),
    (unicodedata.normalize("NFC", "caf\u00e9"), unicodedata.normalize("NFD", "caf\u00e9")),
    ("a", "a "),
    ("a", " a"),
    ("a", "\uff41"),
    ("a/b", "a//b"),
    ("1", "1.0"),
    ("x" * 511 + "a", "x" * 511 + "b"),
    ("a\u200b", "a"),
]


class NameCases:
    """Keys and namespaces."""

    @pytest.mark.parametrize("key", HOSTILE_KEYS, ids=ascii)
    @scenario
    async def test_a_hostile_key_round_trips(self, lab: Lab, key: str) -> None:
        assert check_key(key) == key
        a, b = await lab.host("a"), await lab.host("b")
        grant = await a.own(key)
        assert (await b.is_refused(key)).owner == a.owner()
        assert (await a.record(key)).key == key
        page = await a.leases.list(prefix=key, owner=None, active=True, after=None, limit=10)
        assert [record.key for record in page] == [key]
        grant = await a.renew(grant)
        assert [entry.key for entry in await a.leases.history(key, limit=1)] == [key]
        await a.leases.release(grant)
        await b.own(key)
        (broken,) = await a.leases.break_lease(key, reason="test")
        assert broken.key == key

    @pytest.mark.parametrize("twins", TWINS, ids=ascii)
    @scenario
    async def test_similar_keys_are_different_keys(self, lab: Lab, twins: tuple[str, str]) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        one, two = twins
        await a.own(one)
        await b.own(two)
        assert (await a.record(one)).owner == a.owner()
        assert (await a.record(two)).owner == b.owner()

    @scenario
    async def test_owners_are_compared_exactly(self, lab: Lab) -> None:
        a = await lab.host("a")
        await a.own("k", "x")
        for stranger in ("X", "x ", "x%", "_", "%"):
            await a.is_refused("k", stranger)


class NamespaceCases:
    """The same key in two namespaces is two keys."""

    @scenario
    async def test_the_same_key_is_owned_in_each_namespace(self, lab: Lab) -> None:
        one, two = await lab.host("a", "one"), await lab.host("b", "two")
        await one.own("k")
        await two.own("k")
        assert (await one.record("k")).owner == one.owner()
        assert (await two.record("k")).owner == two.owner()

    @scenario
    async def test_what_another_namespace_owns_is_not_to_be_seen(self, lab: Lab) -> None:
        one, two = await lab.host("a", "one"), await lab.host("b", "two")
        await one.own("k")
        assert len(await two.leases.get("k")) == 0
        page = await two.leases.list(prefix="", owner=None, active=False, after=None, limit=10)
        assert len(page) == 0
        assert len(await two.leases.history("k", limit=10)) == 0

    @scenario
    async def test_a_grant_of_another_namespace_is_fenced(self, lab: Lab) -> None:
        one, two = await lab.host("a", "one"), await lab.host("b", "two")
        grant = await one.own("k")
        with pytest.raises(Fenced):
            await two.leases.renew(grant, 60_000_000)
        with pytest.raises(Fenced):
            await two.leases.release(grant)
        assert (await one.record("k")).active

    @scenario
    async def test_a_break_does_not_cross_namespaces(self, lab: Lab) -> None:
        one, two = await lab.host("a", "one"), await lab.host("b", "two")
        grant = await one.own("k")
        with pytest.raises(LeaseNotFound):
            await two.leases.break_lease("k", reason="test")
        await two.own("k")
        await two.leases.break_lease("k", reason="test")
        await one.renew(grant)

    @scenario
    async def test_tokens_and_state_belong_to_the_namespace(self, lab: Lab) -> None:
        one, two = await lab.host("a", "one"), await lab.host("b", "two")
        await one.renew(await one.own("k"), state="secret")
        assert (await two.own("k")).state is None

    @scenario
    async def test_queues_belong_to_the_namespace(self, lab: Lab) -> None:
        lab.require("fifo")
        one, two = await lab.host("a", "one"), await lab.host("b", "two")
        await one.own("k")
        grant = await two.own("k")
        place = await one.queue("k", "2")
        await two.leases.leave("k", place, one.owner("2"))
        assert (await one.record("k")).waiters == 1
        assert (await two.record("k")).waiters == 0
        await two.leases.release(grant)
        await two.own("k", "3")

    @scenario
    async def test_similar_namespaces_are_different(self, lab: Lab) -> None:
        for name in ("ns", "NS", "ns.", "ns-1", "ns_1", "nsx1"):
            member = await lab.host("a", name)
            await member.own("k")
