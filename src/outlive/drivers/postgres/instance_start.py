"""How instances begin: alone, with others that start at the same time, and many in one call.

Owns what became of each ``NewInstance``. The usual start is one statement, shared by those who
start at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.drivers.postgres import instance_sql, job_record_sql
from outlive.drivers.postgres.coalescer import Coalescer
from outlive.drivers.postgres.job_tables import JobTables, judge_session, place
from outlive.drivers.postgres.transactions import Run
from outlive.errors import LeaseLost, StoreUnavailable, UsageError
from outlive.model.instance import START_MAX, Entry, NewInstance, Started
from outlive.names import InstanceId, Token


class InstanceStarter:
    """Starts instances in the tables of one namespace."""

    def __init__(self, tables: JobTables) -> None:
        self._tables = tables
        self._owned_sql = tables.text(instance_sql.START_OWNED)
        self._ours = (
            tables.text(instance_sql.START),
            tables.text(instance_sql.START_BEGUN),
        )
        self._theirs = (
            tables.text(instance_sql.START_IN),
            tables.text(instance_sql.START_BEGUN_IN),
        )
        self._look_sql = tables.text(instance_sql.LOOK_STARTED)
        self._session_sql = tables.text(job_record_sql.SESSION)
        # One that is carried out late is an instance like any other, under the id and the request
        # that its caller chose.
        self._singles = Coalescer[NewInstance, Started](
            self._start_singles, abandons=tables.abandons, lone=True
        )

    async def start(self, instances: Sequence[NewInstance]) -> Sequence[Started]:
        """Start instances in a statement of our own; see the port."""
        check_count(instances)
        if len(instances) == 1 and not instances[0].history:
            return [await self._singles.submit(instances[0].id, instances[0])]
        return await self._start_all(self._tables.fetch, instances, self._ours)

    async def start_in(self, run: Run, instances: Sequence[NewInstance]) -> Sequence[Started]:
        """Start instances with statements of a transaction that somebody else commits."""
        return await self._start_all(run, instances, self._theirs)

    async def _start_all(
        self, run: Run, instances: Sequence[NewInstance], texts: tuple[str, str]
    ) -> Sequence[Started]:
        if not instances:
            return []
        outcomes = await self._start(run, instances, texts, together=True)
        started = [outcome for outcome in outcomes if isinstance(outcome, Started)]
        if len(started) < len(instances):
            errors = [outcome for outcome in outcomes if not isinstance(outcome, Started)]
            # The others are not there because of the session of one.
            raise next((error for error in errors if isinstance(error, LeaseLost)), errors[0])
        return started

    async def others(self, run: Run, instances: Sequence[NewInstance]) -> set[InstanceId]:
        """The ids of ``instances`` that somebody else's request has."""
        if not instances:
            return set()
        rows = await run(self._look_sql, [new.id for new in instances])
        return {
            instances[place(row)].id
            for row in rows
            if row["origin"] != instances[place(row)].request
        }

    async def close(self) -> None:
        """End the batches. Repeatable."""
        await self._singles.close()

    async def _start_singles(
        self, batch: Sequence[NewInstance]
    ) -> Sequence[Started | LeaseLost | StoreUnavailable]:
        return await self._start(self._tables.fetch, batch, self._ours, together=False)

    async def _start(
        self,
        run: Run,
        instances: Sequence[NewInstance],
        texts: tuple[str, str],
        *,
        together: bool,
    ) -> Sequence[Started | LeaseLost | StoreUnavailable]:
        if _is_usual(instances):
            (row,) = await run(self._owned_sql, *_usual_values(instances), self._tables.host)
        else:
            begun = any(new.history for new in instances)
            more = _histories(instances) if begun else ()
            values = (*_columns(instances), self._tables.host, together)
            (row,) = await run(texts[begun], *values, self._tables.channel, *more)
        if row["made"] == len(instances):
            at_us, first = row["at_us"], Token(row["first_token"])
            return [
                Started(
                    *(new.id, Entry.CREATED, new.name, new.parent),
                    *(Token(0) if new.session is None else first, at_us),
                )
                for new in instances
            ]
        found = {
            place(row): row for row in await run(self._look_sql, [new.id for new in instances])
        }
        return [
            await self._refusal(run, new) if found.get(index) is None else _met(new, found[index])
            for index, new in enumerate(instances)
        ]

    async def _refusal(self, run: Run, new: NewInstance) -> LeaseLost | StoreUnavailable:
        """Why an instance is not there."""
        if new.session is not None:
            rows = await run(self._session_sql, new.session)
            try:
                judge_session(rows, new.session)
            except LeaseLost as error:
                return error
        return StoreUnavailable(f"the instance {new.id} was not started; try again")


def check_count(instances: Sequence[NewInstance]) -> None:
    """Refuse more instances than one call may bring."""
    if len(instances) > START_MAX:
        raise UsageError(
            f"{len(instances)} instances in one call; at most {START_MAX} are allowed: use "
            "several calls"
        )


def _met(new: NewInstance, row: Any) -> Started:
    ours = row["origin"] == new.request
    return Started(
        new.id,
        Entry.CREATED if ours else Entry.EXISTING,
        row["name"],
        None if row["parent"] is None else InstanceId(row["parent"]),
        Token(row["first_token"] if ours else 0),
        row["created_at_us"],
    )


def _is_usual(instances: Sequence[NewInstance]) -> bool:
    """Whether they go by the shorter statement."""
    first = instances[0]
    if first.session is None:
        return False
    same = (first.session, first.kind, first.retention_us, first.worker)
    return all(
        (new.session, new.kind, new.retention_us, new.worker) == same
        and new.parent is None
        and new.due_at_us is None
        and not (new.delay_us or new.history or new.outlives)
        for new in instances
    )


def _usual_values(instances: Sequence[NewInstance]) -> tuple[Any, ...]:
    first = instances[0]
    return (
        [new.id for new in instances],
        [new.name for new in instances],
        [new.input for new in instances],
        [new.request for new in instances],
        [new.attributes for new in instances],
        [new.headers for new in instances],
        first.session,
        first.worker,
        first.kind,
        first.retention_us,
    )


def _columns(instances: Sequence[NewInstance]) -> tuple[list[Any], ...]:
    return (
        [new.id for new in instances],
        [new.kind for new in instances],
        [new.name for new in instances],
        [new.input for new in instances],
        [new.request for new in instances],
        [new.session for new in instances],
        [new.worker for new in instances],
        [new.delay_us for new in instances],
        [new.due_at_us for new in instances],
        [new.parent for new in instances],
        [new.attributes for new in instances],
        [new.headers for new in instances],
        [new.retention_us for new in instances],
        [len(new.history) for new in instances],
        [new.outlives for new in instances],
    )


def _histories(instances: Sequence[NewInstance]) -> tuple[list[Any], ...]:
    rows = [
        (new.id, version, events, new.worker or None)
        for new in instances
        for version, events in enumerate(new.history, 1)
    ]
    return tuple(list(column) for column in zip(*rows, strict=True))
