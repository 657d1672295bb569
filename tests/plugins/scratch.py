"""Keeps the files of a test run in memory, where the machine has room for them there.

Most tests commit to a small database of their own, and half of their time would be the disk's. What
they prove does not change: no test takes the power away, and a process that is killed loses nothing
that it wrote to a file, wherever that file is. Owns ``TMPDIR``, unless somebody has set it, and
``disk_folder`` for a test that needs a disk's slowness.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
# What lies here outlives a restart of the machine.
DISK = Path("/var/tmp")

# The clusters, logs and databases of all workers together take less than two thirds of it at their
# most. Containers that were given no size have 64 MiB.
FREE_LEAST_BYTES = 2 << 30


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Before anybody asks for a temporary folder; workers of pytest-xdist inherit it."""
    if "TMPDIR" not in os.environ and offers_room(MEMORY):
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = str(MEMORY)


@pytest.fixture
def disk_folder() -> Iterator[Path]:
    """A folder on a disk, removed after the test."""
    with tempfile.TemporaryDirectory(prefix="outlive-test-", dir=DISK) as folder:
        yield Path(folder)


def offers_room(folder: Path) -> bool:
    """Whether files of a whole run fit into ``folder``, and programs among them can be started."""
    if not os.access(folder, os.W_OK):
        return False
    found = os.statvfs(folder)
    executable = not found.f_flag & os.ST_NOEXEC
    return executable and found.f_bavail * found.f_frsize >= FREE_LEAST_BYTES
