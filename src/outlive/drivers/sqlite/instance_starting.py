"""Starting: instances become rows, in the writer's transaction or in the user's.

Owns the statements' order and the answer to each instance. It must never read a clock, nor look at
sessions: the instant is given, and whoever is to own an instance was found alive before.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from outlive.drivers.sqlite import instance_sql as sql
from outlive.drivers.sqlite.statements import Operation, Statement, text
from outlive.errors import UsageError
from outlive.model.instance import START_MAX, Entry, InstanceStatus, NewInstance, Started
from outlive.names import HostId, InstanceId, Token

# A row is written anew by each commit. Up to this many characters that costs less than a row in a
# table of its own costs once; above, every commit would pay for pages that it does not change.
INPUT_INLINE_MAX = 1024

_RUNNING, _PENDING = InstanceStatus.RUNNING.value, InstanceStatus.PENDING.value

# A namespace, the host that starts, and the instant.
Where = tuple[str, HostId, int]


def check_batch(instances: Sequence[NewInstance]) -> None:
    """Refuse more instances than one call may bring.

    Raises:
        UsageError: There are more than ``START_MAX``.
    """
    if len(instances) > START_MAX:
        raise UsageError(
            f"{len(instances)} instances in one call; at most {START_MAX} are allowed: use "
            "several calls"
        )


def inline(given: str) -> str | None:
    """What the row itself keeps of an input."""
    return given if len(given) <= INPUT_INLINE_MAX else None


def start_owned(
    cursor: sqlite3.Cursor, where: Where, instance: NewInstance, first: Token
) -> Started | None:
    """Start one instance that a session owns by the token ``first``, by one statement.

    ``None``, and nothing was written, where it takes more than that: its id is there, it is a
    child, it brings more than a row holds, or it needs a greater token.
    """
    if instance.history or instance.parent or instance.outlives:
        return None
    if len(instance.input) > INPUT_INLINE_MAX:
        return None
    namespace, host, now_us = where
    due = instance.due_at_us
    values = (
        *(namespace, now_us, now_us, now_us, instance.id, instance.kind, instance.name),
        *(_RUNNING, first, 0, instance.session, host, instance.worker),
        *(now_us + instance.delay_us if due is None else due, instance.retention_us),
        *(instance.request, instance.headers, instance.attributes, instance.input),
        *(first, first, namespace),
    )
    if cursor.execute(sql.START_OWNED, values).rowcount < 1:
        return None
    return Started(instance.id, Entry.CREATED, instance.name, None, first, now_us)


class Starting:
    """Instances to be started in one step, for one caller or several. Used once.

    Once ``run`` has ended, ``fresh`` counts those that can be claimed at once, by definition.
    """

    def __init__(
        self, namespace: str, host: HostId, instances: Sequence[NewInstance], now_us: int
    ) -> None:
        self._namespace = namespace
        self._host = host
        self._instances = instances
        self._now_us = now_us
        # The token of those that a session owns: above all that were given out in vain.
        self.first = Token(1)
        self.fresh: Counter[str] = Counter()

    def run(self) -> Operation[list[Started]]:
        """The statements. Nobody else may write meanwhile."""
        # Of several with one id the first is started; the others find it there.
        wanted: dict[str, NewInstance] = {}
        for instance in self._instances:
            wanted.setdefault(instance.id, instance)
        there = yield from self._find(wanted)
        new = [instance for instance in wanted.values() if instance.id not in there]
        if any(instance.session is not None for instance in new):
            floor = yield Statement(sql.FLOOR, (self._namespace,))
            self.first = Token(1 + (floor[0][0] if floor else 0))
        rows = [self._row(instance) for instance in new]
        if len(rows) == 1:
            yield Statement(sql.START, rows[0])
        elif rows:
            yield Statement(sql.START, rows, many=True)
        yield from self._add_texts([i for i in new if i.history or len(i.input) > INPUT_INLINE_MAX])
        for instance in new:
            self._count(instance)
        return [self._answer(instance, wanted, there) for instance in self._instances]

    def _find(self, ids: Iterable[str]) -> Operation[dict[str, tuple[Any, ...]]]:
        question, asked = sql.STARTED.of(list(ids))
        rows = yield Statement(question, (asked, self._namespace))
        return {text(row[0]): row for row in rows}

    def _row(self, instance: NewInstance) -> tuple[Any, ...]:
        due = instance.due_at_us
        due = self._now_us + instance.delay_us if due is None else due
        owned = instance.session is not None
        token = self.first if owned else 0
        return (
            *(self._namespace, self._now_us, due, self._now_us, self._now_us),
            *(instance.id, instance.kind, instance.name, _RUNNING if owned else _PENDING),
            *(token, len(instance.history), instance.session),
            *((self._host, instance.worker) if owned else (None, None)),
            *(due, instance.retention_us, instance.request, instance.headers, instance.attributes),
            *(inline(instance.input), token, instance.parent, instance.outlives),
        )

    def _add_texts(self, instances: Sequence[NewInstance]) -> Operation[None]:
        """Write what does not stand in the rows: large inputs, and the histories of forks."""
        if not instances:
            return
        found = yield from self._find(instance.id for instance in instances)
        numbers = {id_: row[5] for id_, row in found.items()}
        inputs = [(numbers[i.id], i.input) for i in instances if inline(i.input) is None]
        yield Statement(sql.ADD_INPUT, inputs, many=True)
        rows = [
            (numbers[i.id], version, "", 0, i.worker or None, self._now_us, events)
            for i in instances
            for version, events in enumerate(i.history, 1)
        ]
        yield Statement(sql.ADD_HISTORY, rows, many=True)

    def _count(self, instance: NewInstance) -> None:
        due = instance.due_at_us
        if instance.session is None and (
            instance.delay_us <= 0 if due is None else due <= self._now_us
        ):
            self.fresh[f"{instance.kind}/{instance.name}"] += 1

    def _answer(
        self,
        instance: NewInstance,
        wanted: Mapping[str, NewInstance],
        there: Mapping[str, tuple[Any, ...]],
    ) -> Started:
        found = there.get(instance.id)
        if found is None:
            first = wanted[instance.id]
            request, name, parent, at_us = first.request, first.name, first.parent, self._now_us
            token = 0 if first.session is None else self.first
        else:
            _, request, name, parent, at_us, _, token = found
            request, name = text(request), text(name)
            parent = None if parent is None else InstanceId(text(parent))
        # The same request means that this very call was made before.
        made = request == instance.request
        entry = Entry.CREATED if made else Entry.EXISTING
        return Started(instance.id, entry, name, parent, Token(token if made else 0), at_us)
