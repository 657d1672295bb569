"""The keeper renews a thousand leases that all fall due together.

Measured from the first renewal sent to the last acknowledged, as the library's own telemetry sees
them. The floor renews one lease in one transaction at a time, between the bursts.
"""

from __future__ import annotations

import asyncio
import threading
import time

import outlive
from benchmarks.children import ANSWER_LIMIT_S
from benchmarks.leases.backend import Backend, Effort, LeaseCount
from benchmarks.report import Row
from benchmarks.rounds import Sample, typical
from outlive.telemetry.events import Telemetry

NAME = "renewals"

# Long enough that a burst and a round of the floor fit in between two of them; and no lease ends
# because a machine is slow.
_INTERVAL_S = 2.0
_TTL_S = 300.0

# A burst of a thousand takes a fraction of a second; the floor's round must end before the next.
_FLOOR_ROUND_S = 0.5


class Bursts(Telemetry):
    """Hears of each renewal, on the keeper's thread, and says when a burst is complete."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._began: list[float] = []
        self._ended = 0.0
        self._complete: asyncio.Queue[float] = asyncio.Queue()

    def renewed(self, seconds: float) -> None:
        """Book one renewal that took ``seconds`` and was acknowledged just now."""
        now = time.perf_counter()
        with self._lock:
            self._began.append(now - seconds)
            if len(self._began) < self._size:
                return
            took_s = now - min(self._began)
            self._began = []
        self._loop.call_soon_threadsafe(self._complete.put_nowait, took_s)

    async def next(self) -> float:
        """How long the next burst takes, from its first request to its last reply."""
        # One that was over before this call ran beside something else.
        while not self._complete.empty():
            self._complete.get_nowait()
        async with asyncio.timeout(ANSWER_LIMIT_S):
            return await self._complete.get()


async def measure(backend: Backend, effort: Effort) -> list[Row]:
    """Renewals per second within a burst."""
    url = backend.new_store()
    bursts = Bursts(LeaseCount)
    options = outlive.LeaseOptions(ttl=_TTL_S, renew_interval=_INTERVAL_S, renew_jitter=0.0)
    samples: list[Sample] = []
    beside: dict[str, list[float]] = {}
    async with (
        outlive.connect(url, name="bench", leases=options, telemetry=bursts) as host,
        backend.floor(url) as floor,
    ):
        keys = [f"renewed-{number}" for number in range(LeaseCount)]
        leases = await asyncio.gather(*(host.leases.acquire(key) for key in keys))
        # The first burst finds nothing prepared; the first round of the floor neither.
        await bursts.next()
        await floor.renewals(_FLOOR_ROUND_S)
        for _ in range(effort.bursts):
            took_s = await bursts.next()
            below = await floor.renewals(_FLOOR_ROUND_S)
            samples.append(Sample(LeaseCount / took_s, below))
            for name, peer in floor.peers_of(NAME, _FLOOR_ROUND_S / 2).items():
                beside.setdefault(name, []).append(await peer())
        if not all(lease.is_held for lease in leases):
            raise RuntimeError("a lease was lost: this was not a plain renewal")
    stands = typical(samples)
    peers = {name: sorted(rates)[(len(rates) - 1) // 2] for name, rates in beside.items()}
    return [
        Row(
            name=f"{backend.name}/{NAME}-{LeaseCount}",
            unit="ops/s",
            ours=stands.ours,
            floor=stands.floor,
            peers=peers,
        )
    ]
