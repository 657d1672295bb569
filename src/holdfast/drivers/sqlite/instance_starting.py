"""Starting: instances become rows, in the writer's transaction or in the user's.

Owns the statements' order and the answer to each instance. It must never read a clock, nor look at
sessions: the instant is given, and whoever is to own an instance was found alive before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from holdfast.drivers.sqlite import instance_sql as sql
from holdfast.drivers.sqlite.joint import JOINT_LEAST
from holdfast.drivers.sqlite.statements import Operation, Statement, as_json, text
from holdfast.errors import UsageError
from holdfast.model.instance import START_MAX, Entry, InstanceStatus, NewInstance, Started
from holdfast.names import HostId, InstanceId, Token

# A row is written anew by each commit. Up to this many characters that costs less than a row in a
# table of its own costs once; above, every commit would pay for pages that it does not change.
INPUT_INLINE_MAX = 1024


def check_batch(instances: Sequence[NewInstance]) -> None:
    """Refuse more instances than one call may bring.

    Raises:
        UsageError: There are more than ``START_MAX``.
    """
    if len(instances) > START_MAX:
        raise UsageError(
            f"{len(instances)} instances in one call; at most {START_MAX} are allowed: send several"
        )


def inline(given: str) -> str | None:
    """What the row itself keeps of an input."""
    return given if len(given) <= INPUT_INLINE_MAX else None


class Starting:
    """Instances to be started in one step, for one caller or several. Used once.

    Once ``run`` has ended, ``fresh`` counts those that can be claimed at once, by definition, and
    ``last`` is the number of the newest.
    """

    def __init__(
        self, namespace: str, host: HostId, instances: Sequence[NewInstance], now_us: int
    ) -> None:
        self._namespace = namespace
        self._host = host
        self._instances = instances
        self._now_us = now_us
        self.fresh: Counter[str] = Counter()
        self.last = 0

    def run(self) -> Operation[list[Started]]:
        """The statements."""
        # Of several with one id the first is started; the others find it there.
        wanted: dict[str, NewInstance] = {}
        for instance in self._instances:
            wanted.setdefault(instance.id, instance)
        numbers = yield from self._insert(list(wanted.values()))
        yield from self._add_texts(wanted, numbers)
        for id_ in numbers:
            self._count(wanted[id_])
        self.last = max(numbers.values(), default=0)
        if len(numbers) == len(self._instances):
            return [
                Started(i.id, Entry.CREATED, i.name, i.parent, _token(i), self._now_us)
                for i in self._instances
            ]
        return (yield from self._compare(wanted, numbers))

    def _insert(self, instances: Sequence[NewInstance]) -> Operation[dict[str, int]]:
        common = (self._namespace, self._now_us, self._host)
        created: list[tuple[Any, ...]] = []
        if len(instances) >= JOINT_LEAST:
            rows = as_json([self._row(instance) for instance in instances])
            created = yield Statement(sql.START_MANY, (*common, rows))
        else:
            for instance in instances:
                created += yield Statement(sql.START, (*common, *self._row(instance)))
        return {text(id_): number for number, id_ in created}

    def _row(self, instance: NewInstance) -> tuple[Any, ...]:
        due = instance.due_at_us
        owned = instance.session is not None
        return (
            *(instance.id, instance.kind, instance.name),
            InstanceStatus.RUNNING.value if owned else InstanceStatus.PENDING.value,
            *(_token(instance), len(instance.history), instance.session),
            instance.worker if owned else None,
            self._now_us + instance.delay_us if due is None else due,
            *(instance.retention_us, instance.request, instance.parent, instance.headers),
            *(instance.attributes, inline(instance.input)),
        )

    def _add_texts(
        self, wanted: dict[str, NewInstance], numbers: dict[str, int]
    ) -> Operation[None]:
        """Write what does not stand in the rows: large inputs, and the histories of forks."""
        inputs = [
            (number, wanted[id_].input)
            for id_, number in numbers.items()
            if inline(wanted[id_].input) is None
        ]
        if inputs:
            yield Statement(sql.ADD_INPUT, inputs, many=True)
        rows = [
            (number, version, "", 0, wanted[id_].worker or None, self._now_us, events)
            for id_, number in numbers.items()
            for version, events in enumerate(wanted[id_].history, 1)
        ]
        if rows:
            yield Statement(sql.ADD_HISTORY, rows, many=True)

    def _count(self, instance: NewInstance) -> None:
        due = instance.due_at_us
        if instance.session is None and (
            instance.delay_us <= 0 if due is None else due <= self._now_us
        ):
            self.fresh[f"{instance.kind}/{instance.name}"] += 1

    def _compare(
        self, wanted: dict[str, NewInstance], numbers: dict[str, int]
    ) -> Operation[list[Started]]:
        """The answers when some ids were there before: this very call may have been made twice."""
        values = (as_json(list(wanted)), self._namespace)
        rows = yield Statement(sql.STARTED, values)
        there = {text(row[0]): row for row in rows}
        answers: list[Started] = []
        for instance in self._instances:
            _, request, name, parent, created_at_us = there[instance.id]
            made = instance.id in numbers and wanted[instance.id] is instance
            made = made or text(request) == instance.request
            answers.append(
                Started(
                    instance.id,
                    Entry.CREATED if made else Entry.EXISTING,
                    text(name),
                    None if parent is None else InstanceId(text(parent)),
                    _token(instance) if made else Token(0),
                    created_at_us,
                )
            )
        return answers


def _token(instance: NewInstance) -> Token:
    return Token(0 if instance.session is None else 1)
