"""Procrastinate beside us, kept in a cache outside the clone.

Installs only when asked to; otherwise uses what an earlier run installed.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.charts.peers import INSTALL_LIMIT_S, Absent, cache
from benchmarks.children import ROOT, Child

_NEEDS = ("procrastinate>=3", "psycopg[binary]", "psycopg-pool")

# What it does best with, of 1, 10, 30 and 100.
_CONCURRENCY = 10

# It does some hundred jobs a second, and is told so many that a line may take long.
_ANSWER_S = 300.0

Rate = Callable[[int], Awaitable[float]]
"""Jobs a second, of so many jobs."""


def install() -> None:
    """Put it into the cache, if it is not there."""
    if is_installed():
        return
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--target", str(_place())]
    subprocess.run([*pip, *_NEEDS], check=True, timeout=INSTALL_LIMIT_S, stdout=subprocess.DEVNULL)


def is_installed() -> bool:
    """Whether it is in the cache."""
    return _place().is_dir()


def _place() -> Path:
    return cache() / "procrastinate"


@asynccontextmanager
async def procrastinate(url: str) -> AsyncGenerator[Rate]:
    """Procrastinate on the empty database of ``url``.

    Raises:
        Absent: It was not installed.
    """
    if not is_installed():
        raise Absent("it is not installed; --peers installs it")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.work.programs.procrastinate_peer"),
        *(url, str(_CONCURRENCY)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(_place())},
    )
    child = Child(process)

    async def rate(jobs: int) -> float:
        child.tell(jobs)
        return await child.hear(_ANSWER_S)

    try:
        await child.hear()
        yield rate
    finally:
        await child.end()
