"""Cases of acquiring: new, held and expired keys, lost replies, and hosts that resume."""

from __future__ import annotations

import pytest

from outlive.errors import Fenced, LeaseLost
from outlive.model.lease import Held
from outlive.serialization import decode_metadata
from outlive.testing.conformance.lab import LONG_S, Lab, scenario


class AcquireCases:
    """Who gets a key, and under which token."""

    @scenario
    async def test_a_new_key_is_granted(self, lab: Lab) -> None:
        a = await lab.host("a")
        grant = await a.own("k")
        assert grant.token >= 1
        assert grant.version >= 1
        assert grant.slot == 0
        assert grant.ttl_us == LONG_S * 1e6
        assert grant.state is None
        assert grant.previous_owner is None

    @scenario
    async def test_a_held_key_is_refused_and_its_owner_named(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        await a.own("k")
        held = await b.is_refused("k")
        assert held.owner == a.owner()
        assert held.waiter is None
        assert held.limit == 1
        assert 0 < held.retry_in_s <= LONG_S + 1

    @scenario
    async def test_another_task_of_the_same_host_is_refused_too(self, lab: Lab) -> None:
        a = await lab.host("a")
        await a.own("k", "1")
        held = await a.is_refused("k", "2")
        assert held.owner == a.owner("1")

    @scenario
    async def test_a_refusal_leaves_the_owner_untouched(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        grant = await a.own("k")
        await b.is_refused("k", ttl=1.0, metadata='{"by":"b"}')
        record = await b.record("k")
        assert (record.owner, record.token) == (a.owner(), grant.token)
        assert decode_metadata(record.metadata) == {}
        await a.renew(grant)

    @scenario
    async def test_an_expired_key_is_taken_over_with_a_greater_token(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        old = await a.own_briefly("k")
        await lab.expire()
        new = await b.own("k")
        assert new.token > old.token
        assert new.previous_owner == a.owner()

    @scenario
    async def test_a_key_is_not_taken_over_before_it_expires(self, lab: Lab) -> None:
        lab.require_expiry()
        a, b = await lab.host("a"), await lab.host("b")
        start = lab.clock.monotonic()
        await a.own_briefly("k")
        await lab.advance(lab.short_s / 2)
        outcome = await b.attempt("k")
        lab.judge_within(lab.short_s, since=start)
        assert isinstance(outcome, Held)

    @scenario
    async def test_the_refused_learn_when_the_owner_expires(self, lab: Lab) -> None:
        lab.require_expiry()
        a, b = await lab.host("a"), await lab.host("b")
        await a.own_briefly("k")
        held = await b.is_refused("k")
        assert 0 < held.retry_in_s <= lab.takeover_s(lab.short_s) + 0.001
        await lab.advance(held.retry_in_s + 0.1)
        await b.own("k")

    @scenario
    async def test_tokens_strictly_grow_over_release(self, lab: Lab) -> None:
        a = await lab.host("a")
        tokens: list[int] = []
        for number in range(5):
            grant = await a.own("k", str(number))
            tokens.append(grant.token)
            await a.leases.release(grant)
        assert tokens == sorted(set(tokens))

    @scenario
    async def test_tokens_strictly_grow_over_release_expiry_and_break(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        first = await a.own("k", "1")
        await a.leases.release(first)
        second = await b.own_briefly("k", "2")
        await lab.expire()
        third = await a.own("k", "3")
        await b.leases.break_lease("k", reason="test")
        fourth = await b.own("k", "4")
        assert first.token < second.token < third.token < fourth.token

    @scenario
    async def test_a_key_freed_by_release_has_no_previous_owner(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        await a.leases.release(await a.own("k"))
        assert (await b.own("k")).previous_owner is None

    @scenario
    async def test_a_lost_reply_is_repeated_under_the_same_token(self, lab: Lab) -> None:
        a = await lab.host("a")
        first = await a.own("k")
        again = await a.own("k")
        assert again.token == first.token
        assert again.version > first.version
        assert again.previous_owner is None

    @scenario
    async def test_a_repeated_acquire_counts_the_ttl_anew(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        await a.own_briefly("k")
        await a.own("k")
        await lab.expire()
        await b.is_refused("k")

    @scenario
    async def test_the_first_reply_stays_good_after_a_repeat(self, lab: Lab) -> None:
        a = await lab.host("a")
        first = await a.own("k")
        await a.own("k")
        await a.renew(first)
        await a.leases.release(first)

    @scenario
    async def test_the_same_owner_may_repeat_after_expiry(self, lab: Lab) -> None:
        # Nobody took the key, so no write of anybody else lies between: keeping the token is
        # safe, and so is a greater one. A lower one never is.
        a, b = await lab.host("a"), await lab.host("b")
        first = await a.own_briefly("k")
        await lab.end("k")
        again = await a.own("k")
        assert again.token >= first.token
        await b.is_refused("k")

    @scenario
    async def test_the_same_owner_does_not_get_back_what_was_taken(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        await a.own_briefly("k")
        await lab.end("k")
        await b.own("k")
        assert (await a.is_refused("k")).owner == b.owner()

    @scenario
    async def test_an_owner_that_was_broken_acquires_with_a_greater_token(self, lab: Lab) -> None:
        a = await lab.host("a")
        first = await a.own("k")
        await a.leases.break_lease("k", reason="test")
        assert (await a.own("k")).token > first.token

    @scenario
    async def test_metadata_belongs_to_the_grant(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        await a.leases.release(await a.own("k", metadata='{"from":"a"}'))
        await b.own("k", metadata='{"from":"b"}')
        assert decode_metadata((await a.record("k")).metadata) == {"from": "b"}


class ResumeCases:
    """``resume=True``: a restarted host takes back what its former self still owns."""

    @scenario
    async def test_a_restarted_host_resumes_at_once(self, lab: Lab) -> None:
        web = await lab.host("web-1")
        old = await web.own("k", "x")
        new = await (await lab.host("web-1")).own("k", "y", resume=True)
        assert new.token > old.token
        assert new.previous_owner == "web-1/x"

    @scenario
    async def test_the_former_self_is_fenced(self, lab: Lab) -> None:
        web = await lab.host("web-1")
        old = await web.own("k", "x")
        await web.own("k", "y", resume=True)
        with pytest.raises(Fenced):
            await web.renew(old)
        with pytest.raises(Fenced):
            await web.leases.release(old)

    @scenario
    async def test_without_resume_the_same_name_is_a_stranger(self, lab: Lab) -> None:
        web = await lab.host("web-1")
        await web.own("k", "x")
        await web.is_refused("k", "y")

    @pytest.mark.parametrize("other", ["web-10", "web-1x", "web-", "web", "Web-1", "web_1", "%"])
    @scenario
    async def test_another_name_cannot_resume(self, lab: Lab, other: str) -> None:
        web = await lab.host("web-1")
        grant = await web.own("k", "x")
        thief = await lab.host(other)
        assert (await thief.is_refused("k", "y", resume=True)).owner == "web-1/x"
        await web.renew(grant)

    @scenario
    async def test_a_pattern_in_the_own_name_matches_nobody_else(self, lab: Lab) -> None:
        victim = await lab.host("web-1")
        await victim.own("k", "x")
        for name in ("web%", "web__", "%", "web-_", "web-*"):
            await (await lab.host(name)).is_refused("k", "y", resume=True)

    @scenario
    async def test_resume_of_a_free_key_is_a_plain_grant(self, lab: Lab) -> None:
        web = await lab.host("web-1")
        grant = await web.own("k", "x", resume=True)
        assert grant.previous_owner is None

    @scenario
    async def test_resume_after_expiry_names_the_former_self(self, lab: Lab) -> None:
        web = await lab.host("web-1")
        old = await web.own_briefly("k", "x")
        await lab.expire()
        new = await web.own("k", "y", resume=True)
        assert new.token > old.token
        assert new.previous_owner == "web-1/x"
        with pytest.raises(LeaseLost):
            await web.renew(old)
