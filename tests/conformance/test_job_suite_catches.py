"""The suite of jobs finds planted defects: each one fails the sentences that forbid it."""

from __future__ import annotations

from outlive.testing.conformance import JobStoreSuite
from tests.conformance.catching import CatchingCases
from tests.conformance.planted_job_defects import DEFECTS, Defective, PlantedJobFactory


class TestJobSuiteCatches(CatchingCases):
    suite = JobStoreSuite
    factory = PlantedJobFactory
    sound = Defective
    defects = DEFECTS
    at_least = 30
