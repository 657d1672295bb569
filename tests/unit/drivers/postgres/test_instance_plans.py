"""How PostgreSQL carries out the statements of instances, planned once while the tables are empty.

A connection keeps its plans for its life, so what is planned on the first day must be right when a
million flows sleep: each table is entered by the index that is meant.
"""

from __future__ import annotations

import re
from itertools import pairwise

import asyncpg
import pytest

from holdfast.drivers.postgres import (
    instance_claim_sql,
    instance_desk_sql,
    instance_mail_sql,
    instance_record_sql,
    instance_sql,
)
from holdfast.drivers.postgres.lease_sql import PLANNER
from tests.unit.drivers.postgres.instances import letter, new, news
from tests.unit.drivers.postgres.jobs import hosts
from tests.unit.drivers.postgres.test_job_plans import plan

pytestmark = pytest.mark.service

KEY = "instance_pkey"
HISTORY = "instance_history_pkey"
BOX = "letter_pkey"
IDS = "letter_id_pkey"
REPLY = "instance_reply_pkey"
WATCH = "watch_pkey"
FLOOR = "instance_floor_pkey"
MOVE = {KEY, BOX, WATCH}
STATEMENTS = {
    "start": (instance_sql.START, {KEY, FLOOR, WATCH}),
    "start begun": (instance_sql.START_BEGUN, {KEY, FLOOR, WATCH}),
    "start in": (instance_sql.START_IN, {KEY, FLOOR, WATCH}),
    "look started": (instance_sql.LOOK_STARTED, {KEY}),
    "commit": (instance_sql.COMMIT, MOVE),
    "look committed": (instance_sql.LOOK_COMMITTED, {KEY, HISTORY}),
    "owned": (instance_sql.OWNED, {KEY}),
    "commit more": (instance_mail_sql.COMMIT_MORE, {*MOVE, FLOOR, HISTORY}),
    "send": (instance_mail_sql.SEND, {*MOVE, IDS}),
    "deliver": (instance_mail_sql.DELIVER, {*MOVE, IDS}),
    "letters": (instance_mail_sql.LETTERS, {KEY, BOX}),
    "reply": (instance_mail_sql.REPLY, {REPLY}),
    "claim": (instance_claim_sql.CLAIM, {KEY, BOX, FLOOR, "instance_due"}),
    "claim waiting": (instance_claim_sql.CLAIM_WAITING, {KEY, BOX, FLOOR, WATCH, "instance_due"}),
    "again": (instance_claim_sql.AGAIN, {"instance_owned", BOX}),
    "release": (instance_claim_sql.RELEASE, {KEY, WATCH}),
    "look owned": (instance_claim_sql.LOOK_OWNED, {KEY}),
    "reclaim": (instance_claim_sql.RECLAIM, {"instance_owned", WATCH}),
    "terminate": (instance_desk_sql.TERMINATE, MOVE),
    "suspend": (instance_desk_sql.SUSPEND, {KEY, WATCH}),
    "resume": (instance_desk_sql.RESUME, {KEY, WATCH}),
    "reopen": (instance_desk_sql.REOPEN, {KEY, WATCH}),
    "purge": (instance_desk_sql.PURGE, {KEY, HISTORY, BOX, IDS, REPLY}),
    "lock all": (instance_desk_sql.LOCK_ALL, {KEY}),
    "lock late": (instance_desk_sql.LOCK_LATE, {"instance_kept", WATCH}),
    "ring": (instance_desk_sql.RING, {KEY, WATCH}),
    "get": (instance_record_sql.GET, {KEY}),
    "watch": (instance_record_sql.WATCH, {KEY}),
    "history": (instance_record_sql.HISTORY, {HISTORY}),
    "list": (instance_record_sql.LIST, {"instance_page"}),
    "count": (instance_record_sql.COUNT, {"instance_page"}),
}
OURS = re.compile(r"using ((?:instance|letter|watch)\w*) on \w+(?: \w+)?$", re.MULTILINE)


def judge(name: str, lines: list[str], wanted: set[str]) -> None:
    text = "\n".join(lines)
    assert "Seq Scan" not in text, f"{name}:\n{text}"
    assert set(OURS.findall(text)) == wanted, f"{name}:\n{text}"
    # An index without a condition is read from end to end.
    bare = [line for line, below in pairwise(lines) if OURS.search(line) and "Cond" not in below]
    assert bare == [], f"{name}:\n{text}"
    # Nothing is sorted but lists in memory: what is due comes in the order of its index.
    sorts = [line for line in lines if "Sort Key" in line]
    assert [line for line in sorts if re.search(r"Key: instance(_\d+)?\.due", line)] == []


@pytest.mark.parametrize("count", [0, 1, 10_000])
async def test_plans_do_not_depend_on_what_is_there(postgres_url, count) -> None:
    async with hosts(postgres_url, "h") as (driver,):
        tables = driver.instances._claimer._tables
        connection = await asyncpg.connect(postgres_url, server_settings=PLANNER)
        # Names of their own: what was numbered before must not decide about statistics.
        sleeping = [new(f"i{number}", delay_us=3_600_000_000) for number in range(count)]
        await driver.instances.start(sleeping)
        await driver.instances.send([letter(one.id) for one in sleeping[:100]])
        for analysed in (False, True):
            if analysed:
                await connection.execute("ANALYZE")
            for name, (template, wanted) in STATEMENTS.items():
                lines = await plan(connection, tables, template)
                judge(f"{name}, {count} instances, analysed {analysed}", lines, wanted)
        await connection.close()


READ = """
SELECT sum(idx_tup_fetch) + sum(coalesce(seq_tup_read, 0)) AS rows
FROM pg_stat_xact_user_tables WHERE relname IN ('instance', 'letter')
"""


async def test_sleeping_instances_cost_a_claim_nothing(postgres_url) -> None:
    """Rows that one claim reads, counted by the server."""
    async with hosts(postgres_url, "h") as (driver,):
        tables = driver.instances._claimer._tables
        read: list[int] = []
        for count in (10, 10_000):
            # What a connection has read is counted from its beginning.
            connection = await asyncpg.connect(postgres_url, server_settings=PLANNER)
            await driver.instances.start(news(count, delay_us=3_600_000_000))
            await driver.instances.start(news(5))
            async with connection.transaction():
                text = tables.text(instance_claim_sql.CLAIM)
                args = ("n", "h", "h", "r", "flow", ["f"], 5, 20, "h")
                assert len(await connection.fetch(text, *args)) == 5
                read.append(await connection.fetchval(READ))
            await connection.close()
        assert read[0] == read[1]
