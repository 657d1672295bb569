"""Azure Blob Storage keeps the port, on the emulator Azurite.

All labs share one container, because namespaces keep them apart as well. The shortest lease is of
15 seconds, so that the suite breaks what it would let expire; what only an expiry can show is shown
by one test, for all of it at once.
"""

from __future__ import annotations

import itertools

import pytest

from holdfast.drivers.azblob import AzureBlobFactory
from holdfast.testing.conformance import Lab, LeaseStoreSuite, WakeupsSuite
from tests.services.azurite import ACCOUNT, AzuriteServer

pytestmark = pytest.mark.service

_numbers = itertools.count(1)


@pytest.fixture
def azure_lab(azurite_server: AzuriteServer) -> Lab:
    return Lab(
        AzureBlobFactory(),
        f"azblob://{ACCOUNT}/conformance",
        options={"connection_string": azurite_server.connection_string},
        prefix=f"t{next(_numbers)}-",
        expiry="broken",
    )


class TestLeases(LeaseStoreSuite):
    @pytest.fixture
    def lab(self, azure_lab: Lab) -> Lab:
        return azure_lab


class TestWakeups(WakeupsSuite):
    @pytest.fixture
    def lab(self, azure_lab: Lab) -> Lab:
        return azure_lab
