"""A process with the etcd driver forks, and starts programs: neither disturbs the other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.service, pytest.mark.process]

FORKING = """
import asyncio, os, sys
from outlive.errors import UsageError
from tests.process.etcd_drivers import Drivers

async def main():
    drivers = Drivers()
    driver = await drivers.open(sys.argv[1])
    child = os.fork()
    if child == 0:
        try:
            driver.leases.get("k").send(None)
        except UsageError:
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    # The program counts namespaces from the first: other tests own keys there.
    assert len(await driver.leases.get("never-granted")) == 0
    await drivers.close()
    sys.exit(os.waitstatus_to_exitcode(status))

asyncio.run(main())
"""


def _run(program: str, etcd_server) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    return subprocess.run(
        [sys.executable, "-c", program, etcd_server.url],
        cwd=Path(__file__).parents[2],
        env=kept,
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_a_driver_is_not_inherited_by_a_child(etcd_server) -> None:
    done = _run(FORKING, etcd_server)
    assert done.returncode == 0, done.stderr


# A program that needs more than vfork, as one that runs under another account does.
STARTING = """
import asyncio, os, subprocess, sys
from tests.process.etcd_drivers import Drivers

def start():
    return subprocess.run([sys.executable, "-V"], preexec_fn=os.getpid, capture_output=True)

async def main():
    drivers = Drivers()
    driver = await drivers.open(sys.argv[1])
    over = []
    for _ in range(60):
        asked = [asyncio.create_task(driver.leases.get("never-granted")) for _ in range(20)]
        over.append((await asyncio.to_thread(start)).returncode)
        await asyncio.gather(*asked)
    await drivers.close()
    print(os.environ.get("GRPC_ENABLE_FORK_SUPPORT"), sum(code != 0 for code in over))

asyncio.run(main())
"""


def test_programs_that_a_busy_process_starts_do_run(etcd_server) -> None:
    done = _run(STARTING, etcd_server)
    assert done.stdout.split() == [b"None", b"0"], done.stderr
