"""How PostgreSQL carries out the statements of jobs, planned once while the tables are empty.

A connection keeps its plans for its life, so what is planned on the first day must be right when a
million jobs are there: each table is entered by the index that is meant, and no search is left to
run on past its end.
"""

from __future__ import annotations

import re
from itertools import pairwise

import asyncpg
import pytest

from outlive.drivers.postgres import job_move_sql, job_order_sql, job_record_sql, job_sql
from outlive.drivers.postgres.job_tables import JobTables
from outlive.drivers.postgres.lease_sql import PLANNER
from tests.unit.drivers.postgres.jobs import hosts, jobs

pytestmark = [pytest.mark.service, pytest.mark.whitebox]

READY = {"job_due", "job_ready"}
CLAIM = READY | {"job_suspect"}
STATEMENTS = {
    "claim": (job_sql.CLAIM, CLAIM | {"job_expiring"}),
    "claim lone": (job_sql.CLAIM_LONE, CLAIM),
    "claim waiting": (job_sql.CLAIM_WAITING, CLAIM | {"job_expiring"}),
    "claim named": (job_sql.CLAIM_NAMED, {"job_due", "job_pkey", "job_expiring"}),
    "glance": (job_sql.GLANCE, READY),
    "promote": (job_sql.PROMOTE, {"job_due"}),
    "promote named": (job_sql.PROMOTE_NAMED, {"job_pkey"}),
    "complete kept": (job_sql.COMPLETE_KEPT, {"job_pkey"}),
    "exchange": (job_sql.EXCHANGE, CLAIM | {"job_pkey"}),
    "complete": (job_sql.COMPLETE, {"job_pkey"}),
    "complete ordered": (job_sql.COMPLETE_ORDERED, {"job_pkey"}),
    "fail": (job_move_sql.FAIL, {"job_pkey"}),
    "release": (job_move_sql.RELEASE, {"job_pkey"}),
    "cancel": (job_move_sql.CANCEL, {"job_pkey"}),
    "reclaim": (job_move_sql.RECLAIM, {"job_claimed"}),
    "orphans": (job_move_sql.ORPHANS, {"job_claimed"}),
    "expire": (job_move_sql.EXPIRE, {"job_expiring"}),
    "expire named": (job_move_sql.EXPIRE_NAMED, {"job_pkey"}),
    "expired": (job_move_sql.EXPIRED, {"job_expiring"}),
    "extend": (job_order_sql.EXTEND, {"job_pkey"}),
    "ask": (job_order_sql.ASK, {"job_pkey"}),
    "retry": (job_order_sql.RETRY, {"job_pkey", "job_unique"}),
    "look": (job_order_sql.LOOK, {"job_pkey"}),
    "look new": (job_order_sql.LOOK_NEW, {"job_pkey", "job_unique"}),
    "try keys": (job_order_sql.TRY_KEYS, {"job_pkey"}),
    "unblock": (job_order_sql.UNBLOCK, {"job_order"}),
    "delete": (job_order_sql.DELETE, {"job_pkey"}),
    "prune": (job_order_sql.PRUNE, {"job_kept"}),
    "get": (job_record_sql.GET, {"job_pkey"}),
    "list": (job_record_sql.LIST, {"job_claimed", "job_page"}),
    "queues": (job_record_sql.QUEUES, {"job_claimed", "job_page"}),
    "target": (job_record_sql.TARGET, {"job_pkey"}),
    "again": (job_record_sql.AGAIN, {"job_claimed"}),
    "room": (job_record_sql.ROOM, {"job_claimed"}),
    "pace": (job_record_sql.PACE, set()),
}


async def plan(connection: asyncpg.Connection, tables: JobTables, template: str) -> list[str]:
    """The lines of the plan that serves every call."""
    text = tables.text(template)
    count = max(int(number) for number in re.findall(r"\$(\d+)", text))
    await connection.execute(f"PREPARE asked AS {text}")
    nulls = ", ".join(["NULL"] * count)
    rows = await connection.fetch(f"EXPLAIN (COSTS OFF) EXECUTE asked({nulls})")
    await connection.execute("DEALLOCATE asked")
    return [row[0] for row in rows]


def judge(name: str, lines: list[str], wanted: set[str]) -> None:
    text = "\n".join(lines)
    used = set(re.findall(r"using (job_\w+) on job(?: \w+)?$", text, re.MULTILINE))
    bare = [line for line, below in pairwise(lines) if "using job_" in line and "Cond" not in below]
    assert "Seq Scan" not in text, f"{name}:\n{text}"
    assert used == wanted, f"{name}:\n{text}"
    # An index without a condition is read from end to end.
    assert bare == [], f"{name}:\n{text}"
    assert "host_open" not in text, f"{name}:\n{text}"
    # A volatile clock is no bound of a search in an index: rows behind it would all be read.
    late = [line for line in lines if "Filter" in line and "<= clock_timestamp()" in line]
    assert [line for line in late if "COALESCE" not in line] == [], f"{name}:\n{text}"
    # Nothing is sorted but lists in memory: jobs come in the order of their index.
    for at, line in enumerate(lines):
        if "Sort Key" in line:
            assert (
                re.search(r"job(_\d+)?\.(priority|seq|due_at|kept_until|losses)", line) is None
            ), f"{name}, line {at}:\n{text}"


@pytest.mark.parametrize("count", [0, 1, 20, 10_000])
async def test_plans_do_not_depend_on_what_is_there(postgres_url, count) -> None:
    async with hosts(postgres_url, "h") as (driver,):
        tables = driver.jobs._claimer._tables
        connection = await asyncpg.connect(postgres_url, server_settings=PLANNER)
        await driver.jobs.enqueue(jobs(count))
        for analysed in (False, True):
            if analysed:
                await connection.execute("ANALYZE")
            for name, (template, wanted) in STATEMENTS.items():
                lines = await plan(connection, tables, template)
                judge(f"{name}, {count} jobs, analysed {analysed}", lines, wanted)
        await connection.close()


async def test_plans_do_not_depend_on_how_high_the_indexes_are(postgres_url) -> None:
    """Where nothing is known of a table, a lower index looks cheaper, sorting included.

    Long names make indexes grow with few jobs; their heights change at different counts.
    """
    queue = "q" * 60
    async with hosts(postgres_url, "h") as (driver,):
        tables = driver.jobs._claimer._tables
        for count in range(800, 10_000, 800):
            await driver.jobs.enqueue(jobs(800, queue))
            # One that is there already goes by the heights that it saw first.
            connection = await asyncpg.connect(postgres_url, server_settings=PLANNER)
            for name, (template, wanted) in STATEMENTS.items():
                judge(f"{name}, {count} jobs", await plan(connection, tables, template), wanted)
            await connection.close()
