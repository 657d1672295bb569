"""Processes killed at any moment leave a sound file, growing tokens and nothing stuck."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from outlive.model.lease import Grant
from tests.unit.drivers.sqlite.support import ask, open_store

# Takes and releases keys for ever, and reports every token it was granted.
WORKER = """
import asyncio, sys
from pathlib import Path
from outlive.model.lease import Grant
from tests.unit.drivers.sqlite.support import ask, open_store

async def work(driver, name, number):
    turn = 0
    while True:
        turn += 1
        key = f"key/{(number + turn) % 4}"
        owner = f"{name}/{number}-{turn}"
        grant = await driver.leases.acquire(ask(key, owner, 300_000, host=name))
        if isinstance(grant, Grant):
            print(key, grant.token, flush=True)
            if turn % 7:
                await driver.leases.release(grant)
        else:
            await asyncio.sleep(0.001)

async def main():
    driver = await open_store(Path(sys.argv[1]), sys.argv[2])
    await asyncio.gather(*(work(driver, sys.argv[2], n) for n in range(5)))

asyncio.run(main())
"""

SECONDS = 3.0
# A slow machine gets fewer done in that time, and goes on until there is enough to judge.
MOST_SECONDS = 40.0
GRANTS_LEAST = 50


async def start(directory: Path, name: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WORKER, str(directory), name),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        cwd=Path(__file__).parents[4],
    )


@pytest.mark.process
async def test_a_storm_of_kills_leaves_a_sound_file(tmp_path: Path) -> None:
    dice = random.Random(7)
    granted: list[tuple[str, int]] = []
    killed = 0

    async def live_and_die(number: int) -> None:
        nonlocal killed
        process = await start(tmp_path, f"host-{number}")
        assert process.stdout is not None
        # The first grant shows that it is at work; then it may die at any moment.
        line = await process.stdout.readline()
        asyncio.get_running_loop().call_later(dice.uniform(0.0, 0.2), process.kill)
        while line.endswith(b"\n"):
            key, token = line.split()
            granted.append((key.decode(), int(token)))
            line = await process.stdout.readline()
        assert await process.wait() == -9
        killed += 1

    async def lane(lane_number: int) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        life = 0
        while loop.time() < begun + SECONDS or (
            len(granted) <= GRANTS_LEAST and loop.time() < begun + MOST_SECONDS
        ):
            life += 1
            await live_and_die(lane_number * 1000 + life)

    await asyncio.gather(*(lane(number) for number in range(3)))
    assert killed >= 3
    assert len(granted) > GRANTS_LEAST
    assert len(set(granted)) == len(granted), "a token was granted twice"
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    driver = await open_store(tmp_path)
    await asyncio.sleep(0.3)
    for number in range(4):
        key = f"key/{number}"
        grant = await driver.leases.acquire(ask(key))
        assert isinstance(grant, Grant), "a killed owner still owns"
        assert grant.token > max((t for k, t in granted if k == key), default=0)
    await driver.close()
