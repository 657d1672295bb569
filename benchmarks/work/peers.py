"""Procrastinate beside us."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from benchmarks.python_peer import PythonPeer

PROCRASTINATE = PythonPeer(
    "procrastinate",
    ("procrastinate>=3", "psycopg[binary]", "psycopg-pool"),
    "benchmarks.work.programs.procrastinate_peer",
)

# What it does best with, of 1, 10, 30 and 100.
_CONCURRENCY = 10

Rate = Callable[[int], Awaitable[float]]
"""Jobs a second, of so many jobs."""


@asynccontextmanager
async def procrastinate(url: str) -> AsyncGenerator[Rate]:
    """Procrastinate on the empty database of ``url``.

    Raises:
        Absent: It was not installed.
    """
    async with PROCRASTINATE.started(url, str(_CONCURRENCY)) as child:

        async def rate(jobs: int) -> float:
            child.tell(jobs)
            return await child.hear()

        yield rate
