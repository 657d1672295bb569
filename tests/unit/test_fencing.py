"""The fence column: an older token changes nothing, whatever its owner believes."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

import outlive
from outlive import blocking, fencing
from outlive.fencing import Fence

FENCE = Fence()
WRITE = f"UPDATE report SET text = :text, {FENCE.set} WHERE id = :id AND {FENCE.where}"


@pytest.fixture
def db():
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE report (id INTEGER, text TEXT, fence INTEGER DEFAULT 0)")
        connection.execute("INSERT INTO report (id, text) VALUES (1, 'empty')")
        yield connection


def write(db, token: int, text: str, row: int = 1) -> int:
    return db.execute(WRITE, {"token": token, "text": text, "id": row}).rowcount


async def test_a_write_of_an_older_owner_is_refused(db):
    async with outlive.connect("memory://") as host:
        old = await host.leases.acquire("report")
        late = old.token
        await old.release()
        new = await host.leases.acquire("report")
        fencing.check(new, write(db, new.token, "new"))
        fencing.check(new, write(db, new.token, "new again"))
        with pytest.raises(outlive.Fenced, match="newer token") as caught:
            fencing.check(new, write(db, late, "late"))
        assert caught.value.key == "report"
    assert db.execute("SELECT text, fence FROM report").fetchone() == ("new again", 2)


def test_the_blocking_facade_is_fenced_alike(db):
    with blocking.connect("memory://") as host, host.leases.hold("report") as lease:
        fencing.check(lease, write(db, lease.token, "text"))
        with pytest.raises(outlive.Fenced, match="does not exist"):
            fencing.check(lease, write(db, lease.token, "text", row=2))


@pytest.mark.parametrize("changed", [1, 7, "UPDATE 1", "INSERT 0 1", "MERGE 3"])
async def test_any_changed_row_passes(changed):
    async with outlive.connect("memory://") as host, host.leases.hold("k") as lease:
        fencing.check(lease, changed)


async def test_what_a_library_does_not_know_is_no_success():
    async with outlive.connect("memory://") as host, host.leases.hold("k") as lease:
        for nothing in (0, "UPDATE 0"):
            with pytest.raises(outlive.Fenced):
                fencing.check(lease, nothing)
        for unknown in (-1, "", "BEGIN", None, b"UPDATE 1"):
            with pytest.raises(outlive.UsageError):
                fencing.check(lease, unknown)


@pytest.mark.parametrize(
    "parameter", ["?", "?3", ":token", "$1", "$token", "@token", "%s", "%(token)s"]
)
def test_every_style_of_placeholder_is_written_as_it_is(parameter):
    fence = Fence("newest_token", parameter)
    assert fence.set == f"newest_token = {parameter}"
    assert fence.where == f"newest_token <= {parameter}"


def test_a_table_may_be_named_where_it_is_allowed():
    fence = Fence("report.fence", "$2")
    assert (fence.set, fence.where) == ("fence = $2", "report.fence <= $2")


@pytest.mark.parametrize(
    ("column", "parameter"),
    [
        ("", ":t"),
        ("fence; DROP TABLE x", ":t"),
        ("a.b.c", ":t"),
        ('"fence"', ":t"),
        ("fence", "7"),
        ("fence", ":t OR 1=1"),
        ("fence", "%"),
        ("x" * 64, ":t"),
    ],
)
def test_what_is_not_a_plain_name_never_reaches_a_statement(column, parameter):
    with pytest.raises(outlive.UsageError):
        Fence(column, parameter)
