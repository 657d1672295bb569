"""The second look of a host that is about to wait: a read as a rule, a claim where it must be."""

from __future__ import annotations

import pytest

from outlive.drivers.postgres import job_claim, job_sql
from tests.unit.drivers.postgres.jobs import hosts, job, wish

pytestmark = [pytest.mark.service, pytest.mark.whitebox]

_WAIT_US = 5_000_000


async def test_an_empty_queue_costs_one_write(postgres_url, monkeypatch) -> None:
    async with hosts(postgres_url, "h") as (driver,):
        # From now on it is known that the queue gives less than is asked for.
        await driver.jobs.claim(wish(5, wait_us=_WAIT_US))
        tables = driver.jobs._claimer._tables
        writes: list[bool] = []
        fetch = tables.fetch

        async def counted(text, *args, write=True):
            writes.append(write)
            return await fetch(text, *args, write=write)

        monkeypatch.setattr(tables, "fetch", counted)
        claimed = await driver.jobs.claim(wish(5, wait_us=_WAIT_US))
        assert claimed.jobs == ()
        assert writes == [True, False, False]


async def test_what_is_remembered_of_queues_is_bounded(postgres_url, monkeypatch) -> None:
    monkeypatch.setattr(job_claim, "_HINTS_MAX", 5)
    async with hosts(postgres_url, "h") as (driver,):
        for number in range(12):
            await driver.jobs.claim(wish(1, f"q{number}"))
        assert len(driver.jobs._claimer._short) <= 6


@pytest.mark.parametrize("delay_us", [0, 1])
async def test_a_job_that_came_before_the_note_is_claimed(
    postgres_url, monkeypatch, delay_us
) -> None:
    async with hosts(postgres_url, "h", "g") as (driver, other):
        tables = driver.jobs._claimer._tables
        flight, fetch = tables.text(job_sql.IN_FLIGHT), tables.fetch

        async def interrupted(text, *args, write=True):
            if text == flight:
                await other.jobs.enqueue([job(delay_us=delay_us)])
            return await fetch(text, *args, write=write)

        monkeypatch.setattr(tables, "fetch", interrupted)
        claimed = await driver.jobs.claim(wish(5, wait_us=_WAIT_US))
        assert len(claimed.jobs) == 1
