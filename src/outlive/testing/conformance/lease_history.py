"""Cases of history: who owned a key, under which token, from when to when, and why it ended.

Those that look at ended grants ask for the promise ``history``.
"""

from __future__ import annotations

from itertools import pairwise

from outlive.model.lease import HISTORY_MAX, Ended
from outlive.testing.conformance.lab import Lab, scenario

# Pruning may run behind by a batch: that is cheaper than pruning with every grant.
PRUNE_SLACK = 32


class HistoryCases:
    """Entries of one key, newest first."""

    @scenario
    async def test_the_present_owner_comes_first_and_has_not_ended(self, lab: Lab) -> None:
        a = await lab.host("a")
        grant = await a.own("k")
        (entry,) = await a.leases.history("k", limit=10)
        assert (entry.key, entry.owner, entry.token) == ("k", a.owner(), grant.token)
        assert (entry.ended, entry.ended_at, entry.detail) == (None, None, None)
        assert entry.acquired_at.utcoffset() is not None

    @scenario
    async def test_a_key_never_granted_has_no_history(self, lab: Lab) -> None:
        a = await lab.host("a")
        assert len(await a.leases.history("nobody", limit=10)) == 0

    @scenario
    async def test_renewals_and_repeats_make_no_entries(self, lab: Lab) -> None:
        a = await lab.host("a")
        await a.renew(await a.own("k"))
        await a.own("k")
        assert len(await a.leases.history("k", limit=10)) == 1

    @scenario
    async def test_each_grant_leaves_who_when_and_why(self, lab: Lab) -> None:
        lab.require("history")
        a, b = await lab.host("a"), await lab.host("b")
        released = await a.own("k", "1")
        await lab.advance(0.01)
        await a.leases.release(released)
        expired = await a.own_briefly("k", "2")
        await lab.expire()
        broken = await b.own("k", "3")
        await a.leases.break_lease("k", reason="stuck since noon")
        resumed = await b.own("k", "4")
        present = await b.own("k", "5", resume=True)
        entries = await a.leases.history("k", limit=10)
        assert [(entry.owner, entry.token, entry.ended) for entry in entries] == [
            ("b/5", present.token, None),
            ("b/4", resumed.token, Ended.RESUMED),
            ("b/3", broken.token, Ended.BROKEN),
            ("a/2", expired.token, Ended.EXPIRED),
            ("a/1", released.token, Ended.RELEASED),
        ]
        assert entries[2].detail == "stuck since noon"
        for newer, older in pairwise(entries):
            assert older.ended_at is not None
            assert older.acquired_at <= older.ended_at <= newer.acquired_at

    @scenario
    async def test_a_free_key_keeps_its_history(self, lab: Lab) -> None:
        lab.require("history")
        a = await lab.host("a")
        await a.leases.release(await a.own("k"))
        (entry,) = await a.leases.history("k", limit=10)
        assert entry.ended is Ended.RELEASED

    @scenario
    async def test_a_limit_keeps_the_newest(self, lab: Lab) -> None:
        lab.require("history")
        a = await lab.host("a")
        tokens: list[int] = []
        for number in range(6):
            grant = await a.own("k", str(number))
            tokens.append(grant.token)
            await a.leases.release(grant)
        entries = await a.leases.history("k", limit=3)
        assert [entry.token for entry in entries] == tokens[:-4:-1]

    @scenario
    async def test_every_slot_of_a_semaphore_has_its_entry(self, lab: Lab) -> None:
        lab.require("history", "semaphore")
        a = await lab.host("a")
        grants = [await a.own("k", str(number), limit=2) for number in range(2)]
        await a.leases.release(grants[0])
        entries = {entry.token: entry for entry in await a.leases.history("k", limit=10)}
        assert entries[grants[0].token].ended is Ended.RELEASED
        assert entries[grants[1].token].ended is None
        assert entries[grants[1].token].slot == grants[1].slot

    @scenario
    async def test_history_is_bounded(self, lab: Lab) -> None:
        lab.require("history")
        a = await lab.host("a")
        newest = 0
        for number in range(HISTORY_MAX + PRUNE_SLACK + 40):
            grant = await a.own("k", str(number))
            newest = grant.token
            await a.leases.release(grant)
        entries = await a.leases.history("k", limit=1000)
        assert HISTORY_MAX <= len(entries) <= HISTORY_MAX + PRUNE_SLACK
        assert entries[0].token == newest
        tokens = [entry.token for entry in entries]
        assert tokens == sorted(tokens, reverse=True)
