"""The port of bearer tokens: who may use the HTTP API, and the log of what admins did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from outlive.model.bearer import Act, BearerRecord, NewBearer
from outlive.names import BearerId


class TokenStore(Protocol):
    """Bearer tokens of one namespace in one store.

    Each method is one atomic step, judged by the store's wall clock in UTC. All of them may be
    repeated. Any may raise ``StoreUnavailable`` (nothing applied) or ``OutcomeUnknown``.
    """

    async def create(self, bearer: NewBearer, *, actor: str) -> None:
        """Keep a bearer token, and the act of making it, in one step.

        An id that is there already changes nothing. Tokens that ended long ago are forgotten.
        """
        ...

    async def find(self, digest: str) -> BearerRecord | None:
        """The token with this digest, active or not."""
        ...

    async def list(self, *, limit: int) -> Sequence[BearerRecord]:
        """Tokens, newest first."""
        ...

    async def revoke(self, id: BearerId, *, actor: str) -> BearerRecord | None:  # noqa: A002
        """End a token at once, and keep the act, in one step; ``None`` if there is no such token.

        One that is revoked already stays as it is, and no second act is kept.
        """
        ...

    async def record(self, act: Act) -> None:
        """Add to the log of admin acts; the store says when. Only the newest are kept."""
        ...

    async def acts(self, *, limit: int) -> Sequence[Act]:
        """The log, newest first."""
        ...
