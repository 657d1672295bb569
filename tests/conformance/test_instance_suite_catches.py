"""The suite of instances finds planted defects: each one fails the sentences that forbid it."""

from __future__ import annotations

from holdfast.testing.conformance import InstanceStoreSuite
from tests.conformance.catching import CatchingCases
from tests.conformance.planted_instance_defects import Defective, PlantedInstanceFactory
from tests.conformance.planted_instance_mail_defects import DEFECTS


class TestInstanceSuiteCatches(CatchingCases):
    suite = InstanceStoreSuite
    factory = PlantedInstanceFactory
    sound = Defective
    defects = DEFECTS
    at_least = 40
