"""The suite of leases finds planted defects: each one fails the sentences that forbid it."""

from __future__ import annotations

from outlive.testing.conformance import LeaseStoreSuite
from tests.conformance.catching import CatchingCases
from tests.conformance.planted_defects import DEFECTS, Defective, PlantedFactory


class TestLeaseSuiteCatches(CatchingCases):
    suite = LeaseStoreSuite
    factory = PlantedFactory
    sound = Defective
    defects = DEFECTS
    at_least = 6
