"""Cases of renewing: who may, what it changes, and that nothing expired ever revives."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from outlive.errors import Fenced, LeaseExpired
from outlive.names import Owner, Token
from outlive.testing.conformance.lab import LONG_S, Lab, scenario


class RenewCases:
    """Renewal is for the newest grant alone, and only while it lasts."""

    @scenario
    async def test_a_renewal_keeps_the_token_and_raises_the_version(self, lab: Lab) -> None:
        a = await lab.host("a")
        grant = await a.own("k")
        renewed = await a.renew(grant)
        assert renewed.token == grant.token
        assert renewed.version > grant.version
        assert (renewed.key, renewed.slot, renewed.owner) == ("k", grant.slot, grant.owner)

    @scenario
    async def test_a_renewed_lease_outlives_its_first_ttl(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        grant = await a.own_briefly("k")
        await a.renew(grant)
        await lab.expire()
        await b.is_refused("k")

    @scenario
    async def test_a_renewal_may_shorten_the_lease(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        grant = await a.own("k")
        await a.renew(grant, lab.short_s)
        await lab.expire()
        await b.own("k")

    @scenario
    async def test_renewing_twice_with_the_same_grant_is_fine(self, lab: Lab) -> None:
        # The first renewal's reply may have been lost.
        a = await lab.host("a")
        grant = await a.own("k")
        first = await a.renew(grant)
        second = await a.renew(grant)
        assert second.token == first.token == grant.token
        assert second.version > first.version

    @scenario
    async def test_renewals_never_pile_up(self, lab: Lab) -> None:
        a = await lab.host("a")
        grant = await a.own("k")
        ttl_s = max(10.0, lab.short_s)
        for _ in range(5):
            grant = await a.renew(grant, ttl_s)
        record = await a.record("k")
        assert record.remaining_s <= ttl_s
        assert record.ttl_s == ttl_s

    @scenario
    async def test_a_stranger_cannot_renew_with_a_seen_token(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        grant = await a.own("k")
        with pytest.raises(Fenced):
            await b.renew(replace(grant, owner=b.owner()))
        with pytest.raises(Fenced):
            await b.renew(replace(grant, owner=Owner("a")))

    @scenario
    async def test_a_forged_token_cannot_renew(self, lab: Lab) -> None:
        a = await lab.host("a")
        grant = await a.own("k")
        for forged in (grant.token + 1, grant.token - 1, 0, -1):
            with pytest.raises(Fenced):
                await a.renew(replace(grant, token=Token(forged)))
        await a.renew(grant)

    @scenario
    async def test_a_key_never_granted_cannot_be_renewed(self, lab: Lab) -> None:
        a = await lab.host("a")
        grant = await a.own("k")
        with pytest.raises(Fenced):
            await a.renew(replace(grant, key="other"))
        assert len(await a.leases.get("other")) == 0

    @scenario
    async def test_an_expired_lease_never_revives(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        grant = await a.own_briefly("k")
        await lab.expire()
        for _ in range(2):
            with pytest.raises(LeaseExpired) as raised:
                await a.renew(grant)
            assert raised.value.reason == "expired"
        assert not (await a.record("k")).active
        await b.own("k")

    @scenario
    async def test_a_renewed_lease_expires_too(self, lab: Lab) -> None:
        a = await lab.host("a")
        grant = await a.renew(await a.own("k"), lab.short_s)
        await lab.expire()
        with pytest.raises(LeaseExpired):
            await a.renew(grant)

    @scenario
    async def test_a_released_lease_cannot_be_renewed(self, lab: Lab) -> None:
        a = await lab.host("a")
        grant = await a.own("k")
        await a.leases.release(grant)
        with pytest.raises(Fenced) as raised:
            await a.renew(grant)
        assert raised.value.reason == "fenced"

    @scenario
    async def test_a_broken_lease_cannot_be_renewed(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        grant = await a.own("k")
        await b.leases.break_lease("k", reason="stuck")
        with pytest.raises(Fenced) as raised:
            await a.renew(grant)
        assert raised.value.reason == ("broken" if lab.capabilities.history else "fenced")
        assert raised.value.key == "k"

    @scenario
    async def test_stale_owner_is_fenced(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        stale = await a.own_briefly("k")
        await lab.end("k")
        newest = await b.own("k")
        with pytest.raises(Fenced) as raised:
            await a.renew(stale)
        assert raised.value.reason == "fenced"
        await b.renew(newest)

    @scenario
    async def test_stale_owner_stays_fenced_after_the_new_one_released(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        stale = await a.own_briefly("k")
        await lab.end("k")
        await b.leases.release(await b.own("k"))
        with pytest.raises(Fenced):
            await a.renew(stale)

    @scenario
    async def test_a_refused_renewal_changes_nothing(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        grant = await a.own("k")
        before = await a.record("k")
        with pytest.raises(Fenced):
            await b.renew(replace(grant, owner=b.owner()), LONG_S / 2, state="stolen")
        after = await a.record("k")
        assert (after.version, after.ttl_s, after.state) == (before.version, before.ttl_s, None)


class StateCases:
    """The text that the owners of a key keep with it."""

    @scenario
    async def test_state_is_kept_by_a_renewal(self, lab: Lab) -> None:
        a = await lab.host("a")
        grant = await a.renew(await a.own("k"), state="page 7")
        assert grant.state == "page 7"
        assert (await a.record("k")).state == "page 7"
        assert (await a.renew(grant)).state == "page 7"

    @scenario
    async def test_state_is_replaced_and_may_be_empty_or_hostile(self, lab: Lab) -> None:
        a = await lab.host("a")
        grant = await a.own("k")
        for state in ("'; DROP TABLE lease; --", "", "\N{SNOWMAN}\U0001f600 %s {}", "x" * 4000):
            grant = await a.renew(grant, state=state)
            assert (await a.record("k")).state == state

    @scenario
    async def test_state_survives_release_for_the_next_owner(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        grant = await a.renew(await a.own("k"), state="page 7")
        await a.leases.release(grant)
        assert (await b.own("k")).state == "page 7"

    @scenario
    async def test_state_survives_expiry_and_break(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        await a.renew(await a.own("k"), lab.short_s, state="page 7")
        await lab.end("k")
        assert (await b.own("k")).state == "page 7"
        await a.leases.break_lease("k", reason="test")
        assert (await a.own("k", "2")).state == "page 7"

    @scenario
    async def test_state_is_told_to_a_repeated_acquire(self, lab: Lab) -> None:
        a = await lab.host("a")
        await a.renew(await a.own("k"), state="page 7")
        assert (await a.own("k")).state == "page 7"

    @scenario
    async def test_an_expired_owner_cannot_write_state(self, lab: Lab) -> None:
        a = await lab.host("a")
        grant = await a.own_briefly("k")
        await lab.expire()
        with pytest.raises(LeaseExpired):
            await a.renew(grant, state="late")
        assert (await a.record("k")).state is None
