"""etcd, ready to be measured: a private member that waits for its disk, or a cluster that is named.

Owns the server and the prefixes of its stores. What hosts send is counted by etcd itself: messages
that arrived by gRPC, and those among them that ask for a write.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import urllib.request
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from urllib.parse import urlsplit

from benchmarks.leases.backend import Absent, Count, Floor

# The endpoint of a cluster to measure on, instead of a private member.
VARIABLE = "OUTLIVE_BENCH_ETCD"

_RECEIVED = re.compile(
    r'^grpc_server_msg_received_total\{grpc_method="(\w+)",[^}]*\} (\S+)$', re.MULTILINE
)
# The methods that go through the log of the cluster; the others are answered from memory.
_WRITES = frozenset({"Txn", "Put", "DeleteRange", "LeaseGrant", "LeaseRevoke"})


class EtcdBackend:
    """Prefixes of one cluster."""

    name = "etcd"
    bars: Mapping[str, float] = {
        "uncontended": 0.8,
        # gRPC takes most of a millisecond of the client's processor for each call, so that many
        # coroutines of one process bring little more than one.
        "concurrent": 1.0,
        "handover": 10.0,
        "idle": 1.0,
    }

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._numbers = itertools.count(1)

    def new_store(self) -> str:
        """The URL of an empty prefix."""
        prefix = f"outlive-bench-{os.getpid()}-{next(self._numbers)}"
        return f"etcd://{self._endpoint}?prefix={prefix}"

    def floor(self, url: str) -> AbstractAsyncContextManager[Floor]:
        """Connect gRPC stubs to the same member."""
        from benchmarks.leases.etcd_floor import open_floor

        return open_floor(url)

    @asynccontextmanager
    async def counting(self, url: str) -> AsyncGenerator[Callable[[], Count]]:
        """Count by the metrics of the member, which nobody else must use meanwhile."""
        endpoint = urlsplit(url).netloc
        before = await asyncio.to_thread(_count, endpoint)

        def since() -> Count:
            now = _count(endpoint)
            return Count(now.statements - before.statements, now.transactions - before.transactions)

        yield since
        if not since().statements:
            raise RuntimeError("the member's metrics show no message at all")


def _count(endpoint: str) -> Count:
    with urllib.request.urlopen(f"http://{endpoint}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    found = [(method, round(float(value))) for method, value in _RECEIVED.findall(text)]
    return Count(
        sum(value for _, value in found),
        sum(value for method, value in found if method in _WRITES),
    )


@contextmanager
def etcd() -> Iterator[EtcdBackend]:
    """A backend on the cluster that the environment names, or on a private member.

    Raises:
        Absent: Neither can be had.
    """
    try:
        import aetcd
    except ImportError as error:
        raise Absent(f"{error.name} is not installed") from error
    del aetcd
    named = os.environ.get(VARIABLE)
    if named:
        yield EtcdBackend(named)
        return
    try:
        from tests.services import Unavailable
        from tests.services.etcd import EtcdServer
    except ImportError as error:
        raise Absent(f"no private server without the tests' folder; set {VARIABLE}") from error
    try:
        server = EtcdServer().start()
    except Unavailable as error:
        raise Absent(f"{error}; or set {VARIABLE}") from error
    try:
        yield EtcdBackend(server.endpoint)
    finally:
        server.stop()
