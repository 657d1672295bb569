"""Instances and histories as people see them, and the notes of hosts that watch one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from outlive.clock import instant, instant_or_none
from outlive.drivers.postgres import instance_record_sql
from outlive.drivers.postgres.job_tables import JobTables
from outlive.errors import UsageError
from outlive.model.instance import HistoryRow, InstanceFilter, InstanceRecord, InstanceStatus
from outlive.model.lease import LIST_LIMIT_MAX
from outlive.names import HostId, InstanceId, Token

# Rows that one statement of a listing or a count looks at. Even where each must be fetched from a
# disk, that ends long before the command timeout; and many more than the round trip to the next
# costs.
_WINDOW_ROWS = 10_000

# Rows of one reading. Whoever replays a longer history reads on.
_HISTORY_MAX = 10_000


class InstanceReader:
    """Reads the tables of one namespace."""

    def __init__(self, tables: JobTables) -> None:
        self._tables = tables
        self.window_rows = _WINDOW_ROWS
        self._get_sql = tables.text(instance_record_sql.GET)
        self._watch_sql = tables.text(instance_record_sql.WATCH)
        self._history_sql = tables.text(instance_record_sql.HISTORY)
        self._list_sql = tables.text(instance_record_sql.LIST)
        self._children_sql = tables.text(instance_record_sql.LIST_CHILDREN)
        self._count_sql = tables.text(instance_record_sql.COUNT)
        self._count_children_sql = tables.text(instance_record_sql.COUNT_CHILDREN)

    async def get(self, id_: InstanceId, *, wait_us: int) -> InstanceRecord | None:
        """What is known of one instance; see the port."""
        if wait_us > 0:
            await self._tables.fetch(self._watch_sql, id_, self._tables.host, wait_us)
        rows = await self._tables.fetch(self._get_sql, id_, write=False)
        return _record(rows[0]) if rows else None

    async def history(self, id_: InstanceId, *, after: int, limit: int) -> Sequence[HistoryRow]:
        """Rows of the current run; see the port."""
        rows = await self._tables.fetch(
            self._history_sql, id_, after, max(0, min(limit, _HISTORY_MAX)), write=False
        )
        return [HistoryRow(*row) for row in rows]

    async def page(
        self, wanted: InstanceFilter, *, after: str | None, limit: int
    ) -> Sequence[InstanceRecord]:
        """A page of instances in order of creation, from as many windows as it takes."""
        most = max(0, min(limit, LIST_LIMIT_MAX))
        number: int | None = _number(after)
        if wanted.parent is not None:
            rows = await self._tables.fetch(
                self._children_sql, *_filter(wanted), number, most, write=False
            )
            return [_record(row) for row in rows]
        page: list[InstanceRecord] = []
        while number is not None:
            rows = await self._tables.fetch(
                self._list_sql,
                *_filter(wanted),
                number,
                most - len(page),
                self.window_rows,
                write=False,
            )
            page += [_record(row) for row in rows if row["id"] is not None]
            number = rows[0]["looked_to"]
        return page

    async def count(self, wanted: InstanceFilter) -> dict[InstanceStatus, int]:
        """How many match, by status, in as many windows as it takes: no row is counted twice."""
        found: Counter[InstanceStatus] = Counter()
        if wanted.parent is not None:
            rows = await self._tables.fetch(self._count_children_sql, *_filter(wanted), write=False)
            found.update({InstanceStatus(row["status"]): row["instances"] for row in rows})
            return dict(found)
        number: int | None = 0
        while number is not None:
            rows = await self._tables.fetch(
                self._count_sql, *_filter(wanted), number, self.window_rows, write=False
            )
            for row in rows:
                if row["instances"]:
                    found[InstanceStatus(row["status"])] += row["instances"]
            full = sum(row["looked_at"] for row in rows) >= self.window_rows
            number = max(row["looked_to"] for row in rows) if full else None
        return dict(found)


def _filter(wanted: InstanceFilter) -> tuple[Any, ...]:
    return (
        wanted.kind,
        list(wanted.names) or None,
        [status.value for status in wanted.statuses] or None,
        wanted.prefix,
        wanted.parent,
        wanted.attributes,
        wanted.created_from_us,
        wanted.created_before_us,
        wanted.ended_before_us,
        wanted.has_attribute,
    )


def _number(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit()):
        raise UsageError(f"{cursor!r} is not a cursor of a listing of instances")
    return int(cursor)


def _record(row: Any) -> InstanceRecord:
    return InstanceRecord(
        id=InstanceId(row["id"]),
        kind=row["kind"],
        name=row["name"],
        status=InstanceStatus(row["status"]),
        input=row["input"],
        outcome=row["outcome"],
        custom=row["custom"],
        attributes=row["attributes"],
        headers=row["headers"],
        parent=None if row["parent"] is None else InstanceId(row["parent"]),
        token=Token(row["token"]),
        version=row["version"],
        base=row["base"],
        owner=None if row["session"] is None else HostId(row["session"]),
        owned_by=row["worker"],
        created_at=instant(row["created_at_us"]),
        began_at_us=row["began_at_us"],
        updated_at=instant(row["updated_at_us"]),
        ended_at=instant_or_none(row["ended_at_us"]),
        due_at=instant_or_none(row["due_at_us"]),
        cursor=str(row["number"]),
    )
