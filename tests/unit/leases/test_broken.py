"""The owner of a broken lease hears the reason that was given, on every store that keeps it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import outlive


async def _break_under_an_owner(url: str) -> outlive.Fenced:
    async with outlive.connect(url, name="worker") as host:
        lease = await host.leases.acquire("report")
        heard: asyncio.Queue[outlive.Lost] = asyncio.Queue()
        lease.on(outlive.Lost, heard.put_nowait)
        await host.leases.break_lease("report", reason="stuck since noon")
        with pytest.raises(outlive.Fenced) as caught:
            await lease.renew()
        assert str((await heard.get()).error) == str(caught.value)
        return caught.value


def _check(error: outlive.Fenced) -> None:
    assert error.reason == "broken"
    assert "stuck since noon" in str(error)


async def test_in_memory() -> None:
    _check(await _break_under_an_owner("memory://"))


async def test_on_sqlite(tmp_path: Path) -> None:
    _check(await _break_under_an_owner(f"sqlite:///{tmp_path}/leases.db"))


@pytest.mark.service
async def test_on_postgres(postgres_url: str) -> None:
    _check(await _break_under_an_owner(postgres_url))


@pytest.mark.service
async def test_an_empty_database_is_left_empty_by_one_who_only_looks(postgres_url: str) -> None:
    for _ in range(2):
        with pytest.raises(outlive.SchemaMismatch, match="is the URL right") as caught:
            await outlive.connect(postgres_url, create=False)
        assert caught.value.found == 0
