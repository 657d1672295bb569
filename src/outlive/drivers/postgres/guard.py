"""Proves a grant inside the caller's own transaction.

Owns the two statements of a guard. Never ends, begins or aborts the caller's transaction: what
could fail is asked first in a form that cannot.
"""

from __future__ import annotations

from outlive.drivers.postgres.settings import PostgresSettings
from outlive.drivers.postgres.transactions import foreign, join, not_open
from outlive.errors import (
    ConfigurationError,
    Fenced,
    OutliveError,
    StoreUnavailable,
    UsageError,
)
from outlive.model.lease import Grant

# Whether this database has our tables, and when the transaction began. A plain SELECT on a missing
# table would abort the caller's transaction.
_THERE = """
SELECT to_regclass($1::text) IS NOT NULL AND to_regclass($2::text) IS NOT NULL AS there,
    now()::text AS began
"""

# FOR KEY SHARE holds a takeover up until the caller commits, because a takeover changes the token,
# a key column; renewals of the owner pass. The beginning of the transaction is the same as a
# statement before only inside a transaction block, whatever the library believes.
_LOCK = """
WITH ours AS MATERIALIZED (
    SELECT l.token FROM {s}.lease l
    WHERE l.namespace = $1::text AND l.key = $2::text AND l.slot = $3::int
        AND l.token = $4::bigint AND l.owner = $5::text
    FOR KEY SHARE
)
SELECT s.id::text AS store, now()::text AS began, EXISTS (SELECT FROM ours) AS ours
FROM {s}.store s
"""


class Guard:
    """Guards of one store. ``identity`` is the store's own id."""

    def __init__(self, settings: PostgresSettings, namespace: str, identity: str) -> None:
        self._namespace = namespace
        self._identity = identity
        self._tables = (f"{settings.quoted_schema}.lease", f"{settings.quoted_schema}.store")
        self._lock = settings.sql(_LOCK)

    async def check(self, grant: Grant, tx: object) -> None:
        """Prove ``grant`` inside ``tx``; see the port."""
        run = await join(tx, "guard")
        try:
            (there,) = await run(_THERE, *self._tables)
            if not there["there"]:
                foreign("guard")
            (row,) = await run(
                self._lock, self._namespace, grant.key, grant.slot, grant.token, grant.owner
            )
        except OutliveError:
            raise
        except Exception as error:
            raise _refusal(error) from error
        if row["store"] != self._identity:
            foreign("guard")
        if row["began"] != there["began"]:
            not_open("guard")
        if not row["ours"]:
            raise Fenced(grant.key)


def _refusal(error: Exception) -> OutliveError:
    """What an error of the caller's library means."""
    origin = getattr(error, "orig", None) or error
    code = getattr(origin, "sqlstate", None) or getattr(origin, "pgcode", None)
    name = type(origin).__name__
    if code == "25006":
        return UsageError(
            "a read-only transaction cannot guard a lease, because it may not lock rows"
        )
    if code == "25P02":
        return UsageError("the transaction has already failed: roll it back")
    if code == "42501":
        return ConfigurationError(
            "the user of the transaction may not lock lease rows: grant SELECT and UPDATE on the "
            "tables of Outlive"
        )
    return StoreUnavailable(f"the guard failed ({name}, {code}): roll back and retry")
