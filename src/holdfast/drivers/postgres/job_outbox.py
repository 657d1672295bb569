"""Enqueues inside the caller's own transaction: the jobs exist if and when it commits.

Owns the look at that transaction before anything is written in it. Never ends, begins or aborts
it: what could fail is asked first in a form that cannot.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.drivers.postgres.job_enqueue import JobEnqueuer, check_count, has_ordering
from holdfast.drivers.postgres.job_tables import JobTables
from holdfast.drivers.postgres.settings import PostgresSettings
from holdfast.drivers.postgres.transactions import foreign, join, not_open
from holdfast.errors import ConfigurationError, HoldfastError, StoreUnavailable, UsageError
from holdfast.model.job import Enqueued, NewJob

# A plain SELECT on a missing table would abort the caller's transaction.
_THERE = """
SELECT to_regclass($1::text) IS NOT NULL AND to_regclass($2::text) IS NOT NULL AS there,
    now()::text AS began, current_setting('transaction_isolation') AS isolation
"""
_STORE = "SELECT s.id::text AS store, now()::text AS began FROM {s}.store s"


class JobOutbox:
    """The outbox of one store. ``identity`` is the store's own id."""

    def __init__(
        self,
        tables: JobTables,
        enqueuer: JobEnqueuer,
        settings: PostgresSettings,
        identity: str,
    ) -> None:
        self._tables = tables
        self._enqueuer = enqueuer
        self._identity = identity
        self._names = (f"{settings.quoted_schema}.job", f"{settings.quoted_schema}.store")
        self._store_sql = tables.text(_STORE)

    async def enqueue_in(self, jobs: Sequence[NewJob], tx: object) -> Sequence[Enqueued]:
        """Add jobs inside ``tx``; see the port."""
        check_count(jobs)
        run = await join(tx, "enqueue")
        try:
            (there,) = await run(_THERE, *self._names)
            if not there["there"]:
                foreign("enqueue")
            (row,) = await run(self._store_sql)
            if row["store"] != self._identity:
                foreign("enqueue")
            if row["began"] != there["began"]:
                not_open("enqueue")
            if there["isolation"] != "read committed" and has_ordering(jobs):
                raise UsageError(
                    "jobs with an ordering key need a READ COMMITTED transaction: a snapshot from "
                    "its beginning cannot tell whose turn it is"
                )
            return await self._enqueuer.enqueue_within(self._tables.within(run), jobs)
        except HoldfastError:
            raise
        except Exception as error:
            raise _refusal(error) from error


def _refusal(error: Exception) -> HoldfastError:
    """What an error of the caller's library means."""
    origin = getattr(error, "orig", None) or error
    code = getattr(origin, "sqlstate", None) or getattr(origin, "pgcode", None)
    name = type(origin).__name__
    if code == "25006":
        return UsageError("a read-only transaction cannot enqueue")
    if code == "25P02":
        return UsageError("the transaction has already failed: roll it back")
    if code == "42501":
        return ConfigurationError(
            "the transaction's user may not enqueue: grant SELECT, INSERT, UPDATE and DELETE on "
            "the tables of Holdfast"
        )
    return StoreUnavailable(f"the jobs were not enqueued ({name}, {code}): roll back and retry")
