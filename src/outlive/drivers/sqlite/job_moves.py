"""The moves that several operations on jobs share: becoming ready, ending, expiring.

Works inside one write transaction. Whoever ends jobs comes here, so that their ordering keys pass
on, their notes of failures are kept, and what is not to be kept is gone in the same step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from outlive.drivers.sqlite import job_sql as sql
from outlive.drivers.sqlite import job_upkeep_sql as upkeep
from outlive.drivers.sqlite.statements import as_json
from outlive.drivers.sqlite.transaction import Turn
from outlive.model.job import ATTEMPTS_KEPT_MAX

# Rings whoever must read the letters of these instances.
RingMail = Callable[[Turn, Sequence[str]], None]

# Number, token, outcome, worker, when it was claimed, and the error.
Trouble = tuple[int, int, str, str | None, int | None, str | None]


class Ended(msgspec.Struct, frozen=True, gc=False):
    """A job that has just ended, and what follows from that."""

    number: int
    queue: str
    ordering_key: str | None
    retention_us: int
    instance: str | None


class JobMoves:
    """The moves of one namespace."""

    def __init__(self, namespace: str, ring_mail: RingMail) -> None:
        self._namespace = namespace
        self._ring_mail = ring_mail

    def promote(self, turn: Turn, numbers: Sequence[int]) -> None:
        """Make jobs ready, at the end of their queues, in the order given."""
        if not numbers:
            return
        ((last,),) = turn.cursor.execute(sql.TAKE_NUMBERS, (len(numbers),)).fetchall()
        first = last - len(numbers) + 1
        places = [(first + place, number) for place, number in enumerate(numbers)]
        turn.cursor.executemany(sql.PROMOTE, places)

    def promote_due(self, turn: Turn, queue: str, limit: int) -> int:
        """Make ready what has come due in a queue; returns how many jobs that were."""
        values = (self._namespace, queue, turn.wall_us, limit)
        rows = turn.cursor.execute(sql.DUE, values).fetchall()
        self.promote(turn, [number for (number,) in rows])
        return len(rows)

    def after_end(self, turn: Turn, ended: Iterable[Ended], fresh: Counter[str]) -> None:
        """Let the next of each ordering key go on, and remove what is not to be kept.

        An instance that waited for a job has its letter by now; whoever must read it is rung.
        """
        keys: list[tuple[str, str]] = []
        gone: list[int] = []
        answered: list[str] = []
        for job in ended:
            if job.ordering_key is not None:
                keys.append((job.queue, job.ordering_key))
            if job.retention_us <= 0:
                gone.append(job.number)
            if job.instance is not None:
                answered.append(job.instance)
        if answered:
            self._ring_mail(turn, answered)
        if keys:
            self._pass_on(turn, keys, fresh)
        if gone:
            turn.cursor.execute(sql.REMOVE_MANY, (as_json(gone),))

    def _pass_on(self, turn: Turn, keys: list[tuple[str, str]], fresh: Counter[str]) -> None:
        values = (self._namespace, as_json(keys))
        rows = turn.cursor.execute(sql.UNBLOCK, values).fetchall()
        for queue, state, due in rows:
            # One that waits for its time is promoted by the claim that the bell brings about.
            if state == "ready" or due <= turn.wall_us:
                fresh[queue] += 1

    def after_claims(self, turn: Turn, queues: Iterable[str], fresh: Counter[str]) -> None:
        """Count room as good as a job, where claims of a limited queue have ended."""
        limited = turn.cursor.execute(upkeep.LIMITED_QUEUES, (self._namespace,)).fetchall()
        if limited:
            names = {name for (name,) in limited}
            fresh.update(queue for queue in queues if queue in names)

    def keep_troubles(self, turn: Turn, troubles: Sequence[Trouble]) -> None:
        """Keep what went wrong, the newest entries of each job."""
        now = turn.wall_us
        turn.cursor.executemany(
            sql.ADD_ATTEMPT,
            [(*trouble[:5], now, trouble[5]) for trouble in troubles],
        )
        turn.cursor.executemany(
            sql.PRUNE_ATTEMPTS, [(job, job, ATTEMPTS_KEPT_MAX) for job, *_ in troubles]
        )

    def expire(self, turn: Turn, limit: int, fresh: Counter[str]) -> int:
        """End up to ``limit`` unclaimed jobs whose time to be claimed has passed."""
        values = (turn.wall_us, turn.wall_us, self._namespace, turn.wall_us, limit)
        rows = turn.cursor.execute(upkeep.EXPIRE, values).fetchall()
        if rows:
            self.keep_troubles(
                turn, [(number, token, "expired", None, None, None) for number, token, *_ in rows]
            )
            ended = (Ended(row[0], *row[2:]) for row in rows)
            self.after_end(turn, ended, fresh)
        return len(rows)
