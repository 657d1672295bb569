"""The suite of the ``JobStore`` port, joined from its parts.

Owns the opening and closing of a driver; each part owns the cases of one noun.
"""

from __future__ import annotations

import pytest

from holdfast.testing.conformance.job_claim import ClaimCases, NextDueCases, TargetCases
from holdfast.testing.conformance.job_enqueue import DueCases, EnqueueCases
from holdfast.testing.conformance.job_keys import OrderingCases, UniqueCases
from holdfast.testing.conformance.job_operate import (
    CancelCases,
    DeleteCases,
    RetryCases,
    TendCases,
)
from holdfast.testing.conformance.job_queues import LimitCases, ListCases, QueueCases
from holdfast.testing.conformance.job_repeats import RepeatCases
from holdfast.testing.conformance.job_sessions import ReclaimCases, SessionCases
from holdfast.testing.conformance.job_settle import (
    CompleteCases,
    ExtendCases,
    FailCases,
    ReleaseCases,
)
from holdfast.testing.conformance.lab import Lab, scenario


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
):
    """What every job store does. A subclass defines the ``lab`` fixture."""

    @pytest.fixture
    def lab(self) -> Lab:
        raise AssertionError("a driver's suite defines a fixture that returns its Lab")

    @scenario
    async def test_jobs_are_offered_exactly_where_promised(self, lab: Lab) -> None:
        driver = await lab.open()
        assert (driver.jobs is not None) == lab.capabilities.jobs
