"""The floor on etcd: aetcd's stubs, and the best hand-written transaction for one key.

Writes the keys that Outlive writes, with values of the same size, each operation in one
transaction, on a lease of etcd of its own. Beside it, the same with one lease that is kept alive
over an open stream and used again.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import grpc
from aetcd import rpc

from benchmarks.leases.backend import TTL_S, Floor, LeaseCount

_OWNER = b"bench/0123456789abcdef-1234"
_SLOT = (
    b'{"owner":"bench/0123456789abcdef-1234","version":123,"ttl_us":30000000,'
    b'"acquired_us":1790000000000000,"metadata":"{\\"host\\":\\"bench\\",'
    b'\\"instance\\":\\"0123456789abcdef\\",\\"hostname\\":\\"bench\\",'
    b'\\"pid\\":12345}","ended":61}'
)
_ENDED = (
    b'{"token":12345,"owner":"bench/0123456789abcdef-1234","acquired_us":1790000000000000,'
    b'"ended_us":1790000000000000,"ended":"released"}'
)
# As many ended grants as Outlive keeps of a key.
_RING = 120


class _Raw:
    """One channel, its stubs and its stream of keep-alives."""

    def __init__(self, endpoint: str, prefix: str) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.aio.insecure_channel(endpoint, options=options)
        self._kv = rpc.KVStub(self._channel)
        self._lease = rpc.LeaseStub(self._channel)
        self._alive: Any = self._lease.LeaseKeepAlive()
        self._root = f"{prefix}/floor/".encode()
        self._count = itertools.count(1)
        self._leases: list[int] = []
        self._own = 0

    async def prepare(self) -> None:
        """Have the one lease that the pairs use again and again."""
        self._own = await self._grant()

    async def close(self) -> None:
        """End the stream and the channel."""
        self._alive.cancel()
        await self._channel.close()
        # gRPC tells the end of a stream a moment later, and the loop must still be there.
        await asyncio.sleep(0.02)

    async def _grant(self) -> int:
        return (await self._lease.LeaseGrant(rpc.LeaseGrantRequest(TTL=int(TTL_S)))).ID

    async def _keep(self, lease: int) -> None:
        await self._alive.write(rpc.LeaseKeepAliveRequest(ID=lease))
        if (await self._alive.read()).TTL <= 0:
            raise RuntimeError("the floor lost its lease: it measures nothing")

    async def pairs(self, key: str, seconds: float) -> float:
        """A lease of etcd, a transaction that hangs on it, and one that ends it, by turns."""
        started = now = time.perf_counter()
        done = 0
        while now < started + seconds:
            await self._release(key, await self._take(key, await self._grant()))
            done += 2
            now = time.perf_counter()
        return done / (now - started)

    async def reusing(self, seconds: float) -> float:
        """The same on one lease that is kept alive and used again, as Outlive does."""
        started = now = time.perf_counter()
        done = 0
        while now < started + seconds:
            keeping = asyncio.ensure_future(self._keep(self._own))
            token = await self._take("reusing", self._own)
            await keeping
            await self._release("reusing", token)
            done += 2
            now = time.perf_counter()
        return done / (now - started)

    async def renewals(self, seconds: float) -> float:
        """One keep-alive after the other, over ``LeaseCount`` leases."""
        while len(self._leases) < LeaseCount:
            self._leases.append(await self._grant())
        started = now = time.perf_counter()
        done = 0
        for lease in itertools.cycle(self._leases):
            await self._keep(lease)
            done += 1
            now = time.perf_counter()
            if now >= started + seconds:
                break
        return done / (now - started)

    async def _take(self, key: str, lease: int) -> int:
        live = self._root + key.encode() + b"\tlive"
        free = rpc.Compare(
            result=rpc.Compare.EQUAL, target=rpc.Compare.CREATE, key=live, create_revision=0
        )
        answer = await self._kv.Txn(
            rpc.TxnRequest(
                compare=[free],
                success=[
                    _put(live, _OWNER, lease),
                    _put(self._root + key.encode() + b"\tslot", _SLOT),
                ],
            )
        )
        if not answer.succeeded:
            raise RuntimeError(f"the floor was refused {key!r}: it measures nothing")
        return answer.header.revision

    async def _release(self, key: str, token: int) -> None:
        live = self._root + key.encode() + b"\tlive"
        owned = rpc.Compare(
            result=rpc.Compare.EQUAL, target=rpc.Compare.CREATE, key=live, create_revision=token
        )
        number = b"\tended\t%d" % (next(self._count) % _RING)
        await self._kv.Txn(
            rpc.TxnRequest(
                compare=[owned],
                success=[
                    rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=live)),
                    _put(self._root + key.encode() + b"\tslot", _SLOT),
                    _put(self._root + key.encode() + number, _ENDED),
                ],
            )
        )


def _put(key: bytes, value: bytes, lease: int = 0) -> Any:
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value, lease=lease))


@asynccontextmanager
async def open_floor(url: str) -> AsyncGenerator[Floor]:
    """Connect to the member of ``url``, under a prefix beside the store's."""
    parts = urlsplit(url)
    raw = _Raw(parts.netloc, parse_qs(parts.query)["prefix"][0])
    await raw.prepare()
    try:
        yield Floor(
            raw.pairs,
            raw.renewals,
            {"uncontended": {"by hand, with a lease of etcd that is used again": raw.reusing}},
        )
    finally:
        await raw.close()
