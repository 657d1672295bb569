"""Reading instances: records, histories, letters, replies, listings.

What is read here is for showing and for replay, never for deciding who owns what.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.clock import instant, instant_or_none
from outlive.drivers.sqlite import instance_desk_sql as sql
from outlive.drivers.sqlite import mail_sql
from outlive.drivers.sqlite.long_reads import LongReads, place_of
from outlive.model.instance import (
    LETTERS_MAX,
    HistoryRow,
    InstanceFilter,
    InstanceRecord,
    InstanceStatus,
    Letter,
)
from outlive.model.lease import LIST_LIMIT_MAX
from outlive.names import HostId, InstanceId, Token


class InstanceReader:
    """Reads of one namespace in one file."""

    def __init__(self, reads: LongReads, *, namespace: str) -> None:
        self._reads = reads
        self._namespace = namespace

    async def get(self, id_: InstanceId) -> InstanceRecord | None:
        """What is known of one instance."""
        rows = await self._reads.rows(sql.GET, (id_, self._namespace))
        return record(rows[0]) if rows else None

    async def reply(self, id_: InstanceId, message: str) -> str | None:
        """What the instance replied to a message."""
        rows = await self._reads.rows(sql.REPLY, (id_, self._namespace, message))
        return rows[0][0] if rows else None

    async def history(self, id_: InstanceId, *, after: int, limit: int) -> Sequence[HistoryRow]:
        """Rows of the current run behind a version."""
        values = (id_, self._namespace, after, max(0, limit))
        return [HistoryRow(*row) for row in await self._reads.rows(sql.HISTORY, values)]

    async def letters(self, id_: InstanceId, *, after: int, limit: int) -> Sequence[Letter]:
        """The letters of a mailbox behind a number."""
        values = (id_, self._namespace, after, max(0, min(limit, LETTERS_MAX)))
        return [Letter(*row) for row in await self._reads.rows(mail_sql.UNREAD, values)]

    async def list(
        self, wanted: InstanceFilter, *, after: str | None, limit: int
    ) -> Sequence[InstanceRecord]:
        """A page of instances in order of starting."""
        statement, values = sql.listing(wanted, self._namespace)
        values |= {"after": place_of(after), "limit": max(0, min(limit, LIST_LIMIT_MAX))}
        return [record(row) for row in await self._reads.rows(statement, values)]

    async def count(self, wanted: InstanceFilter) -> dict[InstanceStatus, int]:
        """How many match, by status."""
        rows = await self._reads.rows(*sql.counting(wanted, self._namespace))
        return {InstanceStatus(status): count for status, count in rows}


def record(row: tuple[Any, ...]) -> InstanceRecord:
    """What is shown of a row of ``GET``."""
    session = row[13]
    return InstanceRecord(
        id=InstanceId(row[0]),
        kind=row[1],
        name=row[2],
        status=InstanceStatus(row[3]),
        input=row[4],
        outcome=row[5],
        custom=row[6],
        attributes=row[7],
        headers=row[8],
        parent=None if row[9] is None else InstanceId(row[9]),
        token=Token(row[10]),
        version=row[11],
        base=row[12],
        owner=None if session is None else HostId(session),
        owned_by=None if session is None else row[14],
        created_at=instant(row[15]),
        began_at_us=row[16],
        updated_at=instant(row[17]),
        ended_at=instant_or_none(row[18]),
        due_at=instant_or_none(row[19]),
        cursor=str(row[20]),
    )
