"""Statements that hosts send to a store for one act, and in a second in which nothing happens.

Everything counts that arrives there as a statement, BEGIN, COMMIT and SAVEPOINT too: each is a
round trip, or a part of one. A trigger or a function is part of the statement that runs it, and
preparing a statement is not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from statistics import fmean, median
from typing import Protocol

from benchmarks.leases.backend import Absent, Count
from benchmarks.report import Row

NAME = "sent"

# Statements are prepared, and rows that stay are inserted, by the first.
_WARM_UP = 5
_ACTS = 60

# The statements of connecting and of beginning to run are over after this.
_SETTLE_S = 1.0

_BRACKETS = "of these BEGIN, COMMIT and the like"


class Backend(Protocol):
    """A place whose statements can be counted."""

    @property
    def name(self) -> str:
        """The first half of its rows' names."""
        ...

    @property
    def sees_statements(self) -> bool:
        """Whether ``counting`` counts each statement, and not transactions alone."""
        ...

    def new_store(self) -> str:
        """The URL of an empty store."""
        ...

    def counting(self, url: str) -> AbstractAsyncContextManager[Callable[[], Count]]:
        """Count the statements of hosts that connect inside the block to the store of ``url``."""
        ...


def counting(backend: Backend, url: str) -> AbstractAsyncContextManager[Callable[[], Count]]:
    """Count the statements of hosts that connect inside the block to the store of ``url``.

    Raises:
        Absent: Only transactions can be counted there.
    """
    if not backend.sees_statements:
        raise Absent("the log of a server that was named is not read")
    return backend.counting(url)


async def of_act(name: str, count: Callable[[], Count], act: Callable[[], Awaitable[None]]) -> Row:
    """Statements of one act: the median of some, one after the other.

    Heartbeats and other duties of the host fall into a few of them: the mean includes them.
    """
    for _ in range(_WARM_UP):
        await act()
    counts = [count()]
    for _ in range(_ACTS):
        await act()
        counts.append(count())
    sent = [after.sent - before.sent for before, after in pairwise(counts)]
    brackets = [after.brackets - before.brackets for before, after in pairwise(counts)]
    return Row(
        name=name,
        unit="statements",
        ours=median(sent),
        peers={
            _BRACKETS: median(brackets),
            "the mean, duties of the host included": fmean(sent),
        },
        at_most=True,
    )


async def of_idle(name: str, count: Callable[[], Count], seconds: float) -> Row:
    """Statements in a second of one host that has nothing to do."""
    await asyncio.sleep(_SETTLE_S)
    before = count()
    await asyncio.sleep(seconds)
    after = count()
    return Row(
        name=name,
        unit="/s/host",
        ours=(after.sent - before.sent) / seconds,
        peers={_BRACKETS: (after.brackets - before.brackets) / seconds},
        at_most=True,
    )
