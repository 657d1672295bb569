"""Redis keeps the ports, over TCP and over a Unix socket.

All labs share one database; each has namespaces of its own.
"""

from __future__ import annotations

import itertools

import pytest

from outlive.drivers.redis import RedisFactory
from outlive.testing.conformance import (
    HostStoreSuite,
    JobStoreSuite,
    Lab,
    LeaseStoreSuite,
    WakeupsSuite,
)
from tests.services.redis import RedisServer

pytestmark = pytest.mark.service

_numbers = itertools.count(1)


@pytest.fixture
def direct(redis_server: RedisServer) -> Lab:
    return Lab(RedisFactory(), redis_server.url, prefix=f"t{next(_numbers)}-")


class TestLeases(LeaseStoreSuite):
    @pytest.fixture
    def lab(self, direct: Lab) -> Lab:
        return direct


class TestHosts(HostStoreSuite):
    @pytest.fixture
    def lab(self, direct: Lab) -> Lab:
        return direct


class TestJobs(JobStoreSuite):
    @pytest.fixture
    def lab(self, direct: Lab) -> Lab:
        return direct


class TestWakeups(WakeupsSuite):
    @pytest.fixture
    def lab(self, direct: Lab) -> Lab:
        return direct


class TestWakeupsOverAUnixSocket(WakeupsSuite):
    @pytest.fixture
    def lab(self, redis_server: RedisServer) -> Lab:
        url = f"redis+unix://{redis_server.socket_path}"
        return Lab(RedisFactory(), url, prefix=f"t{next(_numbers)}-")
