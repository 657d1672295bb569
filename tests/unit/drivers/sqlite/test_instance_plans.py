"""The statements of instances look rows up: what sleeps costs a claim nothing."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from outlive.drivers.sqlite import instance_desk_sql, instance_sql, mail_sql, schema, waiting
from outlive.drivers.sqlite.statements import Lookup

pytestmark = pytest.mark.whitebox

_PUBLIC = {
    name: statement
    for module in (instance_sql, instance_desk_sql, mail_sql)
    for name, statement in vars(module).items()
    if name.isupper() and not name.startswith("_")
}
HOT = {
    f"{name}-{form}": statement
    for name, asked in _PUBLIC.items()
    for form, statement in (asked._asdict() if isinstance(asked, Lookup) else {"": asked}).items()
} | {"LOOK": waiting.FOR_INSTANCES.look}

SLEEPS = """
INSERT INTO outlive_instance (
    namespace, id, kind, name, status, suspended, token, version, session, due_at_us, began_at_us,
    updated_at_us, created_at_us, retention_us, request, headers, attributes, input
) VALUES ('default', ?, 'flow', ?, 'running', ?, 1, 1, ?, ?, 1, 1, 1, 1, 'r', '{}', '{}', '{}')
"""
SENT = """
INSERT INTO outlive_letter (instance, id, kind, name, sent_at_us, payload)
SELECT number, 'm', 'signal', 'paid', 1, '1' FROM outlive_instance WHERE id = ?
"""
NOW = 1_000_000


@pytest.fixture(params=["plain", "analyzed"])
def connection(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as opened:
        schema.bring_up(opened, schema.migrations())
        if request.param == "analyzed":
            # Statistics of a user's own ANALYZE must not turn a look-up into a walk.
            sleep(opened, 400, "old")
            opened.execute("ANALYZE")
        yield opened


def sleep(connection: sqlite3.Connection, count: int, tag: str = "s") -> None:
    """Instances that nobody can claim: not due, suspended, owned, or waiting for letters alone."""
    forms: list[tuple[int, str | None, int | None]] = [
        (0, None, NOW + 1),
        (0, None, None),
        (1, None, 1),
        (0, "host-9", 1),
    ]
    rows = [(f"{tag}{n}", f"n{n % 2}", *forms[n // 2 % 4]) for n in range(count)]
    connection.executemany(SLEEPS, rows)


def plan(connection: sqlite3.Connection, statement: str) -> list[str]:
    numbered = [int(found) for found in re.findall(r"\?(\d+)", statement)]
    count = max(numbered) if numbered else statement.count("?")
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", [None] * count).fetchall()
    return [row[3] for row in rows]


@pytest.mark.parametrize("name", sorted(HOT))
def test_no_statement_walks_the_instances(connection: sqlite3.Connection, name: str) -> None:
    steps = plan(connection, HOT[name])
    # What is scanned is the caller's own list, a constant, what a look-up found, or the notes of
    # hosts, of which one machine has few.
    walks = [
        step
        for step in steps
        if step.startswith("SCAN")
        and not re.fullmatch(r"SCAN (j|json_each) VIRTUAL TABLE.*|SCAN CONSTANT ROW", step)
        and not re.fullmatch(r"SCAN \(subquery-\d+\)", step)
        and not (name == "LOOK" and step == "SCAN w")
    ]
    assert not walks, steps


def cost(connection: sqlite3.Connection, statement: str, values: tuple[Any, ...]) -> int:
    """How many instructions a statement takes."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    # Newer releases of SQLite count what it takes to prepare a statement, which is done once.
    connection.execute(statement, values).fetchall()
    connection.set_progress_handler(count, 1)
    connection.execute(statement, values).fetchall()
    connection.set_progress_handler(None, 0)
    return steps


def test_a_hundred_thousand_that_sleep_cost_a_claim_nothing(
    connection: sqlite3.Connection,
) -> None:
    claims = (
        (instance_sql.CLAIMABLE, ('["n0", "n1"]', "default", "flow", NOW, 10) * 2),
        (instance_sql.NEXT_DUE, ("default", "flow", '["n0", "n1"]')),
        (instance_sql.OWN_MAIL, ("default", "host-1", "[]")),
    )
    sleep(connection, 100)
    connection.executemany(SLEEPS, [(f"due{n}", "n0", 0, None, n) for n in range(1, 4)])
    connection.execute(SLEEPS, ("mail", "n1", 0, None, None))
    connection.execute(SENT, ("mail",))
    few = [cost(connection, *claim) for claim in claims]
    sleep(connection, 100_000, "more")
    assert [cost(connection, *claim) for claim in claims] == few
    found = connection.execute(*claims[0]).fetchall()
    ids = [
        connection.execute("SELECT id FROM outlive_instance WHERE number = ?", row[:1]).fetchone()[
            0
        ]
        for row in found
    ]
    assert sorted(ids) == ["due1", "due2", "due3", "mail"]


def test_a_claim_takes_a_bounded_beginning_of_what_is_due(connection: sqlite3.Connection) -> None:
    claim = (instance_sql.CLAIMABLE, ('["n0"]', "default", "flow", NOW, 10) * 2)
    connection.executemany(SLEEPS, [(f"due{n}", "n0", 0, None, n) for n in range(1, 101)])
    some = cost(connection, *claim)
    connection.executemany(SLEEPS, [(f"due{n}", "n0", 0, None, n) for n in range(101, 5001)])
    assert cost(connection, *claim) == some
    assert len(connection.execute(*claim).fetchall()) == 10


@pytest.mark.parametrize("until", [(), (NOW - 5,)], ids=["for-ever", "until"])
def test_what_goes_on_with_its_owner_touches_no_index(
    connection: sqlite3.Connection, until: tuple[int, ...]
) -> None:
    statement = instance_sql.GO_ON_UNTIL if until else instance_sql.GO_ON
    program = connection.execute(f"EXPLAIN {statement}", (2, NOW, *until, 1, 1, 2)).fetchall()
    # Entries are written by these; the row itself is written by others.
    written = [row for row in program if row[1] in ("IdxInsert", "IdxDelete")]
    conditional = connection.execute(SLEEPS, ("own", "n0", 0, "host-1", None)).lastrowid
    entries = "SELECT count(*) FROM outlive_instance INDEXED BY outlive_instance_{} WHERE {}"
    due = entries.format(
        "due",
        "session IS NULL AND ended_at_us IS NULL AND suspended = 0 AND due_at_us IS NOT NULL",
    )
    before = connection.execute(due).fetchone()
    connection.execute(statement, (2, NOW, *until, conditional, 1, 2))
    assert connection.execute(due).fetchone() == before
    # Only the index of due times names a column of it, and an owned instance is not in that.
    assert len(written) <= 2
