"""Sessions of HTTP workers: what their claims hang on.

Owns which session a worker has, and until when this server promises it. Its id is derived from the
worker's bearer, its name and a nonce, so that nobody else can name it. With a nonce that the worker
chose, every server of a fleet finds the same session; without one, this server chooses and
remembers it for as long as it lives.

Every renewal passes here and is written down, one at a time for each session: a promise that is
longer than what the store was told last would let a worker go on after others have its work.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakValueDictionary

from outlive.clock import Clock
from outlive.errors import Fenced, LeaseLost
from outlive.model.session import HostSession
from outlive.names import HostId
from outlive.ports.host_store import HostStore
from outlive.server import limits
from outlive.server.access import Principal
from outlive.server.claim_ids import derived
from outlive.server.problems import session_ended

# Sessions whose last renewal this server remembers, and workers whose nonce it chose; the one that
# was not heard of for longest is forgotten, and costs a write, or a new session.
_REMEMBERED_MAX = 10_000

# A renewal is asked of the store when this much of the ttl has passed since the last one.
_RENEW_AFTER = 1 / 3

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSession:
    """A living session, and the monotonic instant at which it ends unless it is renewed."""

    id: HostId
    deadline: float


@dataclass(frozen=True, slots=True)
class _Known:
    ttl_s: float
    renewed: float

    @property
    def deadline(self) -> float:
        return self.renewed + self.ttl_s


class Sessions:
    """The sessions of HTTP workers in one namespace, as this server knows them."""

    def __init__(
        self,
        hosts: HostStore,
        clock: Clock,
        new_nonce: Callable[[], str],
        opened: Callable[[float], None],
    ) -> None:
        self._hosts = hosts
        self._clock = clock
        self._new_nonce = new_nonce
        # Told the ttl of each session, so that somebody looks when it could have ended.
        self._expect = opened
        self._known: OrderedDict[HostId, _Known] = OrderedDict()
        # Sessions of workers that name none, by bearer and worker.
        self._chosen: OrderedDict[tuple[str, str], HostId] = OrderedDict()
        # Held while a session is chosen or renewed; gone when nobody holds or awaits it.
        self._turns: WeakValueDictionary[object, asyncio.Lock] = WeakValueDictionary()

    async def ensure(
        self, principal: Principal, worker: str, nonce: str | None, ttl_s: float
    ) -> WorkerSession:
        """The worker's session, alive for about ``ttl_s`` from now; opened if need be.

        Raises:
            Problem: The session that the worker's own nonce names has ended.
            StoreError: The store did not answer.
        """
        if nonce is not None:
            try:
                return await self._alive(_id_of(principal, worker, nonce), worker, ttl_s)
            except LeaseLost:
                raise session_ended() from None
        where = (principal.id, worker)
        # The first requests of a worker come together: they share one session.
        async with self._turn(where):
            chosen = self._chosen.get(where)
            if chosen is not None:
                self._chosen.move_to_end(where)
                try:
                    return await self._alive(chosen, worker, ttl_s)
                except LeaseLost:
                    pass
            chosen = _id_of(principal, worker, self._new_nonce())
            session = await self._open(chosen, worker, ttl_s)
            _remember(self._chosen, where, chosen)
            return session

    def named(self, principal: Principal, worker: str, nonce: str | None) -> set[HostId]:
        """The session that the worker has or would have here; nothing if only it could say."""
        if nonce is not None:
            return {_id_of(principal, worker, nonce)}
        chosen = self._chosen.get((principal.id, worker))
        return set() if chosen is None else {chosen}

    def forget(self, session: HostId) -> None:
        """Look again at the store before this session is believed in."""
        self._known.pop(session, None)

    async def renew(self, session: HostId, ttl_s: float | None) -> float | None:
        """Renew a session that exists: its new deadline, or ``None`` if it has ended.

        Without ``ttl_s`` it keeps its own.
        """
        async with self._turn(session):
            known = self._known.get(session)
            if ttl_s is None:
                ttl_s = await self._ttl_s(session) if known is None else known.ttl_s
            try:
                return (await self._renew(session, ttl_s)).deadline
            except LeaseLost:
                return None

    def ttl_s(self, session: HostId) -> float:
        """How long the session was renewed for last."""
        known = self._known.get(session)
        return limits.TTL_DEFAULT_S if known is None else known.ttl_s

    async def _alive(self, id_: HostId, worker: str, ttl_s: float) -> WorkerSession:
        """The session of this id, renewed if it is time, opened if it never was.

        Raises:
            LeaseLost: It has ended.
        """
        async with self._turn(id_):
            known = self._known.get(id_)
            if known is not None:
                due = known.renewed + ttl_s * _RENEW_AFTER
                if known.ttl_s == ttl_s and self._clock.monotonic() <= due:
                    return WorkerSession(id=id_, deadline=known.deadline)
                return await self._renew(id_, ttl_s)
            try:
                return await self._renew(id_, ttl_s)
            except Fenced:
                # It has ended, or never was: opening tells the two apart.
                return await self._open(id_, worker, ttl_s)

    async def _renew(self, id_: HostId, ttl_s: float) -> WorkerSession:
        begun = self._clock.monotonic()
        try:
            await self._hosts.renew(id_, round(ttl_s * 1e6))
        except LeaseLost:
            self._known.pop(id_, None)
            raise
        return self._note(id_, _Known(ttl_s, begun))

    async def _open(self, id_: HostId, worker: str, ttl_s: float) -> WorkerSession:
        begun = self._clock.monotonic()
        await self._hosts.open(
            HostSession(
                id=id_, name=worker, ttl_us=round(ttl_s * 1e6), metadata='{"kind":"http-worker"}'
            )
        )
        return self._note(id_, _Known(ttl_s, begun))

    def _note(self, id_: HostId, renewed: _Known) -> WorkerSession:
        before = self._known.get(id_)
        _remember(self._known, id_, renewed)
        if before is None or renewed.ttl_s < before.ttl_s:
            self._expect(renewed.ttl_s)
        return WorkerSession(id=id_, deadline=renewed.deadline)

    async def _ttl_s(self, session: HostId) -> float:
        """The ttl of a session that another server opened, or this one before it was restarted."""
        found = await self._hosts.get(session)
        return limits.TTL_DEFAULT_S if found is None else found.ttl_us / 1e6

    def _turn(self, of: object) -> asyncio.Lock:
        return self._turns.get(of) or self._turns.setdefault(of, asyncio.Lock())


def _remember(known: OrderedDict[_Key, _Value], key: _Key, value: _Value) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > _REMEMBERED_MAX:
        known.popitem(last=False)


def _id_of(principal: Principal, worker: str, nonce: str) -> HostId:
    return HostId(derived(principal.key, "session", principal.namespace, worker, nonce))
