"""The suite of the ``TokenStore`` port: bearer tokens are found, end, and leave a trace."""

from __future__ import annotations

import pytest

from outlive.errors import StoreUnavailable
from outlive.model.bearer import Act, NewBearer, Scope
from outlive.names import BearerId
from outlive.ports.token_store import TokenStore
from outlive.testing.conformance.lab import Lab, scenario


async def tokens_of(lab: Lab, namespace: str = "default") -> TokenStore:
    """The token store of one more host; skips where the backend keeps none."""
    driver = await lab.open("a", namespace)
    if driver.tokens is None:
        pytest.skip(f"{lab.capabilities.backend} keeps no bearer tokens")
    return driver.tokens


def bearer(name: str, ttl_s: float | None = None) -> NewBearer:
    """A token as somebody asks for it."""
    return NewBearer(
        id=BearerId(f"id-of-{name}"),
        name=name,
        digest=f"digest-of-{name}",
        scopes=(Scope.READ, Scope.PAYLOAD),
        ttl_us=None if ttl_s is None else round(ttl_s * 1e6),
    )


class TokenStoreSuite:
    """What every ``TokenStore`` does. A subclass defines the ``lab`` fixture."""

    @pytest.fixture
    def lab(self) -> Lab:
        raise AssertionError("a driver's suite defines a fixture that returns its Lab")

    @scenario
    async def test_a_token_is_found_by_its_digest_alone(self, lab: Lab) -> None:
        tokens = await tokens_of(lab)
        await tokens.create(bearer("ci"), actor="ann")
        found = await tokens.find("digest-of-ci")
        assert found is not None
        assert (found.id, found.name) == ("id-of-ci", "ci")
        assert found.scopes == (Scope.READ, Scope.PAYLOAD)
        assert found.active
        assert (found.expires_at, found.revoked_at) == (None, None)
        assert await tokens.find("digest-of-nobody") is None
        assert await tokens.find("id-of-ci") is None

    @scenario
    async def test_creating_twice_is_a_repeat_and_one_act(self, lab: Lab) -> None:
        tokens = await tokens_of(lab)
        await tokens.create(bearer("ci"), actor="ann")
        await tokens.create(bearer("ci"), actor="ann")
        assert len(await tokens.list(limit=10)) == 1
        assert len(await tokens.acts(limit=10)) == 1

    @scenario
    async def test_tokens_are_listed_newest_first_within_the_limit(self, lab: Lab) -> None:
        tokens = await tokens_of(lab)
        for name in ("a", "b", "c"):
            await tokens.create(bearer(name), actor="ann")
            await lab.advance(0.002)
        assert [found.name for found in await tokens.list(limit=2)] == ["c", "b"]
        assert len(await tokens.list(limit=10)) == 3
        assert list(await tokens.list(limit=0)) == []

    @scenario
    async def test_an_expired_token_is_found_and_not_active(self, lab: Lab) -> None:
        tokens = await tokens_of(lab)
        await tokens.create(bearer("ci", 0.3), actor="ann")
        found = await tokens.find("digest-of-ci")
        assert found is not None
        assert found.active
        assert found.expires_at is not None
        await lab.advance(0.4)
        found = await tokens.find("digest-of-ci")
        assert found is not None
        assert not found.active
        assert [listed.active for listed in await tokens.list(limit=10)] == [False]

    @scenario
    async def test_a_revoked_token_ends_at_once_and_for_good(self, lab: Lab) -> None:
        tokens, others = await tokens_of(lab), await tokens_of(lab)
        await tokens.create(bearer("ci"), actor="ann")
        revoked = await tokens.revoke(BearerId("id-of-ci"), actor="bob")
        assert revoked is not None
        assert not revoked.active
        again = await others.revoke(BearerId("id-of-ci"), actor="eve")
        assert again == revoked
        found = await others.find("digest-of-ci")
        assert found == revoked
        await others.create(bearer("ci"), actor="ann")
        assert await others.find("digest-of-ci") == revoked

    @scenario
    async def test_a_token_that_is_not_there_cannot_be_revoked(self, lab: Lab) -> None:
        tokens = await tokens_of(lab)
        assert await tokens.revoke(BearerId("never-was"), actor="ann") is None
        assert list(await tokens.acts(limit=10)) == []

    @scenario
    async def test_acts_tell_who_did_what_newest_first(self, lab: Lab) -> None:
        tokens = await tokens_of(lab)
        await tokens.create(bearer("ci"), actor="ann")
        await tokens.record(Act(actor="ann", action="queue pause", subject="e-mails \u2603"))
        await tokens.revoke(BearerId("id-of-ci"), actor="bob")
        await tokens.revoke(BearerId("id-of-ci"), actor="bob")
        acts = await tokens.acts(limit=10)
        assert [(act.actor, act.action, act.subject) for act in acts] == [
            ("bob", "token revoke", "id-of-ci"),
            ("ann", "queue pause", "e-mails \u2603"),
            ("ann", "token create", "id-of-ci"),
        ]
        assert all(act.at is not None for act in acts)
        assert len(await tokens.acts(limit=1)) == 1
        assert list(await tokens.acts(limit=0)) == []

    @scenario
    async def test_namespaces_do_not_see_each_other(self, lab: Lab) -> None:
        one, two = await tokens_of(lab, "one"), await tokens_of(lab, "two")
        await one.create(bearer("ci"), actor="ann")
        assert await two.find("digest-of-ci") is None
        assert await two.revoke(BearerId("id-of-ci"), actor="eve") is None
        assert list(await two.list(limit=10)) == []
        assert list(await two.acts(limit=10)) == []
        found = await one.find("digest-of-ci")
        assert found is not None
        assert found.active

    @scenario
    async def test_every_call_after_close_says_unavailable(self, lab: Lab) -> None:
        driver = await lab.open()
        tokens = driver.tokens
        if tokens is None:
            pytest.skip(f"{lab.capabilities.backend} keeps no bearer tokens")
        await driver.close()
        with pytest.raises(StoreUnavailable):
            await tokens.create(bearer("ci"), actor="ann")
        with pytest.raises(StoreUnavailable):
            await tokens.find("digest")
        with pytest.raises(StoreUnavailable):
            await tokens.acts(limit=1)
