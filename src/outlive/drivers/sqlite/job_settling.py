"""Settling claims: complete, fail, release, extend, for many callers in one statement.

Owns what becomes of a write under a claim. Each write is conditional on the token of the newest
claim; a caller that asks again after a lost reply is recognised by how that claim ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from outlive.drivers.sqlite import job_sql as sql
from outlive.drivers.sqlite.bells import Bells
from outlive.drivers.sqlite.job_moves import Ended, JobMoves
from outlive.drivers.sqlite.statements import as_json
from outlive.drivers.sqlite.transaction import Turn
from outlive.model.job import FINAL, Completion, Extension, Failure, Return, Settled
from outlive.names import JobId, Token


class _Write(Protocol):
    @property
    def id(self) -> JobId: ...
    @property
    def token(self) -> Token: ...


_Item = TypeVar("_Item", bound=_Write)
_Rows = list[tuple[Any, ...]]


class JobSettling:
    """The writes of claimants in one namespace. Every method takes the batches of many callers."""

    def __init__(self, moves: JobMoves, bells: Bells, *, namespace: str) -> None:
        self._moves = moves
        self._bells = bells
        self._namespace = namespace

    def complete(self, turn: Turn, batches: Sequence[Sequence[Completion]]) -> list[list[Settled]]:
        """End claimed jobs as done."""
        asked = [(item.id, item.token, item.result) for batch in batches for item in batch]
        rows = self._write(turn, sql.COMPLETE, asked, instants=2)
        if rows:
            self._conclude(turn, rows, Counter())
        return self._answers(turn, batches, rows, "done")

    def fail(self, turn: Turn, batches: Sequence[Sequence[Failure]]) -> list[list[Settled]]:
        """End claims whose handler failed, and keep why."""
        failures = [item for batch in batches for item in batch]
        asked = [(item.id, item.token, item.error, item.retry_us) for item in failures]
        rows = self._write(turn, sql.FAIL, asked, instants=3)
        if rows:
            fresh: Counter[str] = Counter()
            errors = {(item.id, item.token): item for item in failures}
            self._moves.keep_troubles(
                turn,
                [
                    (row[6], row[1], "failed", row[7], row[8], errors[row[0], row[1]].error)
                    for row in rows
                ],
            )
            # Those that may be tried again at once need no promotion later.
            now = [
                row
                for row in rows
                if row[2] == "retrying" and (errors[row[0], row[1]].retry_us or 0) <= 0
            ]
            self._moves.promote(turn, [row[6] for row in now])
            fresh.update(row[3] for row in now)
            self._conclude(turn, rows, fresh)
        return self._answers(turn, batches, rows, "failed")

    def release(self, turn: Turn, batches: Sequence[Sequence[Return]]) -> list[list[Settled]]:
        """Give claims back unrun."""
        asked = [(item.id, item.token, item.delay_us) for batch in batches for item in batch]
        rows = self._write(turn, sql.RELEASE, asked, instants=3)
        if rows:
            fresh = Counter(row[3] for row in rows if row[2] == "ready")
            unbegun = {(item.id, item.token) for batch in batches for item in batch if item.unbegun}
            if unbegun:
                self._uncount(turn, (row for row in rows if (row[0], row[1]) in unbegun), fresh)
            self._conclude(turn, rows, fresh)
        return self._answers(turn, batches, rows, "released")

    def _uncount(self, turn: Turn, rows: Iterable[tuple[Any, ...]], fresh: Counter[str]) -> None:
        """Give the rates of queues back what claims took of them; that is as good as a job."""
        for row in rows:
            values = (self._namespace, row[3], row[8])
            if turn.cursor.execute(sql.RATE_UNCOUNT, values).rowcount > 0:
                fresh[row[3]] += 1

    def extend(self, turn: Turn, batches: Sequence[Sequence[Extension]]) -> list[list[Settled]]:
        """Tell which claims stand, and keep the progress of those that do."""
        asked = [(item.id, item.token, item.progress) for batch in batches for item in batch]
        values = (as_json(asked), self._namespace)
        if any(progress is not None for _, _, progress in asked):
            turn.cursor.execute(sql.PROGRESS, values)
        rows = turn.cursor.execute(sql.HELD, values).fetchall()
        held = {
            (id_, token): Settled.CANCEL if cancel else Settled.OK for id_, token, cancel in rows
        }
        return _split(batches, lambda item: held.get((item.id, item.token), Settled.LOST))

    def _write(
        self, turn: Turn, statement: str, asked: Sequence[tuple[Any, ...]], *, instants: int
    ) -> _Rows:
        """Run a statement that names the present so many times."""
        turn.savepoint()
        values = (*(turn.wall_us,) * instants, as_json(asked), self._namespace)
        return turn.cursor.execute(statement, values).fetchall()

    def _conclude(self, turn: Turn, rows: _Rows, fresh: Counter[str]) -> None:
        """What follows from claims that have ended: the next jobs, room, and who hears of it."""
        ended = (Ended(row[6], row[3], row[4], row[5], row[9]) for row in rows if row[2] in FINAL)
        self._moves.after_end(turn, ended, fresh)
        self._moves.after_claims(turn, (row[3] for row in rows), fresh)
        self._bells.ring(turn, fresh)

    def _answers(
        self, turn: Turn, batches: Sequence[Sequence[_Item]], rows: _Rows, as_: str
    ) -> list[list[Settled]]:
        settled = {(row[0], row[1]) for row in rows}
        if len(settled) < sum(map(len, batches)):
            missing = [
                (item.id,)
                for batch in batches
                for item in batch
                if (item.id, item.token) not in settled
            ]
            found = turn.cursor.execute(
                sql.ENDED_AS, (as_json(missing), self._namespace)
            ).fetchall()
            settled.update((id_, token) for id_, token, ended in found if ended == as_)
        return _split(
            batches,
            lambda item: Settled.OK if (item.id, item.token) in settled else Settled.LOST,
        )


def _split(
    batches: Iterable[Sequence[_Item]], answer: Callable[[_Item], Settled]
) -> list[list[Settled]]:
    return [[answer(item) for item in batch] for batch in batches]
