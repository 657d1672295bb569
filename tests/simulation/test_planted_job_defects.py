"""The simulation of jobs must be able to fail: each planted defect is found within some seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from outlive.drivers.memory import job_claim, job_settle
from outlive.drivers.memory.job_rows import JobRow
from outlive.drivers.memory.job_step import JobStep
from outlive.drivers.memory.job_store import MemoryJobStore
from outlive.model.job import Enqueued, Entry, JobState
from outlive.testing.faults import FaultPlan
from tests.simulation.course import require_found
from tests.simulation.job_fleet import JobFleet
from tests.simulation.job_host import TTL_S, JobHost

Plant = Callable[[pytest.MonkeyPatch], None]

# Enough for the rarest of them to be found with room to spare; most are found by the first few.
SEEDS = 60


def claim_for_ended_sessions(patch: pytest.MonkeyPatch) -> None:
    """A claim does not look at its session."""
    patch.setattr(MemoryJobStore, "_check_session", lambda *_: None)


def settle_without_token(patch: pytest.MonkeyPatch) -> None:
    """Whoever had the job once may settle it."""

    def claimed(table, job, token, outcome):
        row = table.rows.get(job)
        return row if row is not None and row.state is JobState.CLAIMED else False

    patch.setattr(job_settle, "_claimed", claimed)


def forget_the_due(patch: pytest.MonkeyPatch) -> None:
    """Nothing is promoted when its time has come."""
    patch.setattr(JobStep, "promote", lambda *_: None)


def come_early(patch: pytest.MonkeyPatch) -> None:
    """Due times are not looked at."""

    def promote(self, queue, limit):
        while (first := queue.due.first()) is not None:
            self.ready(self.table.rows[first[1]])

    patch.setattr(JobStep, "promote", promote)


def take_from_the_living(patch: pytest.MonkeyPatch) -> None:
    """Reclaiming takes whatever is claimed."""
    reclaim = MemoryJobStore.reclaim

    async def take(self, *, limit):
        sessions, self._space.sessions = self._space.sessions, {}
        try:
            return await reclaim(self, limit=limit)
        finally:
            self._space.sessions = sessions

    patch.setattr(MemoryJobStore, "reclaim", take)


def take_nothing_back(patch: pytest.MonkeyPatch) -> None:
    """What the gone had claimed stays theirs."""

    async def reclaim(self, *, limit):
        return []

    patch.setattr(MemoryJobStore, "reclaim", reclaim)


def ignore_unique_keys(patch: pytest.MonkeyPatch) -> None:
    """Every job is added."""
    add = JobStep.add
    patch.setattr(JobStep, "add", lambda self, job: add(self, replace(job, unique_key=None)))


def ignore_ordering_keys(patch: pytest.MonkeyPatch) -> None:
    """Jobs of one key run side by side."""
    add = JobStep.add
    patch.setattr(JobStep, "add", lambda self, job: add(self, replace(job, ordering_key=None)))


def restart_tokens(patch: pytest.MonkeyPatch) -> None:
    """Tokens begin anew."""
    take = JobStep.take

    def forgetful(self, row: JobRow, *more):
        self.table.tokens = 0
        take(self, row, *more)

    patch.setattr(JobStep, "take", forgetful)


def lose_some(patch: pytest.MonkeyPatch) -> None:
    """An enqueue is acknowledged and not always kept."""
    add = JobStep.add

    def careless(self, job):
        if job.id.endswith("7"):
            return Enqueued(job.id, Entry.CREATED)
        return add(self, job)

    patch.setattr(JobStep, "add", careless)


def claim_twice(patch: pytest.MonkeyPatch) -> None:
    """A request that is asked again makes claims of what is claimed already."""
    before = job_claim.claimed_before

    def anew(step, request):
        rows = before(step, request)
        for row in rows:
            step.take(row, request, row.claim.host)
        return rows

    patch.setattr("outlive.drivers.memory.job_store.claimed_before", anew)


def believe_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A claimant works on, whatever its own clock says."""
    patch.setattr(JobHost, "believes", lambda _, session: session is not None)


FOUND: dict[Plant, set[str]] = {
    claim_for_ended_sessions: {"Q1"},
    settle_without_token: {"Q5"},
    forget_the_due: {"Q7"},
    come_early: {"Q4"},
    take_from_the_living: {"Q1"},
    take_nothing_back: {"Q7"},
    ignore_unique_keys: {"Q6"},
    ignore_ordering_keys: {"Q1"},
    restart_tokens: {"Q2"},
    lose_some: {"Q3"},
    claim_twice: {"Q1"},
    believe_for_ever: {"Q1"},
}


# A claim that travels until its session has ended is rare in the weather of most seeds.
PLANS: dict[Plant, FaultPlan] = {
    claim_for_ended_sessions: FaultPlan(ttl_s=TTL_S, delay=0.4, pause=0.01),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("plant", FOUND, ids=lambda plant: plant.__name__)
def test_a_planted_defect_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    require_found(lambda seed: JobFleet(seed, plan=PLANS.get(plant)), FOUND[plant], SEEDS)
