"""Who asks, and what they may do: bearer tokens, scopes, and patience with failures.

Owns authentication. The namespace of a request comes from the token that was found, and from
nowhere else. A failure is answered in the same words and after the same time whatever its reason,
and an address that fails too often is not looked at for a while.
"""

from __future__ import annotations

import hmac
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.requests import Request

from outlive.clock import Clock
from outlive.model.bearer import BearerRecord, Scope, bearer_digest, claimed_namespace
from outlive.ports.token_store import TokenStore
from outlive.server import limits
from outlive.server.claim_ids import signing_key
from outlive.server.limits import Limits
from outlive.server.problems import Problem

_log = logging.getLogger("outlive.server.access")

# What an admin may do without being given each of these by name. Payloads are apart on purpose.
_ADMIN = frozenset({Scope.READ, Scope.ENQUEUE, Scope.WORK, Scope.ADMIN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks. ``key`` signs the claim ids of this bearer and is never shown."""

    id: str
    name: str
    namespace: str
    scopes: frozenset[Scope]
    key: bytes = field(repr=False)

    def may(self, scope: Scope) -> bool:
        """Whether the scope was given."""
        return scope in self.scopes or (Scope.ADMIN in self.scopes and scope in _ADMIN)

    def require(self, scope: Scope) -> None:
        """Refuse who was not given ``scope``.

        Raises:
            Problem: It was not.
        """
        if not self.may(scope):
            raise Problem("forbidden", f"This token does not have the scope {scope.value!r}.")


def nobody(namespace: str) -> Principal:
    """Whoever reaches a server that asks for no token, on the same machine.

    Its claim ids are signed with a key that anybody could compute: where everyone may do everything
    there is nothing to prove, and every server of the machine must read them.
    """
    return Principal(
        id="local",
        name="local",
        namespace=namespace,
        scopes=frozenset(Scope),
        key=signing_key(f"open {namespace}"),
    )


class Failures:
    """How many failed attempts each address still has; they come back with time."""

    def __init__(self, clock: Clock, most: int) -> None:
        self._clock = clock
        self._most = most
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def may_try(self, address: str) -> bool:
        """Whether the address has attempts left."""
        return self._now_left(address) >= 1

    def count(self, address: str) -> None:
        """One attempt of the address failed."""
        left = self._now_left(address)
        self._left[address] = (max(0.0, left - 1), self._clock.monotonic())
        self._left.move_to_end(address)
        if len(self._left) > limits.ADDRESSES_MAX:
            self._left.popitem(last=False)

    def _now_left(self, address: str) -> float:
        left, since = self._left.get(address, (float(self._most), 0.0))
        earned = (self._clock.monotonic() - since) * limits.FAILURES_PER_S
        return min(float(self._most), left + earned)


class Authenticator:
    """Finds the principal of a request.

    A server that was opened without tokens asks for none until the first one is made; from then on
    it asks for one like any other.
    """

    def __init__(
        self,
        stores: Mapping[str, TokenStore],
        clock: Clock,
        bounds: Limits,
        *,
        open_to: str | None = None,
    ) -> None:
        self._stores = stores
        self._clock = clock
        self._failure_s = bounds.failure_s
        self._failures = Failures(clock, bounds.failures)
        self._believed: OrderedDict[str, tuple[Principal, float]] = OrderedDict()
        self._open_to = open_to
        self._look_at = 0.0

    async def principal(self, request: Request) -> Principal:
        """Who sent ``request``.

        Raises:
            Problem: It carries no valid token, or its address failed too often.
        """
        begun = self._clock.monotonic()
        if self._open_to is not None and await self._still_open(begun):
            return nobody(self._open_to)
        text = _bearer(request)
        digest = bearer_digest(text)
        believed = self._believed.get(digest)
        if believed is not None and believed[1] > begun:
            return believed[0]
        address = request.client.host if request.client is not None else ""
        # A token that was good goes on where others fail: behind a proxy all have one address, and
        # a stranger must not keep the workers out.
        if believed is None and not self._failures.may_try(address):
            raise Problem(
                "too-many-requests",
                "Too many requests without a valid token from this address; wait.",
                Retry_After="5",
            )
        principal = await self._find(text, digest)
        if principal is None:
            self._believed.pop(digest, None)
            self._failures.count(address)
            why = "the token is unknown, expired or revoked" if text else "there is no token"
            _log.warning(
                "authentication failed for %s: %s", address, why, extra={"address": address}
            )
            await self._clock.sleep(begun + self._failure_s - self._clock.monotonic())
            raise Problem(
                "unauthenticated",
                "Send Authorization: Bearer with a token from `outlive token create` that has "
                "neither expired nor been revoked.",
                WWW_Authenticate='Bearer realm="outlive"',
            )
        self._believe(digest, principal, begun)
        return principal

    async def _find(self, text: str, digest: str) -> Principal | None:
        namespace = claimed_namespace(text)
        store = self._stores.get(namespace) if namespace is not None else None
        if store is None or namespace is None:
            return None
        record = await store.find(digest)
        if record is None or not record.active or not _same(record, digest):
            return None
        return Principal(
            id=record.id,
            name=record.name,
            namespace=namespace,
            scopes=frozenset(record.scopes),
            key=signing_key(text),
        )

    def _believe(self, digest: str, principal: Principal, now: float) -> None:
        self._believed[digest] = (principal, now + limits.BEARER_BELIEVED_S)
        self._believed.move_to_end(digest)
        if len(self._believed) > limits.BEARERS_BELIEVED_MAX:
            self._believed.popitem(last=False)

    async def _still_open(self, now: float) -> bool:
        if now >= self._look_at:
            self._look_at = now + limits.BEARER_BELIEVED_S
            if await any_token(self._stores):
                self._open_to = None
        return self._open_to is not None


async def any_token(stores: Mapping[str, TokenStore]) -> bool:
    """Whether anybody ever made a token; one that was revoked counts as well."""
    for store in stores.values():
        if await store.list(limit=1):
            return True
    return False


def _bearer(request: Request) -> str:
    """The token that a request shows. Never from the query, which ends up in logs."""
    kind, _, text = request.headers.get("authorization", "").partition(" ")
    return text.strip() if kind.lower() == "bearer" else ""


def _same(record: BearerRecord, digest: str) -> bool:
    return hmac.compare_digest(record.digest, digest)
