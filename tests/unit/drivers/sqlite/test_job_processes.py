"""Two processes claim from one file: every job once, and none is left."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from outlive.model.job import JobFilter, JobState
from tests.unit.drivers.sqlite.support import job, open_store

# Claims and completes until nothing is left, and reports the id and token of each claim.
WORKER = """
import asyncio, sys
from pathlib import Path
from outlive.model.job import Completion
from tests.unit.drivers.sqlite.support import open_session, open_store, want

async def work(driver, name, number):
    turn = 0
    while True:
        turn += 1
        request = f"{name}-{number}-{turn}"
        found = await driver.jobs.claim(want(turn % 4 + 1, host=name, request=request))
        if not found.jobs:
            return
        for claimed in found.jobs:
            print(claimed.id, claimed.token, flush=True)
        await driver.jobs.complete([Completion(one.id, one.token) for one in found.jobs])

async def main():
    name = sys.argv[2]
    driver = await open_store(Path(sys.argv[1]), name)
    await open_session(driver, name)
    await asyncio.gather(*(work(driver, name, n) for n in range(3)))
    await driver.close()

asyncio.run(main())
"""

JOBS = 400


async def start(directory: Path, name: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WORKER, str(directory), name),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        cwd=Path(__file__).parents[4],
    )


@pytest.mark.process
async def test_two_processes_claim_every_job_once(tmp_path: Path) -> None:
    driver = await open_store(tmp_path, "host-0")
    await driver.jobs.enqueue([job(f"j{n}", priority=n % 3) for n in range(JOBS)])
    processes = [await start(tmp_path, f"host-{n}") for n in (1, 2)]
    outputs = await asyncio.gather(*(process.communicate() for process in processes))
    assert [process.returncode for process in processes] == [0, 0]
    claimed = [line.split()[0].decode() for out, _ in outputs for line in out.splitlines()]
    assert len(claimed) == JOBS
    assert len(set(claimed)) == JOBS
    done = JobFilter(states=(JobState.DONE,))
    assert len(await driver.jobs.list(done, after=None, limit=JOBS)) == JOBS
    await driver.close()
