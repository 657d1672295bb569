"""The worked third-party driver passes the suites that it ships against."""

from __future__ import annotations

import pytest

from outlive.testing import ManualClock
from outlive.testing.conformance import HostStoreSuite, Lab, LeaseStoreSuite, WakeupsSuite
from tests.conformance.example_driver import FileFactory


def file_lab(tmp_path):
    return Lab(factory=FileFactory(), url=f"file://{tmp_path}/leases.json", clock=ManualClock())


class TestFileLeases(LeaseStoreSuite):
    @pytest.fixture
    def lab(self, tmp_path):
        return file_lab(tmp_path)


class TestFileHosts(HostStoreSuite):
    @pytest.fixture
    def lab(self, tmp_path):
        return file_lab(tmp_path)


class TestFileWakeups(WakeupsSuite):
    @pytest.fixture
    def lab(self, tmp_path):
        return file_lab(tmp_path)
