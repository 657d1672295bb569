"""An instance store behind a faulty network, for one simulated host: what operators see and do.

Owns the wrapping of that half of the port, and how anything carried out is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.model.instance import (
    HistoryRow,
    InstanceFilter,
    InstanceRecord,
    InstanceStatus,
    Message,
    Opened,
)
from outlive.names import InstanceId
from outlive.ports.instance_desk import InstanceDesk
from outlive.testing.faults import Faults
from outlive.testing.faulty_port import FaultyPort, only_once
from outlive.testing.instance_history import InstanceHistory, InstanceServed
from outlive.testing.simulation import SimHost


class FaultyInstanceDesk(FaultyPort):
    """The desk as a host sees it through the network; what changes something is recorded."""

    def __init__(
        self, desk: InstanceDesk, faults: Faults, host: SimHost, history: InstanceHistory
    ) -> None:
        super().__init__(faults, host)
        self._desk = desk
        self._history = history

    async def get(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        wait_us: int = 0,
    ) -> InstanceRecord | None:
        """See the port."""
        return await self._call(lambda: self._desk.get(id, wait_us=wait_us))

    async def reply(self, id: InstanceId, message: str) -> str | None:  # noqa: A002 - it is one
        """See the port."""
        return await self._call(lambda: self._desk.reply(id, message))

    async def history(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        after: int,
        limit: int,
    ) -> Sequence[HistoryRow]:
        """See the port."""
        return await self._call(lambda: self._desk.history(id, after=after, limit=limit))

    async def list(
        self, wanted: InstanceFilter, *, after: str | None, limit: int
    ) -> Sequence[InstanceRecord]:
        """See the port."""
        return await self._call(lambda: self._desk.list(wanted, after=after, limit=limit))

    async def count(self, wanted: InstanceFilter) -> dict[InstanceStatus, int]:
        """See the port."""
        return await self._call(lambda: self._desk.count(wanted))

    async def terminate(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        outcome: str,
        sends: Sequence[Message] = (),
        below: str | None = None,
    ) -> Opened:
        """See the port."""

        async def apply() -> Opened:
            opened = await self._desk.terminate(id, outcome=outcome, sends=sends, below=below)
            self._serve("terminate" if below is None else "terminate.family", id, opened)
            if opened is Opened.CHANGED:
                for message in sends:
                    self._serve("send", message.to, "with", asked=message)
            return opened

        return await self._call(apply)

    async def suspend(self, id: InstanceId) -> Opened:  # noqa: A002 - it is one
        """See the port."""

        async def apply() -> Opened:
            opened = await self._desk.suspend(id)
            self._serve("suspend", id, opened)
            return opened

        # A person asks for it: sent again by a wire, it would undo what was asked for since.
        return await self._call(only_once(apply))

    async def resume(self, id: InstanceId) -> Opened:  # noqa: A002 - it is one
        """See the port."""

        async def apply() -> Opened:
            opened = await self._desk.resume(id)
            self._serve("resume", id, opened)
            return opened

        return await self._call(only_once(apply))

    async def reopen(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        version: int,
        events: str,
    ) -> Opened:
        """See the port."""

        async def apply() -> Opened:
            opened = await self._desk.reopen(id, version=version, events=events)
            self._serve("reopen", id, opened, version=version, events=events)
            return opened

        return await self._call(apply)

    async def purge(self, ids: Sequence[InstanceId]) -> Sequence[Opened]:
        """See the port."""

        async def apply() -> Sequence[Opened]:
            outcomes = await self._desk.purge(ids)
            for one, opened in zip(ids, outcomes, strict=True):
                self._serve("purge", one, opened)
            return outcomes

        return await self._call(apply)

    async def ring(self, ids: Sequence[InstanceId]) -> None:
        """See the port."""
        await self._call(lambda: self._desk.ring(ids))

    def _serve(self, op: str, instance: str, outcome: str = "ok", **fields: Any) -> None:
        self._history.served.append(
            InstanceServed(at=self._now, op=op, instance=instance, outcome=outcome, **fields)
        )
