"""Letters and replies: what is sent to instances, what lies unread, and what they answered.

Owns what became of each ``Message``. Messages that are sent at the same time share a statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.drivers.postgres import instance_mail_sql
from outlive.drivers.postgres.coalescer import Coalescer
from outlive.drivers.postgres.job_tables import JobTables, place
from outlive.drivers.postgres.transactions import Run
from outlive.model.instance import LETTERS_MAX, Letter, Message, Sent
from outlive.names import InstanceId

# Messages of one statement. Each is compared with the others of it.
_PART_MAX = 200


class InstanceMail:
    """The mailboxes of one namespace."""

    def __init__(self, tables: JobTables) -> None:
        self._tables = tables
        self._send_sql = tables.text(instance_mail_sql.SEND)
        self._deliver_sql = tables.text(instance_mail_sql.DELIVER)
        self._letters_sql = tables.text(instance_mail_sql.LETTERS)
        self._reply_sql = tables.text(instance_mail_sql.REPLY)
        # One that is carried out late has an id, and is a letter like any other.
        self._sending = Coalescer[Message, Sent](self._send, abandons=tables.abandons, lone=True)

    async def send(self, messages: Sequence[Message]) -> Sequence[Sent]:
        """Put messages into mailboxes; see the port."""
        if len(messages) == 1:
            message = messages[0]
            return [await self._sending.submit((message.to, message.id), message)]
        if len(messages) <= _PART_MAX:
            return await self._send(messages)

        async def body(run: Run) -> list[Sent]:
            sent: list[Sent] = []
            for start in range(0, len(messages), _PART_MAX):
                sent += await self._put(run, self._send_sql, messages[start : start + _PART_MAX])
            return sent

        return await self._tables.transact(body)

    async def deliver(self, run: Run, messages: Sequence[Message]) -> None:
        """Put messages into mailboxes however full, inside a transaction of ours."""
        for start in range(0, len(messages), _PART_MAX):
            await self._put(run, self._deliver_sql, messages[start : start + _PART_MAX])

    async def letters(self, id_: InstanceId, *, after: int, limit: int) -> Sequence[Letter]:
        """The letters of a mailbox; see the port."""
        rows = await self._tables.fetch(
            self._letters_sql, id_, after, max(0, min(limit, LETTERS_MAX)), write=False
        )
        return [Letter(*row) for row in rows]

    async def reply(self, id_: InstanceId, message: str) -> str | None:
        """What the instance replied; see the port."""
        rows = await self._tables.fetch(self._reply_sql, id_, message, write=False)
        return rows[0]["payload"] if rows else None

    async def close(self) -> None:
        """End the batches. Repeatable."""
        await self._sending.close()

    async def _send(self, batch: Sequence[Message]) -> Sequence[Sent]:
        return await self._put(self._tables.fetch, self._send_sql, batch)

    async def _put(self, run: Run, text: str, batch: Sequence[Message]) -> Sequence[Sent]:
        if not batch:
            return []
        rows = await run(
            text,
            [message.to for message in batch],
            [message.id for message in batch],
            [message.kind for message in batch],
            [message.name for message in batch],
            [message.payload for message in batch],
            self._tables.channel,
        )
        sent: dict[int, Sent] = {}
        first: dict[tuple[str, str], Sent] = {}
        for row in sorted(rows, key=place):
            message = batch[place(row)]
            twin = first.get((message.to, message.id))
            outcome = _sent(row) if twin is None else twin
            first[message.to, message.id] = outcome
            # The second of an id is what the first was, unless that one was put.
            again = twin is Sent.SENT
            sent[place(row)] = Sent.DUPLICATE if again else outcome
        return [sent[index] for index in range(len(batch))]


def _sent(row: Any) -> Sent:
    """What became of the first letter of its id in a batch."""
    if row["put"]:
        return Sent.SENT
    if row["ended"] is None:
        return Sent.NOT_FOUND
    if row["known"]:
        return Sent.DUPLICATE
    if row["ended"] or not row["lives"]:
        return Sent.ENDED
    # There was room, and somebody put it there just before.
    return Sent.DUPLICATE if row["fits"] else Sent.FULL
