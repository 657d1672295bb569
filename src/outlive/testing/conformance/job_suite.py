"""The suite of the ``JobStore`` port, joined from its parts.

Owns the opening and closing of a driver; each part owns the cases of one noun.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from outlive.errors import StoreUnavailable
from outlive.model.job import JobFilter, QueueSettings
from outlive.names import JobId
from outlive.testing.conformance.job_claim import ClaimCases, NextDueCases, TargetCases
from outlive.testing.conformance.job_concurrency import ConcurrencyCases
from outlive.testing.conformance.job_enqueue import DueCases, EnqueueCases
from outlive.testing.conformance.job_keys import OrderingCases, UniqueCases
from outlive.testing.conformance.job_operate import (
    CancelCases,
    DeleteCases,
    RetryCases,
    TendCases,
)
from outlive.testing.conformance.job_queues import LimitCases, ListCases, QueueCases
from outlive.testing.conformance.job_repeats import RepeatCases
from outlive.testing.conformance.job_sessions import ReclaimCases, SessionCases
from outlive.testing.conformance.job_settle import (
    CompleteCases,
    ExtendCases,
    FailCases,
    ReleaseCases,
)
from outlive.testing.conformance.job_waiting import SilenceCases, SlipCases, WaitingCases
from outlive.testing.conformance.job_worker import Worker, job, worker
from outlive.testing.conformance.lab import Lab, scenario

Call = Callable[[], Awaitable[object]]


class JobStoreSuite(
    EnqueueCases,
    DueCases,
    ClaimCases,
    TargetCases,
    NextDueCases,
    CompleteCases,
    FailCases,
    ReleaseCases,
    ExtendCases,
    SessionCases,
    ReclaimCases,
    RepeatCases,
    UniqueCases,
    OrderingCases,
    CancelCases,
    RetryCases,
    DeleteCases,
    TendCases,
    ListCases,
    QueueCases,
    LimitCases,
    WaitingCases,
    SilenceCases,
    SlipCases,
    ConcurrencyCases,
):
    """What every job store does. A subclass defines the ``lab`` fixture."""

    @pytest.fixture
    def lab(self) -> Lab:
        raise AssertionError("a driver's suite defines a fixture that returns its Lab")

    @scenario
    async def test_jobs_are_offered_exactly_where_promised(self, lab: Lab) -> None:
        driver = await lab.open()
        assert (driver.jobs is not None) == lab.capabilities.jobs

    @scenario
    async def test_every_call_after_close_says_unavailable(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        claimed = await a.claim_one()
        await a.member.driver.close()
        settling: list[Call] = [
            lambda: a.complete(claimed),
            lambda: a.fail(claimed),
            lambda: a.release(claimed),
            lambda: a.extend(claimed),
        ]
        for call in (*settling, *_every_call(a)):
            with pytest.raises(StoreUnavailable):
                await call()

    @scenario
    async def test_a_claim_outlives_the_driver_that_made_it(self, lab: Lab) -> None:
        a, b = await worker(lab, "a"), await worker(lab, "b")
        await a.put("j")
        claimed = await a.claim_one()
        await a.member.driver.close()
        assert await b.ids() == []
        assert await b.complete(claimed) == "ok"

    @scenario
    async def test_jobs_and_tokens_outlive_everybody(self, lab: Lab) -> None:
        if lab.capabilities.across == "process":
            pytest.skip("a store within the process does not outlive its last driver")
        a = await worker(lab)
        await a.put("x", "y", "z")
        x, y = await a.claim(2)
        await a.complete(x, "1")
        await a.release(y)
        await a.member.driver.close()
        b = await worker(lab, "b")
        assert (await b.record("x")).result == "1"
        again = await b.claim(5)
        assert [found.id for found in again] == ["y", "z"]
        assert again[0].token > y.token


def _every_call(a: Worker) -> list[Call]:
    return [
        lambda: a.enqueue(job("k")),
        a.claim,
        lambda: a.jobs.reclaim(limit=1),
        lambda: a.cancel("j"),
        lambda: a.retry("j"),
        lambda: a.purge("j"),
        lambda: a.jobs.tend(limit=1),
        lambda: a.jobs.get(JobId("j")),
        lambda: a.jobs.list(JobFilter(), after=None, limit=1),
        lambda: a.jobs.attempts(JobId("j")),
        lambda: a.jobs.put_queue(QueueSettings(name="q")),
        a.jobs.queues,
    ]
