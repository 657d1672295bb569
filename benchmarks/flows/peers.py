"""DBOS beside us, kept in a cache outside the clone.

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

_NEEDS = ("dbos>=2",)

# It does some dozen flows a second, and is told so many that a line may take long.
_ANSWER_S = 600.0

Rate = Callable[[int, int, int], Awaitable[float]]
"""Flows a second: of so many steps, with so many in flight, of so many flows."""


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
    return cache() / "dbos"


@asynccontextmanager
async def dbos(url: str) -> AsyncGenerator[Rate]:
    """DBOS on the empty store of ``url``.

    Raises:
        Absent: It was not installed.
    """
    if not is_installed():
        raise Absent("it is not installed; --peers installs it")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.flows.programs.dbos_peer", url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(_place())},
    )
    child = Child(process)

    async def rate(steps: int, in_flight: int, flows: int) -> float:
        child.tell([steps, in_flight, flows])
        return await child.hear(_ANSWER_S)

    try:
        await child.hear()
        yield rate
    finally:
        await child.end()
