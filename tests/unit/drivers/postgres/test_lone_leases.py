"""Leases that are taken and given back one at a time, which a statement of their own serves."""

from __future__ import annotations

import asyncpg
import pytest

from outlive.drivers.postgres import lone_sql
from outlive.drivers.postgres.lease_sql import PLANNER
from outlive.model.lease import HISTORY_MAX, AcquireRequest, Grant
from outlive.names import HostId, Owner
from tests.unit.drivers.postgres.jobs import hosts

pytestmark = [pytest.mark.service, pytest.mark.whitebox]

_TTL_US = 600_000_000

# How far a history may outgrow its limit: a grant prunes it at every sixteenth token.
_SLACK = 16


def ask(key: str, number: int) -> AcquireRequest:
    return AcquireRequest(key, Owner(f"h/{number}"), _TTL_US, "{}", HostId("h"))


@pytest.mark.parametrize("broken", [False, True], ids=["released", "broken"])
async def test_a_history_is_bounded_however_grants_end(postgres_url, broken) -> None:
    async with hosts(postgres_url, "h") as (driver,):
        for number in range(HISTORY_MAX + 3 * _SLACK):
            grant = await driver.leases.acquire(ask("k", number))
            assert isinstance(grant, Grant)
            if broken:
                await driver.leases.break_lease("k", reason="test")
            else:
                await driver.leases.release(grant)
        assert len(await driver.leases.history("k", limit=1000)) <= HISTORY_MAX + _SLACK


@pytest.mark.parametrize("count", [0, 1, 1000])
async def test_a_lone_lease_is_found_by_its_name(postgres_url, count) -> None:
    async with hosts(postgres_url, "h") as (driver,):
        for number in range(count):
            await driver.leases.acquire(ask(f"k{number}", number))
        connection = await asyncpg.connect(postgres_url, server_settings=PLANNER)
        await connection.execute("ANALYZE")
        for text in (lone_sql.ACQUIRE_FREE, lone_sql.RELEASE_QUIET):
            parameters = max(number for number in range(1, 9) if f"${number}" in text)
            await connection.execute(f"PREPARE asked AS {text.replace('{s}', 'outlive')}")
            nulls = ", ".join(["NULL"] * parameters)
            rows = await connection.fetch(f"EXPLAIN (COSTS OFF) EXECUTE asked({nulls})")
            await connection.execute("DEALLOCATE asked")
            lines = "\n".join(row[0] for row in rows)
            assert "Seq Scan" not in lines, lines
            assert lines.count("Index Cond: ((namespace = $1) AND (key = $2)") == 2, lines
            assert "Tid Scan" in lines, lines
        await connection.close()
