"""A write that comes too late is refused by the database itself.

python examples/protect_write.py accounts.db

The lease and the account are in one SQLite file, so the guard and the write commit together.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing

import outlive

SCHEMA = """
CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
INSERT OR REPLACE INTO account VALUES (7, 100);
"""


async def withdraw(db: sqlite3.Connection, lease: outlive.Lease, amount: int) -> None:
    """Take ``amount`` off the account, if the lease is still the newest when it commits."""
    db.execute("BEGIN IMMEDIATE")
    try:
        await lease.guard(db)
        db.execute("UPDATE account SET balance = balance - ? WHERE id = 7", (amount,))
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


async def main(path: str) -> None:
    """Withdraw as the owner, then once more after somebody else became the owner."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(SCHEMA)
        async with (
            outlive.connect(f"sqlite:///{path}", name="first") as first,
            outlive.connect(f"sqlite:///{path}", name="second") as second,
        ):
            late = await first.leases.acquire("account/7")
            await withdraw(db, late, 30)
            # Stands for a pause of the first host that is longer than its ttl.
            await second.leases.break_lease("account/7", reason="the first host is stuck")
            async with second.leases.hold("account/7") as lease:
                await withdraw(db, lease, 20)
                try:
                    await withdraw(db, late, 50)
                except outlive.Fenced as error:
                    print(f"refused: {error}")
        print("balance", *db.execute("SELECT balance FROM account WHERE id = 7").fetchone())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
