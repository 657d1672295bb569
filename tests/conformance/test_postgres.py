"""PostgreSQL keeps the ports, directly and through PgBouncer in transaction mode.

All labs share one database, because making one takes longer than most tests; each has namespaces
of its own. The server's clock is moved where a suite would wait for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from outlive.drivers.postgres import PostgresFactory
from outlive.testing.conformance import (
    HostStoreSuite,
    InstanceStoreSuite,
    JobStoreSuite,
    Lab,
    LeaseStoreSuite,
    WakeupsSuite,
)
from outlive.testing.conformance.instance_claim import ClaimCases as InstanceClaimCases
from outlive.testing.conformance.instance_concurrency import (
    ConcurrencyCases as InstanceConcurrencyCases,
)
from outlive.testing.conformance.instance_repeats import RepeatCases as InstanceRepeatCases
from outlive.testing.conformance.instance_transact import TransactCases
from outlive.testing.conformance.job_claim import ClaimCases
from outlive.testing.conformance.job_concurrency import ConcurrencyCases as JobConcurrencyCases
from outlive.testing.conformance.job_repeats import RepeatCases
from outlive.testing.conformance.job_waiting import WaitingCases
from outlive.testing.conformance.lease_acquire import AcquireCases
from outlive.testing.conformance.lease_concurrency import (
    ConcurrencyCases as LeaseConcurrencyCases,
)
from outlive.testing.conformance.lease_renew import RenewCases
from tests.conformance.moved_time import MovedLab, ServerTime, server_time
from tests.plugins.service_tests import starting
from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import PostgresServer

pytestmark = pytest.mark.service

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def time() -> Iterator[ServerTime]:
    with server_time() as time:
        yield time


@pytest.fixture(scope="module")
def server(pytestconfig: pytest.Config, time: ServerTime) -> Iterator[PostgresServer]:
    with starting(pytestconfig) as services:
        yield services.start(PostgresServer(durable=False, environment=time.environment))


@pytest.fixture(scope="module")
def pooler(pytestconfig: pytest.Config, server: PostgresServer) -> Iterator[PgBouncer]:
    with starting(pytestconfig) as services:
        yield services.start(PgBouncer(server))


@pytest.fixture
def direct(server: PostgresServer, time: ServerTime) -> Lab:
    return MovedLab(PostgresFactory(), server.url, time, prefix=f"t{next(_numbers)}-")


@pytest.fixture
def pooled(pooler: PgBouncer, server: PostgresServer, time: ServerTime) -> Lab:
    # Notifications do not pass a pooler in transaction mode: the listener has its own address.
    return MovedLab(
        PostgresFactory(),
        pooler.url,
        time,
        options={"listen_url": server.url},
        prefix=f"t{next(_numbers)}-",
    )


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def unmoved(database: str) -> Lab:
    return Lab(PostgresFactory(), database, prefix=f"t{next(_numbers)}-")


class TestLeases(LeaseStoreSuite):
    @pytest.fixture
    def lab(self, direct: Lab) -> Lab:
        return direct


class TestHosts(HostStoreSuite):
    @pytest.fixture
    def lab(self, direct: Lab) -> Lab:
        return direct


# On the machine's own clock: one suite that waits for each expiry, and the others as long forms.
class TestHostsInRealTime(HostStoreSuite):
    @pytest.fixture
    def lab(self, unmoved: Lab) -> Lab:
        return unmoved


@pytest.mark.soak
class TestLeasesInRealTime(LeaseStoreSuite):
    @pytest.fixture
    def lab(self, unmoved: Lab) -> Lab:
        return unmoved


@pytest.mark.soak
class TestJobsInRealTime(JobStoreSuite):
    @pytest.fixture
    def lab(self, unmoved: Lab) -> Lab:
        return unmoved


class TestWakeups(WakeupsSuite):
    @pytest.fixture
    def lab(self, direct: Lab) -> Lab:
        return direct


class TestJobs(JobStoreSuite):
    @pytest.fixture
    def lab(self, direct: Lab) -> Lab:
        return direct


class TestInstances(InstanceStoreSuite):
    @pytest.fixture
    def lab(self, direct: Lab) -> Lab:
        return direct


# Behind a pooler the statements are the same, and only the connections differ: a run shows the
# cases that lean on them, and the whole suites are a long form.
class TestSomeLeasesBehindPooler(AcquireCases, RenewCases, LeaseConcurrencyCases):
    @pytest.fixture
    def lab(self, pooled: Lab) -> Lab:
        return pooled


class TestSomeJobsBehindPooler(ClaimCases, RepeatCases, WaitingCases, JobConcurrencyCases):
    @pytest.fixture
    def lab(self, pooled: Lab) -> Lab:
        return pooled


class TestSomeInstancesBehindPooler(
    InstanceClaimCases, InstanceRepeatCases, TransactCases, InstanceConcurrencyCases
):
    @pytest.fixture
    def lab(self, pooled: Lab) -> Lab:
        return pooled


@pytest.mark.soak
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


@pytest.mark.soak
class TestJobsBehindPooler(JobStoreSuite):
    @pytest.fixture
    def lab(self, pooled: Lab) -> Lab:
        return pooled


@pytest.mark.soak
class TestInstancesBehindPooler(InstanceStoreSuite):
    @pytest.fixture
    def lab(self, pooled: Lab) -> Lab:
        return pooled
