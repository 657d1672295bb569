"""What operators do to instances, and retention: end, suspend, resume, reopen, purge, tend.

Owns the transactions of these: the row is locked and judged first, and changed under that lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.drivers.postgres import instance_desk_sql
from outlive.drivers.postgres.instance_mail import InstanceMail
from outlive.drivers.postgres.job_tables import JobTables, place
from outlive.drivers.postgres.transactions import Run
from outlive.model.instance import REMOVED_ROWS_MAX, InstanceStatus, Message, Opened
from outlive.names import InstanceId

# What the rows of operators have for a commit id, which no host gives to a commit of its own.
_REOPENED = "operator/reopened"

# One step must end within the command timeout whatever its caller asks for.
_LIMIT_MAX = 10_000


class InstanceOperator:
    """Changes instances in the tables of one namespace, whoever owns them."""

    def __init__(self, tables: JobTables, mail: InstanceMail) -> None:
        self._tables = tables
        self._mail = mail
        self._lock_sql = tables.text(instance_desk_sql.LOCK)
        self._lock_below_sql = tables.text(instance_desk_sql.LOCK_BELOW)
        self._terminate_sql = tables.text(instance_desk_sql.TERMINATE)
        self._suspend_sql = tables.text(instance_desk_sql.SUSPEND)
        self._resume_sql = tables.text(instance_desk_sql.RESUME)
        self._reopen_sql = tables.text(instance_desk_sql.REOPEN)
        self._written_sql = tables.text(instance_desk_sql.WRITTEN)
        self._purge_sql = tables.text(instance_desk_sql.PURGE)
        self._lock_all_sql = tables.text(instance_desk_sql.LOCK_ALL)
        self._lock_late_sql = tables.text(instance_desk_sql.LOCK_LATE)
        self._ring_sql = tables.text(instance_desk_sql.RING)

    async def terminate(
        self, id_: InstanceId, *, outcome: str, sends: Sequence[Message], below: str | None
    ) -> Opened:
        """End a live instance at once, and those below it; see the port."""

        async def body(run: Run) -> Opened:
            row = await self._lock(run, id_)
            if row is None:
                return Opened.NOT_FOUND
            if row["ended"]:
                same = row["status"] == InstanceStatus.TERMINATED
                return Opened.CHANGED if same else Opened.REFUSED
            await run(self._terminate_sql, [id_], self._tables.channel, outcome)
            level = [id_] if below is not None else []
            while level:
                rows = await run(self._lock_below_sql, level)
                level = [InstanceId(row["id"]) for row in rows]
                if level:
                    await run(self._terminate_sql, level, self._tables.channel, below)
            await self._mail.deliver(run, sends)
            return Opened.CHANGED

        return await self._tables.transact(body)

    async def suspend(self, id_: InstanceId) -> Opened:
        """Let a live instance begin nothing new; see the port."""
        return await self._tables.transact(
            lambda run: self._set(run, id_, self._suspend_sql, suspended=True)
        )

    async def resume(self, id_: InstanceId) -> Opened:
        """Let it go on; see the port."""
        return await self._tables.transact(
            lambda run: self._set(run, id_, self._resume_sql, suspended=False)
        )

    async def reopen(self, id_: InstanceId, *, version: int, events: str) -> Opened:
        """Let an ended instance live again; see the port."""

        async def body(run: Run) -> Opened:
            row = await self._lock(run, id_)
            if row is None:
                return Opened.NOT_FOUND
            written = await run(self._written_sql, id_, version, events, _REOPENED)
            if written and written[0]["same"]:
                return Opened.CHANGED
            if not row["ended"] or version != row["version"] + 1:
                return Opened.REFUSED
            await run(self._reopen_sql, id_, self._tables.channel, version, events, _REOPENED)
            return Opened.CHANGED

        return await self._tables.transact(body)

    async def purge(self, ids: Sequence[InstanceId]) -> Sequence[Opened]:
        """Forget instances that have ended; see the port."""
        if not ids:
            return []
        left = sorted(set(ids))

        async def body(run: Run) -> Sequence[Any]:
            await run(self._lock_all_sql, left)
            return await run(self._purge_sql, left)

        rows = await self._tables.transact(body)
        opened = {
            left[place(row)]: Opened.CHANGED if row["gone"] else Opened.REFUSED for row in rows
        }
        return [opened.get(id_, Opened.NOT_FOUND) for id_ in ids]

    async def tend(self, *, limit: int) -> int:
        """Remove what was kept long enough; see the port."""

        async def body(run: Run) -> int:
            most = max(0, min(limit, _LIMIT_MAX))
            late = await run(self._lock_late_sql, most, REMOVED_ROWS_MAX)
            gone = await run(self._purge_sql, [row["id"] for row in late]) if late else ()
            return len(gone)

        return await self._tables.transact(body)

    async def ring(self, ids: Sequence[InstanceId]) -> None:
        """Ring whoever a letter would ring; see the port."""
        if ids:
            await self._tables.fetch(self._ring_sql, list(ids), self._tables.channel, write=False)

    async def _set(self, run: Run, id_: InstanceId, text: str, *, suspended: bool) -> Opened:
        row = await self._lock(run, id_)
        if row is None:
            return Opened.NOT_FOUND
        if row["ended"]:
            return Opened.REFUSED
        if row["suspended"] != suspended:
            await run(text, id_, self._tables.channel)
        return Opened.CHANGED

    async def _lock(self, run: Run, id_: InstanceId) -> Any | None:
        rows = await run(self._lock_sql, id_)
        return rows[0] if rows else None
