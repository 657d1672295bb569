"""DBOS beside us."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from benchmarks.python_peer import PythonPeer

DBOS = PythonPeer("dbos", ("dbos>=2",), "benchmarks.flows.programs.dbos_peer")

Rate = Callable[[int, int, int], Awaitable[float]]
"""Flows a second: of so many steps, with so many in flight, of so many flows."""


@asynccontextmanager
async def dbos(url: str) -> AsyncGenerator[Rate]:
    """DBOS on the empty store of ``url``.

    Raises:
        Absent: It was not installed.
    """
    async with DBOS.started(url) as child:

        async def rate(steps: int, in_flight: int, flows: int) -> float:
            child.tell([steps, in_flight, flows])
            return await child.hear()

        yield rate
