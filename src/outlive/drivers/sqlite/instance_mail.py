"""Mailboxes: letters are put once, in order, and whoever must read them is rung.

Owns who hears of what: the owner of a letter, those who could claim for it, and the hosts that
watch an instance. Runs inside one write transaction. It must never write the receiver's row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from outlive.drivers.sqlite import mail_sql as sql
from outlive.drivers.sqlite.bells import Bells
from outlive.drivers.sqlite.statements import as_json
from outlive.drivers.sqlite.transaction import Bell, Turn
from outlive.model.instance import (
    CANCEL_KIND,
    CANCELS_MAX,
    LETTERS_MAX,
    MAILBOX_MAX,
    Letter,
    Message,
    Sent,
)
from outlive.names import HostId


class InstanceMail:
    """The mailboxes of one namespace."""

    def __init__(self, bells: Bells, *, namespace: str) -> None:
        self._bells = bells
        self._namespace = namespace

    def send(self, turn: Turn, batches: Sequence[Sequence[Message]]) -> list[list[Sent]]:
        """Put messages of many callers into mailboxes, each once, in their order."""
        messages = [message for batch in batches for message in batch]
        answers = iter(self.put(turn, messages, room=MAILBOX_MAX))
        return [[next(answers) for _ in batch] for batch in batches]

    def put(self, turn: Turn, messages: Sequence[Message], *, room: int | None) -> list[Sent]:
        """The same for one list. Without ``room``, mailboxes are never full.

        What an instance decided to send is durable with its commit and cannot be refused then.
        """
        turn.savepoint()
        receivers = self._receivers(turn, [(message.to, message.id) for message in messages])
        rows: list[tuple[Any, ...]] = []
        answers: list[Sent] = []
        put: set[tuple[str, str]] = set()
        count: Counter[int] = Counter()
        for place, message in enumerate(messages):
            receiver = receivers.get(place)
            spare = CANCELS_MAX if message.kind == CANCEL_KIND else 0
            repeated = (message.to, message.id) in put
            answer = _answer(
                receiver, count, repeated=repeated, room=None if room is None else room + spare
            )
            answers.append(answer)
            if receiver is None or answer is not Sent.SENT:
                continue
            put.add((message.to, message.id))
            number = receiver[1]
            count[number] += 1
            rows.append(
                (number, message.id, message.kind, message.name, turn.wall_us, message.payload)
            )
        if len(rows) == 1:
            turn.cursor.execute(sql.PUT, rows[0])
        elif rows:
            turn.cursor.executemany(sql.PUT, rows)
        if rows:
            self._ring(turn, (row for row in receivers.values() if row[1] in count))
        return answers

    def ring(self, turn: Turn, ids: Iterable[str]) -> None:
        """Ring whoever a letter in these mailboxes would ring."""
        receivers = self._receivers(turn, [(id_, "") for id_ in ids])
        self._ring(turn, receivers.values())

    def _receivers(
        self, turn: Turn, asked: Sequence[tuple[str, str]]
    ) -> dict[int, tuple[Any, ...]]:
        values = (as_json(asked), self._namespace)
        return {row[0]: row for row in turn.cursor.execute(sql.RECEIVERS, values).fetchall()}

    def _ring(self, turn: Turn, receivers: Iterable[tuple[Any, ...]]) -> None:
        unowned: dict[int, str] = {}
        for _, number, id_, ended, host, suspended, definition, *_ in receivers:
            if ended:
                continue
            if host is not None:
                turn.freed.append(Bell(HostId(host), f"mail/{id_}"))
            elif not suspended:
                unowned[number] = definition
        if unowned:
            self._bells.ring(turn, Counter(unowned.values()))

    def first_letters(self, turn: Turn, numbers: Sequence[int]) -> dict[int, tuple[Letter, ...]]:
        """The first letters of those instances whose mailboxes are not empty."""
        return {
            number: tuple(
                [
                    Letter(*row)
                    for row in turn.cursor.execute(sql.READ, (number, 0, LETTERS_MAX)).fetchall()
                ]
            )
            for number in numbers
        }

    def consume(self, turn: Turn, letters: Sequence[tuple[int, int]]) -> None:
        """Take letters out: each by its number and that of its instance."""
        turn.cursor.executemany(sql.CONSUME, letters)

    def watch(self, turn: Turn, number: int, host: HostId, wait_us: int) -> None:
        """Note that a host wants to hear of an instance for so long."""
        turn.cursor.execute(sql.WATCH, (number, host, turn.wall_us + wait_us))

    def tell(self, turn: Turn, ids: Mapping[int, str], *, ended: Iterable[int]) -> None:
        """Ring those who watch instances that replied or ended.

        Of those that ended the mailbox is emptied, and nobody watches them any more.
        """
        question, asked = sql.ATTACHED.of(list(ids))
        rows = turn.cursor.execute(question, (asked, asked)).fetchall()
        if not rows:
            return
        for number, host, until in rows:
            if host is not None and until > turn.wall_us:
                turn.freed.append(Bell(HostId(host), f"instance/{ids[number]}"))
        over = {number for number, _, _ in rows}.intersection(ended)
        if over:
            turn.cursor.execute(sql.EMPTY, (as_json(list(over)),))
            turn.cursor.executemany(sql.FORGET_WATCHERS, [(number,) for number in over])


def _answer(
    receiver: tuple[Any, ...] | None, count: Counter[int], *, repeated: bool, room: int | None
) -> Sent:
    if receiver is None:
        return Sent.NOT_FOUND
    _, number, _, ended, *_, letters, known = receiver
    # First of all: who sends again after a lost reply learns that it arrived.
    if known or repeated:
        return Sent.DUPLICATE
    if ended:
        return Sent.ENDED
    if room is not None and letters + count[number] >= room:
        return Sent.FULL
    return Sent.SENT
