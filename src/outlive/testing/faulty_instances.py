"""An instance store behind a faulty network, for one simulated host: the life of instances.

Owns the wrapping of the port and the record of what the store carried out. Must never answer by
itself: what the store decided is passed on, late, twice or not at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from outlive.model.instance import (
    ClaimedInstances,
    Commit,
    Committed,
    Entry,
    Handback,
    InstanceClaimRequest,
    Letter,
    Message,
    NewInstance,
    ReclaimedInstance,
    Sent,
    Started,
)
from outlive.names import InstanceId
from outlive.ports.instance_store import Body, InstanceStore
from outlive.testing.faults import Faults
from outlive.testing.faulty_desk import FaultyInstanceDesk
from outlive.testing.faulty_port import only_once
from outlive.testing.instance_history import InstanceHistory
from outlive.testing.simulation import SimHost


class FaultyInstanceStore(FaultyInstanceDesk):
    """An instance store as a host sees it through the network; each request is recorded."""

    def __init__(
        self, store: InstanceStore, faults: Faults, host: SimHost, history: InstanceHistory
    ) -> None:
        super().__init__(store, faults, host, history)
        self._store = store

    async def start(self, instances: Sequence[NewInstance]) -> Sequence[Started]:
        """See the port."""

        async def apply() -> Sequence[Started]:
            outcomes = await self._store.start(instances)
            for one, outcome in zip(instances, outcomes, strict=True):
                self._serve(
                    "start",
                    one.id,
                    outcome.entry,
                    token=outcome.token,
                    session=one.session or "",
                    at_us=outcome.began_at_us,
                    asked=one,
                )
            return outcomes

        outcomes = await self._call(apply)
        made = (one.id for one in outcomes if one.entry is Entry.CREATED)
        self._history.acknowledged.update(made)
        return outcomes

    async def start_in(self, instances: Sequence[NewInstance], tx: object) -> Sequence[Started]:
        """See the port. The transaction is the caller's own, so no fault is added here."""
        return await self._store.start_in(instances, tx)

    async def claim(self, request: InstanceClaimRequest) -> ClaimedInstances:
        """See the port."""

        async def apply() -> ClaimedInstances:
            claimed = await self._store.claim(request)
            for one in claimed.instances:
                self._serve(
                    "claim",
                    one.id,
                    token=one.token,
                    session=request.session,
                    version=one.version,
                    at_us=claimed.at_us,
                    request=request.request,
                    letters=one.letters,
                )
            return claimed

        # What an answered claim took a second time nobody would know of until the session ends.
        return await self._call(apply, answered_once=True)

    async def commit(self, commits: Sequence[Commit]) -> Sequence[Committed]:
        """See the port."""

        async def apply() -> Sequence[Committed]:
            outcomes = await self._store.commit(commits)
            for one, outcome in zip(commits, outcomes, strict=True):
                self._committed(one, outcome)
            return outcomes

        return await self._call(apply)

    async def transact(self, id: InstanceId, body: Body) -> Committed:  # noqa: A002 - it is one
        """See the port. What the body runs is not sent again: a transaction is no message."""
        said: list[Commit] = []

        async def noting(connection: Any) -> Commit:
            commit = body(connection)
            if isinstance(commit, Awaitable):
                commit = await commit
            said.append(commit)
            return commit

        async def apply() -> Committed:
            outcome = await self._store.transact(id, noting)
            self._committed(said[-1], outcome)
            return outcome

        return await self._call(only_once(apply))

    async def release(self, handbacks: Sequence[Handback]) -> Sequence[bool]:
        """See the port."""

        async def apply() -> Sequence[bool]:
            outcomes = await self._store.release(handbacks)
            for one, ok in zip(handbacks, outcomes, strict=True):
                outcome = "ok" if ok else "refused"
                self._serve("release", one.id, outcome, token=one.token, asked=one)
            return outcomes

        return await self._call(apply)

    async def letters(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        after: int,
        limit: int,
    ) -> Sequence[Letter]:
        """See the port."""

        async def apply() -> Sequence[Letter]:
            letters = await self._store.letters(id, after=after, limit=limit)
            self._serve("letters", id, letters=tuple(letters))
            return letters

        return await self._call(apply)

    async def send(self, messages: Sequence[Message]) -> Sequence[Sent]:
        """See the port."""
        posted = [self._history.post(message) for message in messages]

        async def apply() -> Sequence[Sent]:
            outcomes = await self._store.send(messages)
            for message, outcome in zip(messages, outcomes, strict=True):
                self._serve("send", message.to, outcome, asked=message)
            return outcomes

        outcomes = await self._call(apply)
        for one, outcome in zip(posted, outcomes, strict=True):
            if outcome in (Sent.SENT, Sent.DUPLICATE):
                self._history.acknowledge(one)
        return outcomes

    async def reclaim(self, *, limit: int) -> Sequence[ReclaimedInstance]:
        """See the port."""

        async def apply() -> Sequence[ReclaimedInstance]:
            taken = await self._store.reclaim(limit=limit)
            for one in taken:
                self._serve("reclaim", one.id)
            return taken

        return await self._call(apply)

    async def tend(self, *, limit: int) -> int:
        """See the port."""
        return await self._call(lambda: self._store.tend(limit=limit))

    def _committed(self, commit: Commit, outcome: Committed) -> None:
        self._serve(
            "commit",
            commit.id,
            "ok" if outcome.ok else "refused",
            token=commit.token,
            version=commit.version,
            at_us=outcome.at_us,
            asked=commit,
            taken=tuple(outcome.taken),
        )
