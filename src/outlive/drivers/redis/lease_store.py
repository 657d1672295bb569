"""Leases in Redis: the port, each method one script in one round trip.

Owns the names of the keys and what the answers mean. Nothing is decided here: the scripts decide,
by the server's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from outlive.drivers.redis.epoch import Epoch
from outlive.drivers.redis.link import Link
from outlive.drivers.redis.records import raw_of, records_of, tenancies_of
from outlive.drivers.redis.scripts import Script, load_scripts
from outlive.errors import (
    Fenced,
    LeaseExpired,
    LeaseNotFound,
    StoreUnavailable,
    UnsupportedByDriver,
)
from outlive.model.lease import (
    HISTORY_MAX,
    LIST_LIMIT_MAX,
    AcquireRequest,
    Grant,
    Held,
    LeaseRecord,
    Tenancy,
)
from outlive.names import Owner, Token, WaiterId, host_of

# How many keys one part of a listing looks at: a script holds up everybody else, and this many
# take about a millisecond.
_LIST_KEYS_MAX = 200

# A store that loses its epoch record again while it is being told is being flushed in a loop.
_ADOPT_TRIES_MAX = 3

# No byte of UTF-8 is greater: the end of all keys with a prefix.
_BEYOND = b"\xff"


class RedisLeaseStore:
    """The ``LeaseStore`` of one namespace in one database."""

    def __init__(self, link: Link, epoch: Epoch, keys: str) -> None:
        self._link = link
        self._epoch = epoch
        self._scripts = load_scripts()
        self._lease = f"{keys}lease:"
        self._history = f"{keys}history:"
        self._until = f"{keys}until:"
        self._queue = f"{keys}queue:"
        self._places = f"{keys}places:"
        self._index = f"{keys}keys"
        self._numbers = f"{keys}numbers"
        self._bell = f"{keys}bell:"

    async def acquire(self, request: AcquireRequest) -> Grant | Held:
        """Own the key, or learn why not; see the port."""
        key = request.key
        for _ in range(_ADOPT_TRIES_MAX):
            answer = await self._run_for(
                request.ttl_us,
                self._scripts.acquire,
                8,
                *self._queued(key),
                self._epoch.key,
                self._index,
                self._numbers,
                key,
                request.owner,
                request.ttl_us,
                request.metadata,
                request.host,
                request.limit,
                request.queue_us,
                host_of(request.owner) if request.resume else "",
            )
            if answer[0] == 1:
                _, ttl_max_us, slot, token, version, state, previous = answer
                self._epoch.learn(max(ttl_max_us, request.ttl_us))
                return Grant(
                    key,
                    slot,
                    request.owner,
                    Token(token),
                    version,
                    request.ttl_us,
                    state,
                    previous,
                )
            if answer[0] == 0:
                _, ttl_max_us, owner, retry_us, place, ahead, limit = answer
                self._epoch.learn(ttl_max_us)
                waiter = None if place is None else WaiterId(place)
                return Held(key, owner, retry_us / 1e6, waiter, ahead, limit)
            await self._link.adopt_again()
        raise StoreUnavailable(
            "the records in Redis disappeared during every attempt: look for a program that "
            "flushes this database"
        )

    async def renew(self, grant: Grant, ttl_us: int, *, state: str | None = None) -> Grant:
        """Extend the grant; see the port."""
        key = grant.key
        answer = await self._run_for(
            ttl_us,
            self._scripts.renew,
            3,
            self._lease + key,
            self._history + key,
            self._epoch.key,
            grant.slot,
            grant.owner,
            grant.token,
            ttl_us,
            *(() if state is None else (state,)),
        )
        if answer[0] == 0:
            _refuse(key, answer[1])
        self._epoch.learn(ttl_us)
        return Grant(
            key,
            grant.slot,
            grant.owner,
            grant.token,
            answer[1],
            ttl_us,
            answer[2],
            grant.previous_owner,
        )

    async def release(self, grant: Grant) -> None:
        """Give the key up and wake the head of its queue; see the port."""
        key = grant.key
        refusal = await self._link.run(
            self._scripts.release,
            5,
            *self._queued(key),
            grant.slot,
            grant.owner,
            grant.token,
            key,
            self._bell,
        )
        if refusal:
            _refuse(key, refusal)

    async def leave(self, key: str, waiter: WaiterId, owner: Owner) -> None:
        """Give up a place in the queue; see the port."""
        lease, _, until, queue, places = self._queued(key)
        await self._link.run(
            self._scripts.leave, 4, lease, until, queue, places, key, owner, waiter, self._bell
        )

    async def break_lease(self, key: str, *, reason: str) -> Sequence[LeaseRecord]:
        """End every grant of the key; see the port."""
        answer = await self._link.run(
            self._scripts.break_lease, 5, *self._queued(key), key, reason, self._bell
        )
        if not answer:
            raise LeaseNotFound(key)
        now_us, *found = answer
        return records_of(key, now_us, found[0]) if found else []

    async def get(self, key: str) -> Sequence[LeaseRecord]:
        """The records of one key; see the port."""
        now_us, found, _ = await self._look(key, ended=0)
        return records_of(key, now_us, found)

    async def history(self, key: str, *, limit: int) -> Sequence[Tenancy]:
        """The newest entries of the key's history; see the port."""
        most = max(0, min(limit, HISTORY_MAX))
        now_us, found, ended = await self._look(key, ended=most)
        return tenancies_of(key, now_us, found, ended, most)

    async def raw(self, key: str) -> Sequence[Mapping[str, Any]]:
        """The stored fields of one key, exactly as they are; see the port."""
        return raw_of(await self._link.call("HGETALL", self._lease + key, write=False))

    async def list(
        self, *, prefix: str, owner: str | None, active: bool, after: str | None, limit: int
    ) -> Sequence[LeaseRecord]:
        """A page of records; see the port.

        Keys are looked at in parts, each one atomic step, so that a long listing holds nobody up.
        """
        wanted = max(0, min(limit, LIST_LIMIT_MAX))
        start = f"[{prefix}" if after is None or after < prefix else f"({after}"
        # A prefix that is not valid Unicode is refused with the command, like any other text.
        end = b"(" + prefix.encode(errors="surrogatepass") + _BEYOND
        page: list[LeaseRecord] = []
        while len(page) < wanted:
            now_us, last, *found = await self._link.run(
                self._scripts.list,
                1,
                self._index,
                start,
                end,
                _LIST_KEYS_MAX,
                wanted - len(page),
                "1" if active else "",
                "" if owner is None else f"={owner}",
                self._lease,
                self._until,
            )
            for key, records in zip(found[::2], found[1::2], strict=True):
                page.extend(records_of(key, now_us, records))
            if last is None:
                break
            start = f"({last}"
        return page

    async def guard(self, grant: Grant, tx: object) -> None:
        """Refuse: a transaction of Redis cannot hold others off."""
        del tx
        raise UnsupportedByDriver(
            f"Redis has no transactions, so lease {grant.key!r} cannot guard one; carry "
            "lease.token in the write instead"
        )

    async def _run_for(self, ttl_us: int, script: Script, keys: int, *args: Any) -> Any:
        """Run a script that grants ``ttl_us``, and remember it also where the reply is lost."""
        try:
            return await self._link.run(script, keys, *args)
        except StoreUnavailable:
            raise
        except BaseException:
            self._epoch.learn(ttl_us)
            raise

    async def _look(self, key: str, *, ended: int) -> Any:
        return await self._link.run(
            self._scripts.get,
            3,
            self._lease + key,
            self._until + key,
            self._history + key,
            ended,
        )

    def _queued(self, key: str) -> tuple[str, str, str, str, str]:
        return (
            self._lease + key,
            self._history + key,
            self._until + key,
            self._queue + key,
            self._places + key,
        )


def _refuse(key: str, why: str) -> NoReturn:
    if why == "expired":
        raise LeaseExpired(key)
    raise Fenced(key, why)
