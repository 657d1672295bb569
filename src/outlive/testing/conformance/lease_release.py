"""Cases of releasing: by the owner, once; and by nobody else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from outlive.errors import Fenced
from outlive.names import Token
from outlive.testing.conformance.lab import Lab, scenario


class ReleaseCases:
    """A release ends exactly one grant and keeps the token."""

    @scenario
    async def test_a_released_key_is_free_at_once(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        await a.leases.release(await a.own("k"))
        record = await b.record("k")
        assert record.owner is None
        assert not record.active
        assert record.remaining_s == 0
        assert record.expires_at is None
        await b.own("k")

    @scenario
    async def test_a_release_keeps_the_token(self, lab: Lab) -> None:
        a = await lab.host("a")
        grant = await a.own("k")
        await a.leases.release(grant)
        assert (await a.record("k")).token == grant.token

    @scenario
    async def test_a_renewed_grant_and_its_first_form_both_release(self, lab: Lab) -> None:
        a = await lab.host("a")
        first = await a.own("k")
        await a.renew(first)
        await a.leases.release(first)
        second = await a.own("k", "2")
        await a.leases.release(await a.renew(second))

    @scenario
    async def test_a_second_release_is_fenced(self, lab: Lab) -> None:
        a = await lab.host("a")
        grant = await a.own("k")
        await a.leases.release(grant)
        with pytest.raises(Fenced):
            await a.leases.release(grant)

    @scenario
    async def test_a_late_second_release_does_not_free_the_next_owner(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        stale = await a.own("k")
        await a.leases.release(stale)
        newest = await b.own("k")
        with pytest.raises(Fenced):
            await a.leases.release(stale)
        await b.renew(newest)

    @scenario
    async def test_a_stranger_cannot_release(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        grant = await a.own("k")
        with pytest.raises(Fenced):
            await b.leases.release(replace(grant, owner=b.owner()))
        await b.is_refused("k")
        await a.renew(grant)

    @scenario
    async def test_a_forged_token_cannot_release(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        grant = await a.own("k")
        for forged in (grant.token + 1, grant.token - 1, 0):
            with pytest.raises(Fenced):
                await a.leases.release(replace(grant, token=Token(forged)))
        await b.is_refused("k")

    @scenario
    async def test_a_key_never_granted_cannot_be_released(self, lab: Lab) -> None:
        a = await lab.host("a")
        grant = await a.own("k")
        with pytest.raises(Fenced):
            await a.leases.release(replace(grant, key="other"))
        assert len(await a.leases.get("other")) == 0

    @scenario
    async def test_releasing_what_expired_untaken_is_fine(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        grant = await a.own_briefly("k")
        await lab.expire()
        await a.leases.release(grant)
        assert (await b.own("k")).token > grant.token

    @scenario
    async def test_releasing_what_was_taken_over_is_fenced(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        stale = await a.own_briefly("k")
        await lab.end("k")
        newest = await b.own("k")
        with pytest.raises(Fenced):
            await a.leases.release(stale)
        await b.renew(newest)

    @scenario
    async def test_releasing_what_was_broken_is_fenced(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        grant = await a.own("k")
        await b.leases.break_lease("k", reason="stuck")
        with pytest.raises(Fenced) as raised:
            await a.leases.release(grant)
        assert raised.value.reason == ("broken" if lab.capabilities.history else "fenced")

    @scenario
    async def test_a_fenced_release_keeps_a_free_key_free(self, lab: Lab) -> None:
        a = await lab.host("a")
        grant = await a.own("k")
        await a.leases.release(grant)
        with pytest.raises(Fenced):
            await a.leases.release(grant)
        record = await a.record("k")
        assert (record.owner, record.token) == (None, grant.token)
