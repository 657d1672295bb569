"""The suite of the ``HostStore`` port: sessions live, expire, and are reaped exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from outlive.errors import Fenced, LeaseExpired, StoreUnavailable
from outlive.model.session import HostSession
from outlive.names import HostId
from outlive.ports.host_store import HostStore
from outlive.testing.conformance.lab import LONG_S, Lab, scenario


async def sessions_of(lab: Lab, namespace: str = "default") -> HostStore:
    """The session store of one more host; skips where the backend keeps none."""
    lab.require("sessions")
    driver = await lab.open("a", namespace)
    assert driver.hosts is not None
    return driver.hosts


def session(name: str, ttl_s: float = LONG_S, metadata: str = "{}") -> HostSession:
    """A session as a host asks for it."""
    return HostSession(
        id=HostId(f"id-of-{name}"), name=name, ttl_us=round(ttl_s * 1e6), metadata=metadata
    )


async def names_in(hosts: HostStore) -> list[str]:
    """The names of the sessions that have not ended, in order."""
    return [found.name for found in await hosts.list(limit=100)]


class HostStoreSuite:
    """What every ``HostStore`` does. A subclass defines the ``lab`` fixture."""

    @pytest.fixture
    def lab(self) -> Lab:
        raise AssertionError("a driver's suite defines a fixture that returns its Lab")

    @scenario
    async def test_an_open_session_is_listed(self, lab: Lab) -> None:
        hosts = await sessions_of(lab)
        await hosts.open(session("web", metadata='{"pid":7}'))
        (found,) = await hosts.list(limit=10)
        assert (found.id, found.name) == ("id-of-web", "web")
        assert found.alive
        assert 0 < found.remaining_s <= LONG_S
        assert found.started_at is not None
        assert found.metadata.replace(" ", "") == '{"pid":7}'

    @scenario
    async def test_sessions_are_listed_oldest_first_within_the_limit(self, lab: Lab) -> None:
        hosts = await sessions_of(lab)
        for name in ("c", "a", "b"):
            await hosts.open(session(name))
            await lab.advance(0.002)
        assert await names_in(hosts) == ["c", "a", "b"]
        assert [found.name for found in await hosts.list(limit=2)] == ["c", "a"]

    @scenario
    async def test_one_session_is_got_by_its_id(self, lab: Lab) -> None:
        hosts = await sessions_of(lab)
        for name in ("web", "api"):
            await hosts.open(session(name, metadata='{"pid":7}'))
        await hosts.renew(HostId("id-of-web"), 90_000_000)
        found = await hosts.get(HostId("id-of-web"))
        assert found is not None
        assert (found.id, found.name, found.ttl_us) == ("id-of-web", "web", 90_000_000)
        assert found.alive
        assert 0 < found.remaining_s <= 90
        assert found.started_at is not None
        assert found.metadata.replace(" ", "") == '{"pid":7}'

    @scenario
    async def test_a_session_that_expired_is_got_as_dead(self, lab: Lab) -> None:
        hosts = await sessions_of(lab)
        await hosts.open(session("web", lab.short_s))
        await lab.expire()
        found = await hosts.get(HostId("id-of-web"))
        assert found is not None
        assert not found.alive
        assert found.remaining_s == 0

    @scenario
    async def test_a_session_that_ended_or_never_was_is_not_got(self, lab: Lab) -> None:
        hosts, elsewhere = await sessions_of(lab), await sessions_of(lab, "other")
        await hosts.open(session("web"))
        assert await elsewhere.get(HostId("id-of-web")) is None
        await hosts.close(HostId("id-of-web"))
        assert await hosts.get(HostId("id-of-web")) is None
        assert await hosts.get(HostId("never-was")) is None

    @scenario
    async def test_opening_twice_is_a_repeat(self, lab: Lab) -> None:
        hosts = await sessions_of(lab)
        await hosts.open(session("web"))
        await hosts.open(session("web"))
        assert await names_in(hosts) == ["web"]

    @scenario
    async def test_metadata_of_a_repeat_replaces_what_was_there(self, lab: Lab) -> None:
        hosts = await sessions_of(lab)
        await hosts.open(session("web", metadata='{"draining":false}'))
        (before,) = await hosts.list(limit=10)
        await lab.advance(0.002)
        await hosts.open(session("web", metadata='{"draining":true}'))
        (after,) = await hosts.list(limit=10)
        assert after.metadata.replace(" ", "") == '{"draining":true}'
        assert after.started_at == before.started_at

    @scenario
    async def test_a_renewed_session_lives_on(self, lab: Lab) -> None:
        hosts = await sessions_of(lab)
        await hosts.open(session("web", lab.short_s))
        await hosts.renew(HostId("id-of-web"), round(LONG_S * 1e6))
        await lab.expire()
        assert list(await hosts.reap(limit=10)) == []
        (found,) = await hosts.list(limit=10)
        assert found.alive

    @scenario
    async def test_an_expired_session_is_listed_as_dead(self, lab: Lab) -> None:
        hosts = await sessions_of(lab)
        await hosts.open(session("web", lab.short_s))
        await lab.expire()
        (found,) = await hosts.list(limit=10)
        assert not found.alive
        assert found.remaining_s == 0

    @scenario
    async def test_an_expired_session_never_revives(self, lab: Lab) -> None:
        hosts = await sessions_of(lab)
        await hosts.open(session("web", lab.short_s))
        await lab.expire()
        for _ in range(2):
            with pytest.raises(LeaseExpired):
                await hosts.renew(HostId("id-of-web"), 60_000_000)

    @scenario
    async def test_a_closed_session_is_gone(self, lab: Lab) -> None:
        hosts = await sessions_of(lab)
        await hosts.open(session("web"))
        await hosts.close(HostId("id-of-web"))
        assert await names_in(hosts) == []
        with pytest.raises(Fenced):
            await hosts.renew(HostId("id-of-web"), 60_000_000)

    @scenario
    async def test_closing_twice_or_a_stranger_is_fine(self, lab: Lab) -> None:
        hosts = await sessions_of(lab)
        await hosts.open(session("web"))
        await hosts.close(HostId("id-of-web"))
        await hosts.close(HostId("id-of-web"))
        await hosts.close(HostId("never-was"))

    @scenario
    async def test_a_session_never_opened_cannot_be_renewed(self, lab: Lab) -> None:
        hosts = await sessions_of(lab)
        with pytest.raises(Fenced):
            await hosts.renew(HostId("never-was"), 60_000_000)
        assert await names_in(hosts) == []

    @scenario
    async def test_the_id_of_a_closed_session_is_never_reused(self, lab: Lab) -> None:
        hosts = await sessions_of(lab)
        await hosts.open(session("web"))
        await hosts.close(HostId("id-of-web"))
        with pytest.raises(Fenced):
            await hosts.open(session("web"))

    @scenario
    async def test_the_id_of_a_reaped_session_is_never_reused(self, lab: Lab) -> None:
        hosts = await sessions_of(lab)
        await hosts.open(session("web", lab.short_s))
        await lab.expire()
        assert len(await hosts.reap(limit=10)) == 1
        with pytest.raises(Fenced):
            await hosts.open(session("web"))
        with pytest.raises(Fenced):
            await hosts.renew(HostId("id-of-web"), 60_000_000)

    @scenario
    async def test_only_the_expired_are_reaped(self, lab: Lab) -> None:
        hosts = await sessions_of(lab)
        await hosts.open(session("dead", lab.short_s))
        await hosts.open(session("alive"))
        await lab.expire()
        reaped = await hosts.reap(limit=10)
        assert [found.name for found in reaped] == ["dead"]
        assert not reaped[0].alive
        assert await names_in(hosts) == ["alive"]
        assert list(await hosts.reap(limit=10)) == []

    @scenario
    async def test_reaping_keeps_to_its_limit(self, lab: Lab) -> None:
        hosts = await sessions_of(lab)
        for number in range(5):
            await hosts.open(session(f"h{number}", lab.short_s))
        await lab.expire()
        sizes = [len(await hosts.reap(limit=2)) for _ in range(4)]
        assert sizes == [2, 2, 1, 0]

    @scenario
    async def test_two_reapers_never_return_the_same_session(self, lab: Lab) -> None:
        reapers = [await sessions_of(lab) for _ in range(4)]
        for number in range(20):
            await reapers[0].open(session(f"h{number}", lab.short_s))
        await lab.expire()
        reaped: list[Sequence[HostSession]] = []
        while batch := await asyncio.gather(*(reaper.reap(limit=3) for reaper in reapers)):
            reaped.extend(batch)
            if not any(batch):
                break
        ids = [found.id for found_by_one in reaped for found in found_by_one]
        assert len(ids) == 20
        assert len(set(ids)) == 20

    @scenario
    async def test_namespaces_do_not_see_each_other(self, lab: Lab) -> None:
        one, two = await sessions_of(lab, "one"), await sessions_of(lab, "two")
        await one.open(session("web", lab.short_s))
        assert await names_in(two) == []
        with pytest.raises(Fenced):
            await two.renew(HostId("id-of-web"), 60_000_000)
        await two.close(HostId("id-of-web"))
        assert await names_in(one) == ["web"]
        await lab.expire()
        assert list(await two.reap(limit=10)) == []
        assert len(await one.reap(limit=10)) == 1

    @scenario
    async def test_every_call_after_close_says_unavailable(self, lab: Lab) -> None:
        lab.require("sessions")
        driver = await lab.open()
        hosts = driver.hosts
        assert hosts is not None
        await driver.close()
        with pytest.raises(StoreUnavailable):
            await hosts.open(session("web"))
        with pytest.raises(StoreUnavailable):
            await hosts.renew(HostId("id-of-web"), 60_000_000)
        with pytest.raises(StoreUnavailable):
            await hosts.reap(limit=1)
        with pytest.raises(StoreUnavailable):
            await hosts.get(HostId("id-of-web"))
        with pytest.raises(StoreUnavailable):
            await hosts.list(limit=1)
