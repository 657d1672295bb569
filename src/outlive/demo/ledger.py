"""What the demonstration protects: a small table of its own, in the same file as the lease."""

from __future__ import annotations

import itertools
import sqlite3

from outlive import Lease

_SCHEMA = """
CREATE TABLE IF NOT EXISTS demo_ledger (seq INTEGER PRIMARY KEY, token INTEGER, region TEXT);
CREATE TABLE IF NOT EXISTS demo_total (id INTEGER PRIMARY KEY, fence INTEGER, region TEXT);
INSERT OR IGNORE INTO demo_total VALUES (1, 0, NULL);
"""

# The rule for a resource that cannot join the lease's transaction: take no older token than the
# newest it has seen.
_FENCED = "UPDATE demo_total SET fence = :token, region = :region WHERE id = 1 AND fence <= :token"


def create(ledger: sqlite3.Connection) -> None:
    """Make the tables."""
    ledger.executescript(_SCHEMA)


async def write_guarded(ledger: sqlite3.Connection, lease: Lease, region: str) -> None:
    """Write a line in a transaction that only the owner of the lease can commit."""
    # The token is read first: a handle that knows it was lost does not even begin.
    row = (lease.token, region)
    ledger.execute("BEGIN IMMEDIATE")
    try:
        await lease.guard(ledger)
        ledger.execute("INSERT INTO demo_ledger (token, region) VALUES (?, ?)", row)
        ledger.execute(_FENCED, {"token": row[0], "region": region})
    except BaseException:
        ledger.execute("ROLLBACK")
        raise
    ledger.execute("COMMIT")


def write_fenced(ledger: sqlite3.Connection, token: int, region: str) -> bool:
    """Write with nothing but a token; false if the table has seen a newer one."""
    cursor = ledger.execute(_FENCED, {"token": token, "region": region})
    return cursor.rowcount == 1


def stale_lines(ledger: sqlite3.Connection) -> int:
    """How many lines were written under an older token than a line before them; must be none."""
    tokens = [token for (token,) in ledger.execute("SELECT token FROM demo_ledger ORDER BY seq")]
    return sum(later < earlier for earlier, later in itertools.pairwise(tokens))
