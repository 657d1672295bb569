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
        start = f"outlive/{prefix}".encode()
        request = rpc.RangeRequest(key=start, range_end=start + b"\xff")
        found = {item.lease for item in (await rpc.KVStub(opened).Range(request)).kvs} - {0}
        leases, revoked = rpc.LeaseStub(opened), 0
        for lease in found:
            told = await leases.LeaseTimeToLive(rpc.LeaseTimeToLiveRequest(ID=lease))
            if 0 <= told.grantedTTL <= ttl_s:
                await leases.LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease))
                revoked += 1
        return revoked


async def compact(endpoint: str) -> None:
    """Forget every revision but the newest."""
    async with channel(endpoint) as opened:
        kv = rpc.KVStub(opened)
        now = (await kv.Range(rpc.RangeRequest(key=b"x"))).header.revision
        await kv.Compact(rpc.CompactionRequest(revision=now, physical=True))


async def revision(endpoint: str) -> int:
    """The newest revision: it grows with every write, and with nothing else."""
    async with channel(endpoint) as opened:
        return (await rpc.KVStub(opened).Range(rpc.RangeRequest(key=b"x"))).header.revision


async def demand_users(endpoint: str, password: str) -> None:
    """Turn authentication on: ``root``, ``app`` with rights on ``outlive/``, ``other`` without."""
    async with channel(endpoint) as opened:
        auth = rpc.AuthStub(opened)
        for role in ("root", "outlive"):
            await auth.RoleAdd(rpc.AuthRoleAddRequest(name=role))
        permission = rpc.Permission(
            permType=rpc.Permission.READWRITE, key=b"outlive/", range_end=b"outlive0"
        )
        await auth.RoleGrantPermission(
            rpc.AuthRoleGrantPermissionRequest(name="outlive", perm=permission)
        )
        for user in ("root", "app", "other"):
            await auth.UserAdd(rpc.AuthUserAddRequest(name=user, password=password))
        for user, role in (("root", "root"), ("app", "outlive")):
            await auth.UserGrantRole(rpc.AuthUserGrantRoleRequest(user=user, role=role))
        await auth.AuthEnable(rpc.AuthEnableRequest())
