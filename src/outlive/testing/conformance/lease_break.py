"""Cases of breaking: an operator ends what somebody else owns."""

from __future__ import annotations

import pytest

from outlive.errors import LeaseNotFound
from outlive.serialization import decode_metadata
from outlive.testing.conformance.lab import Lab, scenario


class BreakCases:
    """A break ends every grant of a key and leaves a greater token behind."""

    @scenario
    async def test_breaking_a_held_key_returns_who_owned_it(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        grant = await a.own("k", metadata='{"pid":7}')
        (broken,) = await b.leases.break_lease("k", reason="stuck")
        assert (broken.key, broken.owner, broken.token) == ("k", a.owner(), grant.token)
        assert broken.active
        assert decode_metadata(broken.metadata) == {"pid": 7}

    @scenario
    async def test_a_broken_key_is_free_under_a_greater_token(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        grant = await a.own("k")
        await b.leases.break_lease("k", reason="stuck")
        record = await b.record("k")
        assert (record.owner, record.active) == (None, False)
        # Greater already now: a resource that asks the store must refuse the old owner at once.
        assert record.token > grant.token
        assert (await b.own("k")).token > grant.token

    @scenario
    async def test_breaking_a_free_key_changes_nothing(self, lab: Lab) -> None:
        a = await lab.host("a")
        grant = await a.own("k")
        await a.leases.release(grant)
        assert list(await a.leases.break_lease("k", reason="stuck")) == []
        assert (await a.record("k")).token == grant.token

    @scenario
    async def test_breaking_twice_breaks_once(self, lab: Lab) -> None:
        a = await lab.host("a")
        await a.own("k")
        assert len(await a.leases.break_lease("k", reason="stuck")) == 1
        token = await a.token("k")
        assert list(await a.leases.break_lease("k", reason="stuck")) == []
        assert await a.token("k") == token

    @scenario
    async def test_breaking_what_expired_returns_nothing(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        grant = await a.own_briefly("k")
        await lab.end("k")
        assert list(await b.leases.break_lease("k", reason="stuck")) == []
        assert (await b.own("k")).token > grant.token

    @scenario
    async def test_breaking_a_key_never_granted_says_not_found(self, lab: Lab) -> None:
        a = await lab.host("a")
        with pytest.raises(LeaseNotFound) as raised:
            await a.leases.break_lease("nobody", reason="stuck")
        assert raised.value.key == "nobody"

    @scenario
    async def test_a_broken_key_passes_to_nobody_by_itself(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        await a.own("k")
        await b.leases.break_lease("k", reason="'; DROP TABLE x; --")
        assert (await b.record("k")).owner is None
