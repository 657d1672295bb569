"""Azure Cosmos DB keeps the ports, on a clock that is moved by hand: hosts judge by their own.

All labs share one container, because making one takes longer than most tests; each has namespaces
of its own.
"""

from __future__ import annotations

import itertools

import pytest

from outlive.drivers.cosmos import CosmosFactory
from outlive.testing import ManualClock
from outlive.testing.conformance import Lab, LeaseStoreSuite, WakeupsSuite
from tests.services.cosmos import CosmosEmulator

pytestmark = pytest.mark.service

_numbers = itertools.count(1)


class TestCosmosLeases(LeaseStoreSuite):
    @pytest.fixture
    def lab(self, cosmos_emulator: CosmosEmulator) -> Lab:
        # Two hundred connections at once take an emulator on a busy machine longer than a service.
        url = f"{cosmos_emulator.url_of()}&connect_timeout=60&request_timeout=60"
        prefix = f"t{next(_numbers)}-"
        return Lab(CosmosFactory(), url, ManualClock(), prefix=prefix)


class TestCosmosWakeups(WakeupsSuite):
    @pytest.fixture
    def lab(self, cosmos_emulator: CosmosEmulator) -> Lab:
        return Lab(CosmosFactory(), cosmos_emulator.url_of(), prefix=f"t{next(_numbers)}-")
