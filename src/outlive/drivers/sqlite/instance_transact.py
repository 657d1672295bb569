"""Steps whose own writes commit with their record, or not at all.

Owns the order: the owner is looked at, the body runs, its commit is fenced, and everything is
undone unless that changed something. Runs inside one write transaction, on the writer's thread.
"""

from __future__ import annotations

from outlive.clock import Clock
from outlive.drivers.sqlite import instance_desk_sql as desk
from outlive.drivers.sqlite.instance_committing import InstanceCommitting
from outlive.drivers.sqlite.lending import BodyRaised, Loan, WriterConnection
from outlive.drivers.sqlite.transaction import Turn
from outlive.errors import UsageError
from outlive.model.instance import Commit, Committed
from outlive.names import InstanceId
from outlive.ports.instance_store import Body


class Undone(Exception):
    """The commit changed nothing, so what the body wrote is undone. Never leaves the driver."""

    def __init__(self, committed: Committed) -> None:
        super().__init__("the commit of a transactional step changed nothing")
        self.committed = committed


class InstanceTransact:
    """Runs the bodies of one namespace."""

    def __init__(
        self, committing: InstanceCommitting, clock: Clock, *, namespace: str, limit_s: float
    ) -> None:
        self._committing = committing
        self._clock = clock
        self._namespace = namespace
        self._limit_s = limit_s

    def run(self, turn: Turn, argument: tuple[InstanceId, Body]) -> Committed:
        """Run a body and commit what it says.

        Raises:
            BodyRaised: With its error.
            Undone: It was committed before, or is refused.
        """
        id_, body = argument
        rows = turn.cursor.execute(desk.STANDING, (id_, self._namespace)).fetchall()
        if not rows or rows[0][4] is None:
            # Nobody owns it, so that no commit can be accepted: the body need not run.
            return Committed(False, turn.wall_us)
        turn.savepoint()
        connection = turn.cursor.connection
        assert isinstance(connection, WriterConnection)
        commit = Loan(connection, self._clock, self._limit_s).run(body)
        if not isinstance(commit, Commit) or commit.id != id_:
            raise BodyRaised(UsageError(f"the body of {id_} must return a Commit of {id_}"))
        committed, changed = self._committing.one(turn, commit)
        if not changed:
            raise Undone(committed)
        return committed
