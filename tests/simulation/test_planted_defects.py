"""The suite must be able to fail: each planted defect is found within a stated number of seeds.

A defect is the real code with one thing wrong, planted in the store or in the feature.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from msgspec import structs

from outlive.drivers.memory.decide import to_ring
from outlive.drivers.memory.lease_store import MemoryLeaseStore, _closed
from outlive.leases import requesting
from outlive.leases.acquiring import Acquirer
from outlive.leases.leases import Leases
from outlive.leases.tenure import Phase, Tenure
from outlive.model.lease import Ended
from outlive.testing.faults import FaultPlan
from tests.simulation.course import require_found
from tests.simulation.fleet import CALM, Fleet
from tests.simulation.oracles.lease_checker import check_abandoned
from tests.simulation.worker import TTL_S

Plant = Callable[[pytest.MonkeyPatch], None]


def test_a_resource_without_fence_is_found():
    require_found(lambda seed: Fleet(seed, fenced=False), {"L5"}, seeds=20)


def count_from_the_reply(patch: pytest.MonkeyPatch) -> None:
    """Deadlines from when the reply came, not from when the request was sent."""
    accept, attempt = Tenure.accept, Acquirer.attempt

    async def late_attempt(self, request, plan, **how):
        # A generous plan, or the late reply would be found out before it can do harm.
        result = await attempt(self, request, replace(plan, safe_s=1e6), **how)
        if hasattr(result, "asked_at"):
            result.asked_at = self.runtime.clock.monotonic()
        return result

    patch.setattr(Acquirer, "attempt", late_attempt)
    patch.setattr(Tenure, "accept", lambda self, grant, _, now: accept(self, grant, now, now))


def believe_for_ever(patch: pytest.MonkeyPatch) -> None:
    """No local deadline: only the store's word ends a lease."""
    plan_of = requesting.plan_of
    patch.setattr(requesting, "plan_of", lambda *given: replace(plan_of(*given), safe_s=1e6))


def revive_by_late_reply(patch: pytest.MonkeyPatch) -> None:
    """A renewal's reply extends the lease whenever it comes, even after the loss."""

    def accept(self, grant, asked_at, now):
        self.phase = Phase.HELD
        self.asked_at = asked_at
        self.deadline = now + self.plan.safe_s
        self.grant = grant
        return True

    patch.setattr(Tenure, "accept", accept)


def renew_the_expired(patch: pytest.MonkeyPatch) -> None:
    """The store renews a grant whose time has run out."""
    renew = MemoryLeaseStore.renew

    async def reviving(self, grant, ttl_us, *, state=None):
        slot = self._space.keys[grant.key].slots[grant.slot] if self._space else None
        if slot and slot.owner == grant.owner and slot.token == grant.token:
            slot.expires_us = 10**15
        return await renew(self, grant, ttl_us, state=state)

    patch.setattr(MemoryLeaseStore, "renew", reviving)


def release_any_token(patch: pytest.MonkeyPatch) -> None:
    """The store releases the key whoever owns it by now."""

    async def release(self, grant):
        row = self._space.keys[grant.key] if self._space else _closed()
        slot = row.slots[grant.slot]
        if slot.owner is not None:
            now_us = round(self._monotonic() * 1e6)
            self._end(row, slot, Ended.RELEASED, now_us)
            self._wake(grant.key, to_ring(row, now_us))

    patch.setattr(MemoryLeaseStore, "release", release)


def restart_tokens(patch: pytest.MonkeyPatch) -> None:
    """The row is deleted on release, and tokens begin again at one."""
    release = MemoryLeaseStore.release

    async def forgetting(self, grant):
        await release(self, grant)
        assert self._space is not None
        self._space.keys[grant.key].token = 0

    patch.setattr(MemoryLeaseStore, "release", forgetting)


def expire_early(patch: pytest.MonkeyPatch) -> None:
    """The store lets a grant end a tenth before its time."""
    acquire = MemoryLeaseStore.acquire

    async def hasty(self, request):
        return await acquire(self, structs.replace(request, ttl_us=request.ttl_us * 9 // 10))

    patch.setattr(MemoryLeaseStore, "acquire", hasty)


# That a renewal comes too late and nobody else came is rare in the weather of most seeds.
PLANS: dict[Plant, FaultPlan] = {
    renew_the_expired: FaultPlan(ttl_s=TTL_S, delay=0.6, request_lost=0.05, reply_lost=0.05),
}


@pytest.mark.parametrize(
    ("plant", "rules", "within"),
    [
        (count_from_the_reply, {"L4"}, 20),
        (believe_for_ever, {"L4"}, 10),
        (believe_for_ever, {"L3"}, 20),
        (revive_by_late_reply, {"L4"}, 20),
        (renew_the_expired, {"L7"}, 40),
        (release_any_token, {"L8"}, 20),
        (release_any_token, {"L3"}, 40),
        (restart_tokens, {"L1", "L2"}, 5),
        (expire_early, {"L10"}, 20),
    ],
)
def test_a_planted_defect_is_found(monkeypatch, plant: Plant, rules, within):
    plant(monkeypatch)
    require_found(lambda seed: Fleet(seed, plan=PLANS.get(plant)), rules, seeds=within)


@contextmanager
def calm_seeds(count: int) -> Iterator[list[str]]:
    """The rules that calm seeds report, where nothing fails and everybody is patient."""
    reported: list[str] = []
    for seed in range(count):
        fleet = Fleet(seed, plan=CALM, several=False)
        fleet.run()
        found = check_abandoned(fleet.history, patience_s=TTL_S / 4)
        reported += [violation.rule for violation in found]
        if reported:
            break
    yield reported


def test_a_cancelled_wait_that_leaks_its_grant_is_found(monkeypatch):
    async def forget(self, request):
        del self, request

    monkeypatch.setattr(Acquirer, "withdraw", forget)
    with calm_seeds(20) as reported:
        assert "L9" in reported


def test_a_cancelled_wait_that_goes_on_renewing_is_found(monkeypatch):
    acquire = Leases.acquire
    leaked = []

    async def shielded(self, key, **options):
        task = asyncio.create_task(acquire(self, key, **options))
        leaked.append(task)
        await asyncio.wait((task,))
        return task.result()

    monkeypatch.setattr(Leases, "acquire", shielded)
    with calm_seeds(20) as reported:
        assert "L9" in reported
