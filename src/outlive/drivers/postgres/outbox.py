"""Writes inside the caller's own transaction: what is written exists if and when it commits.

Owns the look at that transaction before anything is written in it. Never ends, begins or aborts
it: what could fail is asked first in a form that cannot.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from outlive.drivers.postgres.job_tables import JobTables
from outlive.drivers.postgres.settings import PostgresSettings
from outlive.drivers.postgres.transactions import Run, foreign, join, not_open
from outlive.errors import ConfigurationError, OutliveError, StoreUnavailable, UsageError

_Result = TypeVar("_Result")

# A plain SELECT on a missing table would abort the caller's transaction.
_THERE = """
SELECT to_regclass($1::text) IS NOT NULL AND to_regclass($2::text) IS NOT NULL AS there,
    now()::text AS began, current_setting('transaction_isolation') AS isolation
"""
_STORE = "SELECT s.id::text AS store, now()::text AS began FROM {s}.store s"


class Outbox:
    """The outbox of one table of a store. ``identity`` is the store's own id."""

    def __init__(
        self, tables: JobTables, settings: PostgresSettings, identity: str, *, table: str
    ) -> None:
        self._tables = tables
        self._identity = identity
        self._names = (f"{settings.quoted_schema}.{table}", f"{settings.quoted_schema}.store")
        self._store_sql = tables.text(_STORE)

    async def write_in(
        self,
        tx: object,
        purpose: str,
        body: Callable[[Run], Awaitable[_Result]],
        *,
        fresh: str | None = None,
    ) -> _Result:
        """Run ``body`` with the statements of ``tx``; ``purpose`` is the verb for errors.

        ``fresh`` says why, if what is written must see what others committed meanwhile.
        """
        run = await join(tx, purpose)
        try:
            (there,) = await run(_THERE, *self._names)
            if not there["there"]:
                foreign(purpose)
            (row,) = await run(self._store_sql)
            if row["store"] != self._identity:
                foreign(purpose)
            if row["began"] != there["began"]:
                not_open(purpose)
            if fresh is not None and there["isolation"] != "read committed":
                raise UsageError(fresh)
            return await body(self._tables.within(run))
        except OutliveError:
            raise
        except Exception as error:
            raise _refusal(error, purpose) from error


def _refusal(error: Exception, purpose: str) -> OutliveError:
    """What an error of the caller's library means."""
    origin = getattr(error, "orig", None) or error
    code = getattr(origin, "sqlstate", None) or getattr(origin, "pgcode", None)
    name = type(origin).__name__
    if code == "25006":
        return UsageError(f"a read-only transaction cannot {purpose}")
    if code == "25P02":
        return UsageError("the transaction has already failed: roll it back")
    if code == "42501":
        return ConfigurationError(
            f"the user of the transaction may not {purpose}: grant SELECT, INSERT, UPDATE and "
            "DELETE on the tables of Outlive"
        )
    return StoreUnavailable(f"{purpose} failed ({name}, {code}): roll back and retry")
