"""Transactional steps: a user's writes and the commit that records them, in one transaction.

Owns connections of its own, on which users' statements are planned as they are elsewhere, and the
order: the body first, the record last, then COMMIT at once, so that the row of the instance is
locked for as short as can be.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any

from outlive.drivers.postgres import instance_sql
from outlive.drivers.postgres.connections import Connections
from outlive.drivers.postgres.instance_commit import InstanceCommitter
from outlive.drivers.postgres.job_tables import JobTables
from outlive.drivers.postgres.settings import PostgresSettings
from outlive.drivers.postgres.translate import translate
from outlive.errors import UsageError
from outlive.model.instance import Commit, Committed
from outlive.names import InstanceId
from outlive.ports.driver import DriverContext
from outlive.ports.instance_store import Body

# Bodies that may be under way together. Each has a connection of its own, beside those of the
# driver, because it may take its time.
_BODIES_MAX = 8

# A body that awaits something else for longer than this holds its locks in vain.
_IDLE_MS = 60_000


@dataclass(slots=True)
class _Loan:
    """A connection under way; ``clean`` once its transaction has ended as it should."""

    connection: Any
    clean: bool = False


class InstanceTransactor:
    """Runs bodies in transactions of one store."""

    def __init__(
        self,
        tables: JobTables,
        committer: InstanceCommitter,
        settings: PostgresSettings,
        context: DriverContext,
    ) -> None:
        self._tables = tables
        self._committer = committer
        self._timeout_s = settings.command_timeout_s
        self._lent = Connections(replace(settings, pool_size=_BODIES_MAX), context, tuned=False)
        self._owned_sql = tables.text(instance_sql.OWNED)

    async def transact(self, id_: InstanceId, body: Body) -> Committed:
        """Run ``body`` and commit what it says with it; see the port."""
        loan = _Loan(await self._lent.lend())
        try:
            with self._committer.apart(id_):
                return await self._run(loan, id_, body)
        finally:
            self._lent.take_back(loan.connection, clean=loan.clean)

    async def close(self) -> None:
        """Give up what is under way. Repeatable."""
        await self._lent.close()

    async def _run(self, loan: _Loan, id_: InstanceId, body: Body) -> Committed:
        connection = loan.connection
        transaction = connection.transaction(isolation="read_committed")
        try:
            await transaction.start()
            await self._execute(
                connection, f"SET LOCAL idle_in_transaction_session_timeout = {_IDLE_MS}"
            )
            (row,) = await self._fetch(connection, self._owned_sql, self._tables.namespace, id_)
        except Exception as error:
            raise translate(error, write=False) from error
        if not row["owned"]:
            await self._undo(loan, transaction)
            return Committed(False, row["at_us"])
        try:
            result = body(connection)
            commit = await result if inspect.isawaitable(result) else result
        except Exception:
            await self._undo(loan, transaction)
            raise
        _check(connection, id_, commit)
        return await self._record(loan, transaction, commit)

    async def _record(self, loan: _Loan, transaction: Any, commit: Commit) -> Committed:
        """The record, and COMMIT unless it was refused or had been made before."""

        async def run(text: str, *args: Any) -> Any:
            return await self._fetch(loan.connection, text, *args)

        try:
            await self._execute(loan.connection, self._lent.tuning)
            committed, repeated = await self._committer.commit_in(self._tables.within(run), commit)
            if repeated or not committed.ok:
                await self._undo(loan, transaction)
                return committed
        except Exception as error:
            raise translate(error, write=False) from error
        try:
            await transaction.commit()
        except Exception as error:
            raise translate(error, write=True) from error
        loan.clean = True
        return committed

    async def _fetch(self, connection: Any, text: str, *args: Any) -> Any:
        return await connection.fetch(text, *args, timeout=self._timeout_s)

    async def _execute(self, connection: Any, script: str) -> None:
        await connection.execute(script, timeout=self._timeout_s)

    async def _undo(self, loan: _Loan, transaction: Any) -> None:
        """Roll back; where that fails the connection is closed, which does the same."""
        try:
            await transaction.rollback()
            loan.clean = True
        except Exception as error:  # noqa: BLE001 - what the caller must know is said already
            self._tables.logger.debug("could not roll back a transaction: %s", type(error).__name__)


def _check(connection: Any, id_: InstanceId, commit: Commit) -> None:
    """Refuse what a body may not do; the transaction is then given up with its connection."""
    if commit.id != id_:
        raise UsageError(f"the body of {id_} must return a commit of {id_}, not of {commit.id}")
    if not connection.is_in_transaction():
        raise UsageError(
            "the body ended the transaction, so its writes and its record did not commit together: "
            "leave COMMIT and ROLLBACK to Outlive"
        )
