"""Short alternating rounds: ours, then the floor, then the floor, then ours, and so on.

Owns how a ratio is taken on a machine that does other things too. What slows one round slows the
neighbour it is compared with, so that each round yields one ratio and the median of them stands.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

Rate = Callable[[], Awaitable[float]]
"""Runs for one short round and returns how many per second."""

# A machine may pause for a whole round, in which nothing is done; so often in a row it does not.
_TRIES_MAX = 3


@dataclass(frozen=True, slots=True)
class Sample:
    """One round: two rates taken one after the other."""

    ours: float
    floor: float

    @property
    def ratio(self) -> float:
        """Ours for each one of the floor's."""
        return self.ours / self.floor


@dataclass(frozen=True, slots=True)
class Outcome:
    """The round that stands for the run, and the median of each peer."""

    typical: Sample
    peers: Mapping[str, float] = field(default_factory=dict[str, float])


def typical(samples: Sequence[Sample]) -> Sample:
    """The round with the median ratio, so that its two rates divide to exactly that ratio.

    Of an even number of rounds it is the lower of the two in the middle.

    Raises:
        ValueError: There are none.
    """
    if not samples:
        raise ValueError("no rounds were measured")
    return sorted(samples, key=lambda sample: sample.ratio)[(len(samples) - 1) // 2]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of ``values`` that at least ``percent`` of them do not exceed.

    Raises:
        ValueError: There are none.
    """
    if not values:
        raise ValueError("nothing was measured")
    rank = math.ceil(len(values) * percent / 100)
    return sorted(values)[max(0, rank - 1)]


async def _moving(rate: Rate) -> float:
    """The rate of a round in which something was done.

    Raises:
        RuntimeError: Nothing was, however often it was tried.
    """
    for _ in range(_TRIES_MAX):
        if (found := await rate()) > 0:
            return found
    raise RuntimeError(f"nothing was done in {_TRIES_MAX} rounds")


async def alternate(
    ours: Rate, floor: Rate, *, rounds: int, peers: Mapping[str, Rate] | None = None
) -> Outcome:
    """Run both by turns, after one round each that does not count, and peers behind them."""
    peers = peers or {}
    await floor()
    await ours()
    samples: list[Sample] = []
    beside: dict[str, list[float]] = {name: [] for name in peers}
    for number in range(rounds):
        # Whoever goes first meets the caches and the disk as the other left them: take turns.
        if number % 2:
            below = await _moving(floor)
            samples.append(Sample(await _moving(ours), below))
        else:
            above = await _moving(ours)
            samples.append(Sample(above, await _moving(floor)))
        for name, peer in peers.items():
            beside[name].append(await peer())
    return Outcome(typical(samples), {name: median(values) for name, values in beside.items()})
