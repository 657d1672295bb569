"""The owner of a broken lease hears the reason that was given, on every store that keeps it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import holdfast


async def _break_under_an_owner(url: str) -> holdfast.Fenced:
    async with holdfast.connect(url, host="worker") as hf:
        lease = await hf.leases.acquire("report")
        heard: asyncio.Queue[holdfast.Lost] = asyncio.Queue()
        lease.on(holdfast.Lost, heard.put_nowait)
        await hf.leases.break_lease("report", reason="stuck since noon")
        with pytest.raises(holdfast.Fenced) as caught:
            await lease.renew()
        assert str((await heard.get()).error) == str(caught.value)
        return caught.value


def _check(error: holdfast.Fenced) -> None:
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
        with pytest.raises(holdfast.SchemaMismatch, match="is the URL right") as caught:
            await holdfast.connect(postgres_url, create=False)
        assert caught.value.found == 0
