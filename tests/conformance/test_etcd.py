"""etcd keeps the ports. All labs share one server; each has namespaces of its own.

An expiry takes etcd more than a second. What the leader does then is to revoke the lease, and the
suite asks it to do that at once; ``tests/process/test_etcd_faults.py`` waits for real ones.
"""

from __future__ import annotations

import itertools

import pytest

from outlive.drivers.etcd import EtcdFactory
from outlive.testing.conformance import Lab, LeaseStoreSuite, WakeupsSuite
from tests.services.etcd import EtcdServer
from tests.services.etcd_leases import revoke_short

pytestmark = pytest.mark.service

_numbers = itertools.count(1)


@pytest.fixture
def shared(etcd_server: EtcdServer) -> Lab:
    async def expire(lab: Lab) -> None:
        await revoke_short(etcd_server.endpoint, lab.short_s, prefix=lab.prefix)

    return Lab(EtcdFactory(), etcd_server.url, prefix=f"t{next(_numbers)}-", expire=expire)


class TestLeases(LeaseStoreSuite):
    @pytest.fixture
    def lab(self, shared: Lab) -> Lab:
        return shared


class TestWakeups(WakeupsSuite):
    @pytest.fixture
    def lab(self, shared: Lab) -> Lab:
        return shared
