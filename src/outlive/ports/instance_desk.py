"""The port of operators: what is known of instances, and what may be done to them from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from outlive.model.instance import (
    HistoryRow,
    InstanceFilter,
    InstanceRecord,
    InstanceStatus,
    Message,
    Opened,
)
from outlive.names import InstanceId


class InstanceDesk(Protocol):
    """Instances of one namespace, as operators and callers meet them.

    Each method is one atomic step, judged by the store's own clock, and may be repeated. Any of
    them may raise ``StoreUnavailable`` (nothing was applied) or ``OutcomeUnknown``.
    """

    async def get(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        wait_us: int = 0,
    ) -> InstanceRecord | None:
        """What is known of one instance.

        With ``wait_us``, and if it is live, this host is rung with ``instance/<id>`` when it ends
        or replies, for so long. What was under way already may ring nobody.
        """
        ...

    async def reply(self, id: InstanceId, message: str) -> str | None:  # noqa: A002 - it is one
        """What the instance replied to a message, if it did."""
        ...

    async def history(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        after: int,
        limit: int,
    ) -> Sequence[HistoryRow]:
        """Rows of the current run behind the version ``after``, in order."""
        ...

    async def list(
        self, wanted: InstanceFilter, *, after: str | None, limit: int
    ) -> Sequence[InstanceRecord]:
        """A page of instances, oldest first; ``after`` is the cursor of the last one before.

        Pages skip nothing that was there before the first of them and still matches.
        """
        ...

    async def count(self, wanted: InstanceFilter) -> dict[InstanceStatus, int]:
        """How many match, by status."""
        ...

    async def terminate(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        outcome: str,
        sends: Sequence[Message] = (),
        below: str | None = None,
    ) -> Opened:
        """End a live instance at once, taking it from its owner. Terminated already is ``changed``.

        ``sends`` go out with it, as those of a commit do. With ``below``, all live instances that
        its current run has started and that are not to outlive it end in the same step, with this
        for an outcome, and those that they have started, however deep.
        """
        ...

    async def suspend(self, id: InstanceId) -> Opened:  # noqa: A002 - it is one
        """Let a live instance begin nothing new. Its owner keeps it and hears of it."""
        ...

    async def resume(self, id: InstanceId) -> Opened:  # noqa: A002 - it is one
        """Let it go on. Repeatable.

        Suspended and without an owner, it can be claimed at once: what its last owner left undone
        nobody else knows. One that was never claimed keeps its due time.
        """
        ...

    async def reopen(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        version: int,
        events: str,
    ) -> Opened:
        """Let an ended instance live again: one more history row, no outcome, claimable at once.

        Refused unless it has ended and ``version`` is the one after its newest. Repeatable: with
        the same events and version it is ``changed``, whoever asks: of several at once that read
        the same end each is told so, and there is one row.
        """
        ...

    async def purge(self, ids: Sequence[InstanceId]) -> Sequence[Opened]:
        """Forget instances that have ended, with all that hangs on them; live ones are refused."""
        ...

    async def ring(self, ids: Sequence[InstanceId]) -> None:
        """Ring whoever a letter in these mailboxes would ring. A hint; may be lost."""
        ...
