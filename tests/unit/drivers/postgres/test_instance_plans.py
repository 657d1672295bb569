"""How PostgreSQL carries out the statements that every flow passes through, planned at any time.

Each table is entered by its key, whatever is in it and whatever is known of that.
"""

from __future__ import annotations

import re

import asyncpg
import pytest

from outlive.drivers.postgres import instance_sql
from outlive.drivers.postgres.lease_sql import PLANNER
from outlive.model.instance import Message, NewInstance
from outlive.names import InstanceId
from tests.unit.drivers.postgres.jobs import hosts
from tests.unit.drivers.postgres.test_job_plans import plan

pytestmark = [pytest.mark.service, pytest.mark.whitebox]

KEYS = {"instance": "instance_pkey", "letter": "letter_pkey", "watch": "watch_pkey"}
STATEMENTS = {
    "start": (instance_sql.START, {"instance", "watch"}),
    "start owned": (instance_sql.START_OWNED, {"instance"}),
    "commit": (instance_sql.COMMIT, {"instance", "letter", "watch"}),
    "commit quiet": (instance_sql.COMMIT_QUIET, {"instance", "letter", "watch"}),
}


def flows(count: int) -> list[NewInstance]:
    return [
        NewInstance(
            id=InstanceId(f"f-{number}"), kind="flow", name="f", input="{}", request=f"r-{number}"
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 5_000])
async def test_flows_are_found_by_their_keys_whatever_is_there(postgres_url, count) -> None:
    async with hosts(postgres_url, "h") as (driver,):
        new = flows(count)
        await driver.instances.start(new)
        await driver.instances.send(
            [Message(each.id, "m", kind="signal", name="go", payload="null") for each in new]
        )
        for each in new[:100]:
            await driver.instances.get(each.id, wait_us=60_000_000)
        tables = driver.jobs._claimer._tables
        connection = await asyncpg.connect(postgres_url, server_settings=PLANNER)
        for analysed in (False, True):
            if analysed:
                await connection.execute("ANALYZE")
            for name, (template, wanted) in STATEMENTS.items():
                text = "\n".join(await plan(connection, tables, template))
                used = set(re.findall(r"using (\w+) on (instance|letter|watch)\b", text))
                said = f"{name}, {count} flows, analysed {analysed}:\n{text}"
                assert "Seq Scan" not in text, said
                assert used == {(KEYS[table], table) for table in wanted}, said
        await connection.close()
