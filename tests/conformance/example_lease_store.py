"""Leases in one JSON file, each step under ``flock``: the lease store of the example driver.

Expiry is judged by the boot-time clock, so that a file serves one machine until its next boot.
"""

import fcntl
import json
from contextlib import contextmanager
from datetime import timedelta

from outlive import errors
from outlive.model.lease import Grant, Held, LeaseRecord, Tenancy
from outlive.names import host_of

NEW = {"token": 0, "version": 0, "owner": None, "state": None, "expires": 0}


class FileLeaseStore:
    def __init__(self, path, context):
        self.path, self.closed = path, False
        self.clock, self.namespace = context.clock, context.namespace

    @contextmanager
    def step(self):  # Read, change, replace, all under the lock; an error inside writes nothing.
        if self.closed:
            raise errors.StoreUnavailable("the file is closed")
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            file = json.loads(self.path.read_text()) if self.path.exists() else {}
            rows = file.setdefault(self.namespace, {})
            yield rows, round(self.clock.monotonic() * 1e6)
            self.path.with_suffix(".new").write_text(json.dumps(file))
            self.path.with_suffix(".new").replace(self.path)

    async def acquire(self, request):
        if request.limit != 1:
            raise errors.UnsupportedByDriver("the file store has no semaphores")
        with self.step() as (rows, now):
            row = NEW | rows.get(request.key, {})
            owner, again = row["owner"], row["owner"] == request.owner
            ours = again or (request.resume and host_of(owner or "") == host_of(request.owner))
            if row["expires"] > now and not ours:
                return Held(request.key, owner, (row["expires"] - now) / 1e6)
            if not again:  # The token grows with each new owner, because no row is ever deleted.
                row |= {"token": row["token"] + 1, "acquired": now, "owner": request.owner}
            rows[request.key] = row | {"metadata": request.metadata}
            previous = None if again else owner
            return self.extend(rows, request.key, request.ttl_us, now, previous)

    def extend(self, rows, key, ttl_us, now, previous):
        row = rows[key]
        row |= {"version": row["version"] + 1, "ttl": ttl_us, "expires": now + ttl_us}
        row["renewed"] = now
        who, state = row["owner"], row["state"]
        return Grant(key, 0, who, row["token"], row["version"], ttl_us, state, previous)

    def check_owner(self, rows, grant):
        row = rows.get(grant.key, NEW)
        if (row["owner"], row["token"]) != (grant.owner, grant.token):
            raise errors.Fenced(grant.key)
        return row

    async def renew(self, grant, ttl_us, *, state=None):
        with self.step() as (rows, now):
            row = self.check_owner(rows, grant)
            if row["expires"] <= now:
                raise errors.LeaseExpired(grant.key)
            row["state"] = row["state"] if state is None else state
            return self.extend(rows, grant.key, ttl_us, now, grant.previous_owner)

    async def release(self, grant):
        with self.step() as (rows, _):
            self.check_owner(rows, grant).update(owner=None, expires=0)

    async def break_lease(self, key, *, reason):
        with self.step() as (rows, now):
            if key not in rows:
                raise errors.LeaseNotFound(key)
            broken = [r for r in [self.record(key, rows[key], now)] if r.active]
            for record in broken:
                rows[key].update(owner=None, expires=0, token=record.token + 1)
            return broken

    def record(self, key, row, now):
        def at(instant):
            return self.clock.now() + timedelta(microseconds=instant - now)

        left = max(0, row["expires"] - now)
        return LeaseRecord(
            key=key, slot=0, limit=1, token=row["token"], version=row["version"], waiters=0,
            owner=row["owner"], active=left > 0, ttl_s=row["ttl"] / 1e6, remaining_s=left / 1e6,
            acquired_at=at(row["acquired"]), renewed_at=at(row["renewed"]), state=row["state"],
            expires_at=at(row["expires"]) if row["owner"] else None, metadata=row["metadata"],
        )  # fmt: skip

    async def list(self, *, prefix, owner, active, after, limit):
        with self.step() as (rows, now):
            found = [self.record(k, rows[k], now) for k in sorted(rows) if k > (after or "")]
        found = [r for r in found if r.key.startswith(prefix) and (r.active or not active)]
        if owner is not None:
            found = [r for r in found if r.owner and owner in (r.owner, host_of(r.owner))]
        return found[:limit]

    async def get(self, key):
        with self.step() as (rows, now):
            return [self.record(key, rows[key], now)] if key in rows else []

    async def history(self, key, *, limit):
        return [Tenancy(key=key, slot=0, token=r.token, owner=r.owner, acquired_at=r.acquired_at,
                        ended_at=None, ended=None, detail=None)
                for r in await self.get(key) if r.owner]  # fmt: skip

    async def raw(self, key):
        with self.step() as (rows, _):
            return [dict(rows[key])] if key in rows else []

    async def guard(self, grant, tx):
        raise errors.UnsupportedByDriver("a file has no transactions to guard")

    async def leave(self, key, waiter, owner):
        with self.step():
            pass  # Nobody queues here, so there is no place to give up.
