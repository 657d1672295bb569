"""One coroutine acquires and releases one key, by turns with each peer of ``uncontended``.

A peer's rate beside ``uncontended`` is a median of other moments than ours. Here each round of ours
has one of the peer as its neighbour, so that a busy disk slows both.
"""

from __future__ import annotations

import outlive
from benchmarks.leases import uncontended
from benchmarks.leases.backend import Backend, Effort
from benchmarks.report import Row
from benchmarks.rounds import Rate, alternate

NAME = "versus"


async def measure(backend: Backend, effort: Effort) -> list[Row]:
    """Operations per second of ours and of each peer, which stands where the floor does."""
    url = backend.new_store()
    rows: list[Row] = []
    async with outlive.connect(url, name="bench") as host, backend.floor(url) as floor:
        await uncontended.warm_up(host)
        for name, peer in floor.peers_of(uncontended.NAME, effort.round_s).items():
            rows.append(await _row(backend, effort, host, name, peer))
    return rows


async def _row(backend: Backend, effort: Effort, host: outlive.Host, name: str, peer: Rate) -> Row:
    async def ours() -> float:
        return await uncontended.pairs(host, NAME, effort.round_s)

    outcome = await alternate(ours, peer, rounds=effort.rounds)
    return Row(
        name=f"{backend.name}/{NAME} {name}",
        unit="ops/s",
        ours=outcome.typical.ours,
        floor=outcome.typical.floor,
        bar=backend.bars.get(NAME),
    )
