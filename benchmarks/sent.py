"""What hosts send to a store for one act, and in a second in which nothing happens.

Everything counts that arrives there as a statement, BEGIN, COMMIT and SAVEPOINT too: each is a
round trip, or a part of one. What runs inside a statement (a trigger, a function) is part of it,
and preparing one is not counted.
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

# What connecting and beginning to run cost is over after this.
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
        """Count what hosts that connect inside the block send to the store of ``url``."""
        ...


def counting(backend: Backend, url: str) -> AbstractAsyncContextManager[Callable[[], Count]]:
    """Count what hosts that connect inside the block send to the store of ``url``.

    Raises:
        Absent: Only transactions can be counted there.
    """
    if not backend.sees_statements:
        raise Absent("the log of a server that was named is not read")
    return backend.counting(url)


async def of_act(name: str, count: Callable[[], Count], act: Callable[[], Awaitable[None]]) -> Row:
    """Statements of one act: the median of some, one after the other.

    What a host sends of its own accord meanwhile falls into a few of them: the mean has it.
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
            "the mean, with what was sent beside the acts": fmean(sent),
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
