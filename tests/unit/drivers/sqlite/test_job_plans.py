"""The statements of the hot paths look rows up: none walks or sorts the jobs."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from outlive.drivers.sqlite import job_sql, job_upkeep_sql, schema

pytestmark = pytest.mark.whitebox

# Statements that a job meets on its way, and those that run beside them again and again.
HOT = {
    name: statement
    for module in (job_sql, job_upkeep_sql)
    for name, statement in vars(module).items()
    if name.isupper() and not name.startswith("_")
}
# A claim reads the jobs by one of the first, and takes several of them by the second.
READS = ("READ_NEXT", "READ_PLAIN")
TAKES = ("TAKE_NEXT",)


@pytest.fixture(params=["plain", "analyzed"])
def connection(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as opened:
        schema.bring_up(opened, schema.migrations())
        if request.param == "analyzed":
            # Statistics of a user's own ANALYZE must not turn a look-up into a walk.
            fill(opened)
            opened.execute("ANALYZE")
        yield opened


def fill(connection: sqlite3.Connection) -> None:
    states = ("ready", "claimed", "done", "scheduled")
    rows = [
        (
            *(n, "default", f"id-{n}", f"q{n % 3}", states[n % 4]),
            *(None, "default", f"q{n % 3}", None),
            *(0, n, n, 0, None, 0, None, None, None, 1, 1, 0, 1, "{}", "{}", "{}", None, ""),
        )
        for n in range(1, 401)
    ]
    connection.executemany(job_sql.INSERT, rows)


def plan(connection: sqlite3.Connection, statement: str) -> list[str]:
    values = [None] * statement.count("?")
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
    return [row[3] for row in rows]


@pytest.mark.parametrize("name", sorted(HOT))
def test_no_statement_walks_the_jobs(connection: sqlite3.Connection, name: str) -> None:
    steps = plan(connection, HOT[name])
    # What is scanned is the caller's own list, a constant, or what a look-up has found.
    walks = [
        step
        for step in steps
        if step.startswith("SCAN")
        and not re.fullmatch(r"SCAN (j|json_each) VIRTUAL TABLE.*|SCAN CONSTANT ROW", step)
        and not re.fullmatch(r"SCAN \(subquery-\d+\)", step)
    ]
    assert not walks, steps


@pytest.mark.parametrize(
    "name", [*READS, *TAKES, "READ_SUSPECTS", "DUE", "LOOK", "EXPIRE", "PRUNE", "UNBLOCK"]
)
def test_nothing_is_sorted(connection: sqlite3.Connection, name: str) -> None:
    assert not [step for step in plan(connection, HOT[name]) if "TEMP B-TREE" in step]


@pytest.mark.parametrize("name", READS)
def test_a_claim_reads_the_beginning_of_what_is_ready(
    connection: sqlite3.Connection, name: str
) -> None:
    first, *beside = plan(connection, HOT[name])
    assert first == "SEARCH outlive_job USING INDEX outlive_job_ready (namespace=? AND queue=?)"
    # Whatever else is asked is asked once, not for each job.
    assert not [step for step in beside if "CORRELATED" in step]


@pytest.mark.parametrize("name", TAKES)
def test_a_claim_takes_the_beginning_of_what_is_ready(
    connection: sqlite3.Connection, name: str
) -> None:
    steps = plan(connection, HOT[name])
    assert steps[0] == "SEARCH outlive_job USING INTEGER PRIMARY KEY (rowid=?)"
    assert steps[2:] == [
        "SEARCH outlive_job USING COVERING INDEX outlive_job_ready (namespace=? AND queue=?)",
    ]


@pytest.mark.parametrize("name", ["COMPLETE", "FAIL", "RELEASE", "HELD", "PROGRESS", "ENDED_AS"])
def test_claims_are_settled_by_their_ids(connection: sqlite3.Connection, name: str) -> None:
    steps = plan(connection, HOT[name])
    assert "SEARCH b USING INDEX outlive_job_id (id=? AND namespace=?)" in steps, steps
