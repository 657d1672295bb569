"""The suite of the ``LeaseStore`` port, joined from its parts.

Owns the opening and closing of a driver; each part owns the cases of one noun.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from outlive.errors import StoreUnavailable, UnsupportedByDriver
from outlive.names import WaiterId
from outlive.testing.conformance.lab import LONG_S, Lab, Member, scenario
from outlive.testing.conformance.lease_acquire import AcquireCases, ResumeCases
from outlive.testing.conformance.lease_break import BreakCases
from outlive.testing.conformance.lease_concurrency import ConcurrencyCases
from outlive.testing.conformance.lease_history import HistoryCases
from outlive.testing.conformance.lease_names import NameCases, NamespaceCases
from outlive.testing.conformance.lease_queue import LeaveCases, PassingCases, QueueCases
from outlive.testing.conformance.lease_reading import ReadingCases
from outlive.testing.conformance.lease_release import ReleaseCases
from outlive.testing.conformance.lease_renew import RenewCases, StateCases
from outlive.testing.conformance.lease_ring import RingCases
from outlive.testing.conformance.lease_semaphore import SemaphoreCases

Call = Callable[[], Awaitable[object]]


class LeaseStoreSuite(
    AcquireCases,
    ResumeCases,
    RenewCases,
    StateCases,
    ReleaseCases,
    BreakCases,
    QueueCases,
    PassingCases,
    LeaveCases,
    RingCases,
    SemaphoreCases,
    ReadingCases,
    NameCases,
    NamespaceCases,
    HistoryCases,
    ConcurrencyCases,
):
    """What every lease store does. A subclass defines the ``lab`` fixture."""

    @pytest.fixture
    def lab(self) -> Lab:
        raise AssertionError("a driver's suite defines a fixture that returns its Lab")

    @scenario
    async def test_factory_and_driver_promise_the_same(self, lab: Lab) -> None:
        driver = await lab.open()
        assert driver.capabilities == lab.capabilities

    @scenario
    async def test_check_finds_nothing_wrong_with_a_fresh_store(self, lab: Lab) -> None:
        driver = await lab.open()
        assert [finding for finding in await driver.check() if finding.level == "error"] == []

    @scenario
    async def test_sessions_are_offered_exactly_where_promised(self, lab: Lab) -> None:
        driver = await lab.open()
        assert (driver.hosts is not None) == lab.capabilities.sessions

    @scenario
    async def test_guard_is_refused_where_it_is_not_promised(self, lab: Lab) -> None:
        if lab.capabilities.guard:
            pytest.skip("the backend can guard; its own tests prove it with real transactions")
        a = await lab.host("a")
        grant = await a.own("k")
        with pytest.raises(UnsupportedByDriver):
            await a.leases.guard(grant, object())

    @scenario
    async def test_closing_twice_is_fine(self, lab: Lab) -> None:
        driver = await lab.open()
        await driver.close()
        await driver.close()

    @scenario
    async def test_every_call_after_close_says_unavailable(self, lab: Lab) -> None:
        a = await lab.host("a")
        grant = await a.own("k")
        await a.driver.close()
        for call in _every_call(a):
            with pytest.raises(StoreUnavailable):
                await call()
        with pytest.raises(StoreUnavailable):
            await a.leases.renew(grant, 1_000_000)
        with pytest.raises(StoreUnavailable):
            await a.leases.release(grant)

    @scenario
    async def test_a_lease_outlives_the_driver_that_acquired_it(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        await a.own("k")
        await a.driver.close()
        held = await b.is_refused("k")
        assert held.owner == a.owner()

    @scenario
    async def test_a_keeper_renews_what_its_host_acquired(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        keeper = await lab.open("a", role="keeper")
        grant = await a.own_briefly("k")
        renewed = await keeper.leases.renew(grant, round(LONG_S * 1e6))
        assert renewed.token == grant.token
        await lab.expire()
        await b.is_refused("k")
        await keeper.close()
        await a.leases.release(renewed)

    @scenario
    async def test_tokens_grow_across_a_restart_of_everybody(self, lab: Lab) -> None:
        if lab.capabilities.across == "process":
            pytest.skip("a store within the process does not outlive its last driver")
        a = await lab.host("a")
        first = await a.own("k")
        await a.renew(first, state="kept")
        await a.leases.release(first)
        await a.driver.close()
        again = await (await lab.host("a")).own("k", "2")
        assert again.token > first.token
        assert again.state == "kept"


def _every_call(a: Member) -> list[Call]:
    return [
        lambda: a.attempt("k"),
        lambda: a.leases.get("k"),
        lambda: a.leases.list(prefix="", owner=None, active=False, after=None, limit=10),
        lambda: a.leases.history("k", limit=10),
        lambda: a.leases.raw("k"),
        lambda: a.leases.break_lease("k", reason="closed"),
        lambda: a.leases.leave("k", WaiterId(1), a.owner()),
    ]
