"""Several processes want the same thing: one key, or only the write lock of the file.

Reports how the least served of them fared against a fair share, and the longest anybody waited for
one operation. Where they share no key, the sqlite3 module with its own busy handler stands beside.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.children import boot_time, children
from benchmarks.leases.backend import Backend, Effort
from benchmarks.report import Row

NAME = "contention"
_PROGRAM = "benchmarks.leases.programs.contender"
_SIZES = (2, 10)

# Everybody is told the instant at which counting begins; it must reach them all before.
_NOTICE_S = 0.3

# They contend for so long before counting begins, so that nobody's first statement counts.
_WARM_UP_S = 0.5

# A contest in which no process was served is made twice as long, so often.
_DOUBLINGS_MAX = 4


@dataclass(frozen=True, slots=True)
class Fairness:
    """What came of one contest.

    Attributes:
        share: Operations of the least served, as a part of an equal share.
        evenness: Operations of the least served, as a part of those of the most served.
        wait_ms: The longest wait for one operation, of anybody.
        rate: Operations per second of all together.
    """

    share: float
    evenness: float
    wait_ms: float
    rate: float


def judge(served: Sequence[int], waits_s: Sequence[float], seconds: float) -> Fairness:
    """The fairness of a contest in which each process was ``served`` so many operations.

    Raises:
        ValueError: Nobody was served at all.
    """
    total = sum(served)
    if total == 0:
        raise ValueError("nobody was served: there is no share to speak of")
    share = min(served) / (total / len(served))
    return Fairness(share, min(served) / max(served), max(waits_s) * 1000, total / seconds)


async def contest(url: str, how: str, size: int, seconds: float) -> Fairness:
    """Let ``size`` processes contend for ``seconds``, doubled until one of them is served."""
    for doubled in range(_DOUBLINGS_MAX):
        served, waits_s = await _round(url, how, size, seconds * 2**doubled)
        if any(served):
            return judge(served, waits_s, seconds * 2**doubled)
    raise RuntimeError(f"none of {size} processes was served in {seconds * 2**doubled:g} s")


async def _round(url: str, how: str, size: int, seconds: float) -> tuple[list[int], list[float]]:
    """How many operations each process was served, and its longest wait."""
    words = [[how, url, str(number)] for number in range(size)]
    async with children(_PROGRAM, words) as contenders:
        for contender in contenders:
            await contender.hear()
        begin = boot_time() + _NOTICE_S + _WARM_UP_S
        for contender in contenders:
            contender.tell({"begin": begin, "end": begin + seconds})
        answers: list[Any] = [await contender.hear() for contender in contenders]
    return [answer["served"] for answer in answers], [answer["wait_s"] for answer in answers]


async def _measure(size: int, how: str, backend: Backend, effort: Effort) -> list[Row]:
    """Share and wait of so many processes, on one key or on a key each."""
    result = await contest(backend.new_store(), how, size, effort.contention_s)
    raw = None
    if how == "own-key":
        raw = await contest(backend.new_store(), "raw", size, effort.contention_s)
    return _rows(backend, f"{size}-{how}", size, result, raw)


async def _measure_one_key(backend: Backend, effort: Effort) -> list[Row]:
    """How even the most numerous contest on one key is, for backends without a lock to wait for."""
    size = _SIZES[-1]
    result = await contest(backend.new_store(), "one-key", size, effort.contention_s)
    even = Row(
        name=f"{backend.name}/{NAME}-{size}-one-key-evenness",
        unit="least/most",
        ours=result.evenness,
        bar=backend.bars.get(f"share-{size}"),
    )
    return [even, *_rows(backend, f"{size}-one-key", size, result, None)]


Measure = Callable[[Backend, Effort], Awaitable[list[Row]]]

ALL: dict[str, Measure] = {
    f"{NAME}-{size}-{how}": partial(_measure, size, how)
    for size in _SIZES
    for how in ("one-key", "own-key")
}
ONE_KEY: dict[str, Measure] = {f"{NAME}-{_SIZES[-1]}-one-key": _measure_one_key}


def _rows(
    backend: Backend, variant: str, size: int, ours: Fairness, raw: Fairness | None
) -> list[Row]:
    peer = "sqlite3 with its own busy handler"
    name = f"{backend.name}/{NAME}-{variant}"
    return [
        Row(
            name=f"{name}-share",
            unit="of fair",
            ours=ours.share,
            peers={} if raw is None else {peer: raw.share},
            bar=backend.bars.get(f"share-{size}"),
        ),
        Row(
            name=f"{name}-wait",
            unit="ms",
            ours=ours.wait_ms,
            peers={} if raw is None else {peer: raw.wait_ms},
            bar=backend.bars.get("wait"),
            at_most=True,
        ),
        Row(
            name=f"{name}-rate",
            unit="ops/s",
            ours=ours.rate,
            peers={} if raw is None else {peer: raw.rate},
        ),
    ]
