"""Sessions of HTTP workers: what their claims hang on.

Owns which session a worker has. Its id is derived from the worker's bearer, its name and a nonce,
so that nobody else can name it. With a nonce that the worker chose, every server of a fleet finds
the same session; without one, this server chooses and remembers it for as long as it lives.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.clock import Clock
from holdfast.errors import Fenced, LeaseExpired, LeaseLost
from holdfast.model.session import HostSession
from holdfast.names import HostId
from holdfast.ports.host_store import HostStore
from holdfast.server.access import Principal
from holdfast.server.claim_ids import derived
from holdfast.server.problems import session_ended

# Sessions whose last renewal this server remembers; forgetting one costs a write, no more.
_REMEMBERED_MAX = 10_000

# A renewal is asked of the store when this much of the ttl has passed since the last one.
_RENEW_AFTER = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSession:
    """A living session, and the monotonic instant at which it ends unless it is renewed."""

    id: HostId
    deadline: float


@dataclass(slots=True)
class _Known:
    id: HostId
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
        self._known: OrderedDict[tuple[str, str, str | None], _Known] = OrderedDict()

    async def ensure(
        self, principal: Principal, worker: str, nonce: str | None, ttl_s: float
    ) -> WorkerSession:
        """The worker's session, alive for about ``ttl_s`` from now; opened if need be.

        Raises:
            Problem: The session that the worker's own nonce names has ended.
            StoreError: The store did not answer.
        """
        where = (principal.id, worker, nonce)
        known = self._known.get(where)
        if known is not None:
            try:
                return await self._renewed(known, ttl_s)
            except LeaseLost:
                del self._known[where]
                if nonce is not None:
                    raise session_ended() from None
        return await self._opened(principal, where, ttl_s)

    def named(self, principal: Principal, worker: str, nonce: str | None) -> set[HostId]:
        """The session that the worker has or would have here; nothing if only it could say."""
        known = self._known.get((principal.id, worker, nonce))
        if known is not None:
            return {known.id}
        return set() if nonce is None else {_id_of(principal, worker, nonce)}

    def forget(self, principal: Principal, worker: str, nonce: str | None) -> None:
        """Look again at the store before this worker's session is believed in."""
        self._known.pop((principal.id, worker, nonce), None)

    async def renew(self, session: HostId, ttl_s: float) -> float | None:
        """Renew a session that a claim id names: its new deadline, or ``None`` if it has ended."""
        begun = self._clock.monotonic()
        try:
            await self._hosts.renew(session, round(ttl_s * 1e6))
        except LeaseLost:
            return None
        return begun + ttl_s

    async def _renewed(self, known: _Known, ttl_s: float) -> WorkerSession:
        now = self._clock.monotonic()
        if known.ttl_s != ttl_s or now - known.renewed > ttl_s * _RENEW_AFTER:
            await self._hosts.renew(known.id, round(ttl_s * 1e6))
            known.ttl_s = ttl_s
            known.renewed = now
        return WorkerSession(id=known.id, deadline=known.deadline)

    async def _opened(
        self, principal: Principal, where: tuple[str, str, str | None], ttl_s: float
    ) -> WorkerSession:
        _, worker, nonce = where
        used = self._new_nonce() if nonce is None else nonce
        known = _Known(
            id=_id_of(principal, worker, used),
            ttl_s=ttl_s,
            renewed=self._clock.monotonic(),
        )
        session = HostSession(
            id=known.id, name=worker, ttl_us=round(ttl_s * 1e6), metadata='{"kind":"http-worker"}'
        )
        try:
            await self._hosts.renew(known.id, session.ttl_us)
        except LeaseExpired:
            # Only a nonce that the worker chose leads to a session that was there before.
            raise session_ended() from None
        except Fenced:
            try:
                await self._hosts.open(session)
            except Fenced:
                raise session_ended() from None
        self._expect(ttl_s)
        self._known[where] = known
        self._known.move_to_end(where)
        if len(self._known) > _REMEMBERED_MAX:
            self._known.popitem(last=False)
        return WorkerSession(id=known.id, deadline=known.deadline)


def _id_of(principal: Principal, worker: str, nonce: str) -> HostId:
    return HostId(derived(principal.key, "session", principal.namespace, worker, nonce))
