"""The suite of instances finds planted defects: each one fails the sentences that forbid it."""

from __future__ import annotations

from outlive.testing.conformance import InstanceStoreSuite
from tests.conformance import (
    planted_claim_defects,
    planted_commit_defects,
    planted_desk_defects,
    planted_mail_defects,
)
from tests.conformance.catching import CatchingCases
from tests.conformance.planted_instances import Defective, PlantedInstanceFactory, defects_of


class TestInstanceSuiteCatches(CatchingCases):
    suite = InstanceStoreSuite
    factory = PlantedInstanceFactory
    sound = Defective
    defects = defects_of(
        planted_claim_defects, planted_commit_defects, planted_desk_defects, planted_mail_defects
    )
    at_least = 69
