"""The SQLite driver keeps its promises, on a clock that is moved by hand and on the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.drivers.sqlite import SqliteFactory
from outlive.testing import ManualClock
from outlive.testing.conformance import (
    HostStoreSuite,
    InstanceStoreSuite,
    JobStoreSuite,
    Lab,
    LeaseStoreSuite,
    WakeupsSuite,
)


def sqlite_lab(directory: Path, clock: ManualClock | None = None) -> Lab:
    return Lab(factory=SqliteFactory(), url=f"sqlite:///{directory}/store.db", clock=clock)


class TestSqliteLeases(LeaseStoreSuite):
    @pytest.fixture
    def lab(self, tmp_path: Path) -> Lab:
        return sqlite_lab(tmp_path, ManualClock())


# The same on the real clock is a long form: the processes of tests/process live by it anyway.
@pytest.mark.soak
class TestSqliteLeasesInRealTime(LeaseStoreSuite):
    @pytest.fixture
    def lab(self, tmp_path: Path) -> Lab:
        return sqlite_lab(tmp_path)


class TestSqliteHosts(HostStoreSuite):
    @pytest.fixture
    def lab(self, tmp_path: Path) -> Lab:
        return sqlite_lab(tmp_path, ManualClock())


class TestSqliteWakeups(WakeupsSuite):
    @pytest.fixture
    def lab(self, tmp_path: Path) -> Lab:
        return sqlite_lab(tmp_path)


class TestSqliteJobs(JobStoreSuite):
    @pytest.fixture
    def lab(self, tmp_path: Path) -> Lab:
        return sqlite_lab(tmp_path, ManualClock())


@pytest.mark.soak
class TestSqliteJobsInRealTime(JobStoreSuite):
    @pytest.fixture
    def lab(self, tmp_path: Path) -> Lab:
        return sqlite_lab(tmp_path)


class TestSqliteInstances(InstanceStoreSuite):
    @pytest.fixture
    def lab(self, tmp_path: Path) -> Lab:
        return sqlite_lab(tmp_path, ManualClock())


@pytest.mark.soak
class TestSqliteInstancesInRealTime(InstanceStoreSuite):
    @pytest.fixture
    def lab(self, tmp_path: Path) -> Lab:
        return sqlite_lab(tmp_path)
