"""Every backend that keeps schedules keeps them the same way."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from outlive.drivers.memory import MemoryFactory
from outlive.drivers.postgres import PostgresFactory
from outlive.drivers.sqlite import SqliteFactory
from outlive.testing import ManualClock
from outlive.testing.conformance import Lab, ScheduleStoreSuite

_numbers = itertools.count(1)


class TestMemorySchedules(ScheduleStoreSuite):
    @pytest.fixture
    def lab(self) -> Lab:
        return Lab(MemoryFactory(), f"memory://schedules-{next(_numbers)}", ManualClock())


class TestSqliteSchedules(ScheduleStoreSuite):
    @pytest.fixture
    def lab(self, tmp_path: Path) -> Lab:
        return Lab(SqliteFactory(), f"sqlite:///{tmp_path}/store.db", ManualClock())


@pytest.mark.service
class TestPostgresSchedules(ScheduleStoreSuite):
    @pytest.fixture
    def lab(self, postgres_url: str) -> Lab:
        return Lab(PostgresFactory(), postgres_url)
