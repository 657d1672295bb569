"""PostgreSQL keeps the ports, directly and through PgBouncer in transaction mode.

All labs share one database, because making one takes longer than most tests; each has namespaces
of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from holdfast.drivers.postgres import PostgresFactory
from holdfast.testing.conformance import (
    HostStoreSuite,
    JobStoreSuite,
    Lab,
    LeaseStoreSuite,
    WakeupsSuite,
)
from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import PostgresServer

pytestmark = pytest.mark.service

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def direct(database: str) -> Lab:
    return Lab(PostgresFactory(), database, prefix=f"t{next(_numbers)}-")


@pytest.fixture
def pooled(pgbouncer: PgBouncer, database: str) -> Lab:
    # Notifications do not pass a pooler in transaction mode: the listener has its own address.
    return Lab(
        PostgresFactory(),
        pgbouncer.url_of(database),
        options={"listen_url": database},
        prefix=f"t{next(_numbers)}-",
    )


class TestLeases(LeaseStoreSuite):
    @pytest.fixture
    def lab(self, direct: Lab) -> Lab:
        return direct


class TestHosts(HostStoreSuite):
    @pytest.fixture
    def lab(self, direct: Lab) -> Lab:
        return direct


class TestWakeups(WakeupsSuite):
    @pytest.fixture
    def lab(self, direct: Lab) -> Lab:
        return direct


class TestJobs(JobStoreSuite):
    @pytest.fixture
    def lab(self, direct: Lab) -> Lab:
        return direct


class TestLeasesBehindPooler(LeaseStoreSuite):
    @pytest.fixture
    def lab(self, pooled: Lab) -> Lab:
        return pooled


class TestHostsBehindPooler(HostStoreSuite):
    @pytest.fixture
    def lab(self, pooled: Lab) -> Lab:
        return pooled


class TestWakeupsBehindPooler(WakeupsSuite):
    @pytest.fixture
    def lab(self, pooled: Lab) -> Lab:
        return pooled


class TestJobsBehindPooler(JobStoreSuite):
    @pytest.fixture
    def lab(self, pooled: Lab) -> Lab:
        return pooled
