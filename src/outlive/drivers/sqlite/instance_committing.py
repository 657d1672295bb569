"""Committing: instances advance by one version each, under the token of their claim.

Owns what one commit writes: the fenced change of the row, the history row, and all that was decided
with it. Commits of many callers share their statements. A repeated commit is known by its id, and
changes nothing. Runs inside one write transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from outlive.drivers.sqlite import instance_sql as sql
from outlive.drivers.sqlite import statements
from outlive.drivers.sqlite.bells import Bells
from outlive.drivers.sqlite.instance_mail import InstanceMail
from outlive.drivers.sqlite.instance_starting import Starting, inline
from outlive.drivers.sqlite.joint import NOT_DONE, NotDone
from outlive.drivers.sqlite.statements import as_json
from outlive.drivers.sqlite.transaction import Turn
from outlive.model.instance import Commit, Committed, Entry, InstanceStatus, NewInstance
from outlive.model.job import NewJob
from outlive.names import HostId, InstanceId

# Adds jobs inside the transaction.
Enqueue = Callable[[Turn, Sequence[NewJob]], object]

# The number of an instance that a commit has changed, and whether it is suspended.
_Changed = tuple[int, bool]
_Row = tuple[Any, ...]

# Whatever else a commit says is an end. Members of an enumeration are compared by their texts where
# they are looked for among others.
_RUNNING = InstanceStatus.RUNNING


class InstanceCommitting:
    """The commits of one namespace."""

    def __init__(
        self,
        mail: InstanceMail,
        bells: Bells,
        enqueue: Enqueue,
        *,
        namespace: str,
        host: HostId,
    ) -> None:
        self._mail = mail
        self._bells = bells
        self._enqueue = enqueue
        self._namespace = namespace
        self._host = host

    def commit(
        self, turn: Turn, batches: Sequence[Sequence[Commit]]
    ) -> Sequence[list[Committed] | NotDone]:
        """Advance the instances of many callers; a second commit of one instance is left out."""
        if len(batches) == 1 and len(batches[0]) == 1:
            return [[self.one(turn, batches[0][0])[0]]]
        commits: dict[str, Commit] = {}
        left = [False] * len(batches)
        for place, batch in enumerate(batches):
            if any(commit.id in commits for commit in batch):
                left[place] = True
            else:
                commits.update((commit.id, commit) for commit in batch)
        answers = self._advance(turn, commits)
        return [
            NOT_DONE if alone else [answers[commit.id] for commit in batch]
            for alone, batch in zip(left, batches, strict=True)
        ]

    def one(self, turn: Turn, commit: Commit) -> tuple[Committed, bool]:
        """Advance one instance; the second value says whether anything was changed by it."""
        turn.savepoint()
        row = self._change_one(turn, commit)
        if row is None:
            return self._repeated(turn, commit), False
        number, suspended, attached = row
        if not _is_plain(commit):
            changed: dict[str, _Changed] = {commit.id: (number, suspended)}
            taken = self._follow(turn, [commit], changed)
            return self._answer(turn, commit, changed, taken), True
        if attached:
            self._mail.tell(turn, {number: commit.id}, ended=(number,))
        return Committed(True, turn.wall_us, suspended), True

    def _advance(self, turn: Turn, commits: Mapping[str, Commit]) -> dict[str, Committed]:
        turn.savepoint()
        all_ = list(commits.values())
        changed = self._change(turn, all_)
        taken = self._follow(turn, all_, changed)
        return {id_: self._answer(turn, c, changed, taken) for id_, c in commits.items()}

    def _answer(
        self,
        turn: Turn,
        commit: Commit,
        changed: Mapping[str, _Changed],
        taken: frozenset[InstanceId],
    ) -> Committed:
        row = changed.get(commit.id)
        if row is None:
            return self._repeated(turn, commit)
        if not commit.starts:
            return Committed(True, turn.wall_us, row[1])
        others = tuple([start.id for start in commit.starts if start.id in taken])
        return Committed(True, turn.wall_us, row[1], others)

    def _repeated(self, turn: Turn, commit: Commit) -> Committed:
        """The answer to a commit that changed nothing: it was made before, or is refused."""
        values = (commit.version, commit.id, self._namespace)
        rows = turn.cursor.execute(sql.COMMITTED, values).fetchall()
        if not rows or rows[0][0] != commit.commit:
            return Committed(False, turn.wall_us)
        _, suspended, at_us = rows[0]
        taken = self._taken(turn, commit.starts)
        return Committed(True, at_us, bool(suspended), taken, repeated=True)

    def _taken(self, turn: Turn, starts: Sequence[NewInstance]) -> tuple[InstanceId, ...]:
        if not starts:
            return ()
        question, ids = sql.STARTED.of([start.id for start in starts])
        rows = turn.cursor.execute(question, (ids, self._namespace)).fetchall()
        requests = {row[0]: row[1] for row in rows}
        return tuple(s.id for s in starts if requests.get(s.id, s.request) != s.request)

    # -- the row and its history -------------------------------------------------------------------

    def _change_one(self, turn: Turn, commit: Commit) -> tuple[int, bool, bool] | None:
        """Fence and write one row and its history; the last value: whether to tell of its end."""
        execute, now, version = turn.cursor.execute, turn.wall_us, commit.version
        ended = commit.status is not _RUNNING
        question = sql.STANDING_LAST if ended else sql.STANDING.one
        rows = execute(question, (commit.id, self._namespace)).fetchall()
        if not rows:
            return None
        _, number, token, before, worker, suspended, bare, *attached = rows[0]
        # Nobody else writes before this transaction ends: what was read stays true.
        if token != commit.token or before != version - 1:
            return None
        statement, values = _change_of(commit, (number, token, version), now, bare=bare)
        execute(statement, values)
        execute(
            sql.ADD_HISTORY, (number, version, commit.commit, token, worker, now, commit.events)
        )
        return number, bool(suspended and not ended), bool(attached and attached[0])

    def _change(self, turn: Turn, commits: Sequence[Commit]) -> dict[str, _Changed]:
        """Fence and write rows and histories; returns what was changed, by id."""
        question, ids = sql.STANDING.of([commit.id for commit in commits])
        rows = turn.cursor.execute(question, (ids, self._namespace)).fetchall()
        standing = {row[0]: row for row in rows}
        now = turn.wall_us
        changed: dict[str, _Changed] = {}
        changes: dict[str, list[_Row]] = {}
        history: list[_Row] = []
        for commit in commits:
            found = standing.get(commit.id)
            # Nobody else writes before this transaction ends: what was read stays true.
            if found is None or found[2] != commit.token or found[3] != commit.version - 1:
                continue
            _, number, token, _, worker, suspended, bare = found
            version = commit.version
            changed[commit.id] = (number, bool(suspended and commit.status is _RUNNING))
            history.append((number, version, commit.commit, token, worker, now, commit.events))
            statement, values = _change_of(commit, (number, token, version), now, bare=bare)
            changes.setdefault(statement, []).append(values)
        for statement, rows in changes.items():
            _write(turn, statement, rows)
        _write(turn, sql.ADD_HISTORY, history)
        return changed

    # -- what was decided with it ------------------------------------------------------------------

    def _follow(
        self, turn: Turn, commits: Sequence[Commit], changed: Mapping[str, _Changed]
    ) -> frozenset[InstanceId]:
        """Write all else that the changed ones brought; returns the starts that were there."""
        done = [
            (changed[c.id][0], c)
            for c in commits
            if c.id in changed and (c.status is not _RUNNING or not _is_plain(c))
        ]
        if not done:
            return frozenset()
        self._follow_rows(turn, done)
        starts = [start for _, commit in done for start in commit.starts]
        taken = self._start(turn, starts) if starts else frozenset[InstanceId]()
        # Behind the starts: a message may be for one of them.
        sends = [message for _, commit in done for message in commit.sends]
        if sends:
            self._mail.put(turn, sends, room=None)
        jobs = [job for _, commit in done for job in commit.jobs]
        if jobs:
            self._enqueue(turn, jobs)
        ended = [number for number, commit in done if commit.status is not _RUNNING]
        heard = {n: c.id for n, c in done if c.replies or c.status is not _RUNNING}
        if heard:
            self._mail.tell(turn, heard, ended=ended)
        freed = {n: c for n, c in done if c.release and c.status is _RUNNING}
        if freed:
            self._ring(turn, freed, changed)
        return taken

    def _follow_rows(self, turn: Turn, done: Sequence[tuple[int, Commit]]) -> None:
        """Write what belongs to the instances themselves."""
        consumed: list[tuple[int, int]] = []
        replies: list[tuple[int, str, str]] = []
        for number, commit in done:
            if commit.consumed:
                consumed += [(letter, number) for letter in commit.consumed]
            if commit.replies:
                replies += [(number, reply.message, reply.payload) for reply in commit.replies]
            if commit.custom is not None or commit.attributes is not None:
                values = (commit.custom, commit.attributes, number)
                turn.cursor.execute(sql.DESCRIBE, values)
            if commit.restart is not None:
                self._restart(turn, number, commit.version, commit.restart)
        if consumed:
            self._mail.consume(turn, consumed)
        if replies:
            turn.cursor.executemany(sql.ADD_REPLY, replies)

    def _restart(self, turn: Turn, number: int, version: int, given: str) -> None:
        short = inline(given)
        turn.cursor.execute(sql.RESTART, (turn.wall_us, short, number))
        turn.cursor.execute(sql.FORGET_HISTORY, (number, version))
        if short is None:
            turn.cursor.execute(sql.ADD_INPUT, (number, given))
        else:
            turn.cursor.execute(sql.DROP_INPUT, (number,))

    def _start(self, turn: Turn, instances: Sequence[NewInstance]) -> frozenset[InstanceId]:
        unowned = [replace(new, session=None) if new.session else new for new in instances]
        starting = Starting(self._namespace, self._host, unowned, turn.wall_us)
        answers = statements.run(starting.run(), turn.cursor)
        self._bells.ring(turn, starting.fresh)
        return frozenset(answer.id for answer in answers if answer.entry is Entry.EXISTING)

    def _ring(
        self, turn: Turn, freed: Mapping[int, Commit], changed: Mapping[str, _Changed]
    ) -> None:
        """Ring for instances that were given up although there is something to do."""
        with_mail = turn.cursor.execute(sql.HAVE_MAIL, (as_json(list(freed)),)).fetchall()
        waiting = {number for (number,) in with_mail}
        claimable = [
            number
            for number, commit in freed.items()
            if not changed[commit.id][1]
            and (
                number in waiting
                or (commit.due_at_us is not None and commit.due_at_us <= turn.wall_us)
            )
        ]
        if claimable:
            rows = turn.cursor.execute(sql.DEFINITIONS, (as_json(claimable),)).fetchall()
            self._bells.ring(turn, Counter(definition for _, definition in rows))


def _change_of(commit: Commit, fence: _Row, now: int, *, bare: bool) -> tuple[str, _Row]:
    """The statement that changes the row of an instance, and its values.

    ``bare``: the row has no due time, and nothing of the request that claimed it.
    """
    written = (commit.version, now)
    if commit.status is not _RUNNING:
        return sql.END, (*written, str(commit.status), commit.outcome, now, now, *fence)
    if commit.release:
        return sql.GIVE_UP, (*written, str(commit.status), commit.due_at_us, *fence)
    if commit.due_at_us is None:
        return sql.ONLY_GO_ON if bare else sql.GO_ON, (*written, *fence)
    return sql.GO_ON_UNTIL, (*written, commit.due_at_us, *fence)


def _write(turn: Turn, statement: str, rows: Sequence[_Row]) -> None:
    if len(rows) == 1:
        turn.cursor.execute(statement, rows[0])
    elif rows:
        turn.cursor.executemany(statement, rows)


def _is_plain(commit: Commit) -> bool:
    """Whether it changes the row and the history, and nothing else."""
    return not (
        commit.consumed
        or commit.sends
        or commit.starts
        or commit.jobs
        or commit.replies
        or commit.release
        or commit.restart is not None
        or commit.custom is not None
        or commit.attributes is not None
    )
