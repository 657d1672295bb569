"""What tests ask of etcd itself, past the driver: its leases, its keys, its users.

Owns nothing. Speaks to one member over a channel that lasts as long as the question.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from aetcd import rpc


@asynccontextmanager
async def channel(endpoint: str) -> AsyncIterator[Any]:
    """A channel of its own to one member."""
    async with grpc.aio.insecure_channel(
        endpoint, options=[("grpc.use_local_subchannel_pool", 1)]
    ) as opened:
        yield opened


async def revoke_short(endpoint: str, ttl_s: float, *, prefix: str) -> int:
    """Revoke the leases of at most ``ttl_s`` that keys of ``prefix`` hang on; how many."""
    async with channel(endpoint) as opened:
        start = f"holdfast/{prefix}".encode()
        request = rpc.RangeRequest(key=start, range_end=start + b"\xff")
        found = {item.lease for item in (await rpc.KVStub(opened).Range(request)).kvs} - {0}
        leases, revoked = rpc.LeaseStub(opened), 0
        for lease in found:
            told = await leases.LeaseTimeToLive(rpc.LeaseTimeToLiveRequest(ID=lease))
            if 0 <= told.grantedTTL <= ttl_s:
                await leases.LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease))
                revoked += 1
        return revoked
