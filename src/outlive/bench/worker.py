"""One worker of the benchmark: ``python -m outlive.bench.worker NAME``, told what to do on stdin.

Lives through all contests, so that no run measures the start of a process. Speaks lines of JSON.
Records every item that it believes to own; judging is not its business.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

from outlive.bench.arena import Arena, Miss, Site
from outlive.bench.strategies import find_strategy, open_arena
from outlive.errors import OutliveError
from outlive.runtime.runtime import Runtime

# After an attempt that was beaten, about as long as a claim takes: whoever tries again at once
# meets the same crowd.
_PAUSE_S = (0.0002, 0.003)


class Worker:
    """Claims in one arena at a time."""

    def __init__(self, name: str, runtime: Runtime) -> None:
        self._name = name
        self._runtime = runtime
        self._arena: Arena | None = None

    async def do(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out one order; the answer goes back to the contest."""
        match order["do"]:
            case "enter":
                return await self._enter(order)
            case "run":
                return await self._run(order["run"], order["start"])
            case _:
                await self.leave()
                return {}

    async def leave(self) -> None:
        """Close the arena, if there is one."""
        arena, self._arena = self._arena, None
        if arena is not None:
            await arena.close()

    async def _enter(self, order: dict[str, Any]) -> dict[str, Any]:
        site = Site(folder=Path(order["folder"]), tag=order["tag"], urls=order["urls"])
        strategy = find_strategy(order["store"], order["strategy"])
        self._arena = open_arena(site, strategy, self._runtime)
        # A run without items: what is opened or prepared at first use is then no part of a claim.
        while await self._arena.claim(order["warm_up"], self._name) is not Miss.EMPTY:
            continue
        return {}

    async def _run(self, run: int, start: float) -> dict[str, Any]:
        arena = self._arena
        assert arena is not None
        clock = self._runtime.clock
        claims: list[tuple[int, float]] = []
        attempts = 0
        await clock.sleep(start - clock.monotonic())
        begun = clock.monotonic()
        while True:
            found = await arena.claim(run, self._name)
            if found is Miss.EMPTY:
                break
            attempts += 1
            if found is Miss.BEATEN:
                await clock.sleep(self._runtime.random.uniform(*_PAUSE_S))
            else:
                now = clock.monotonic()
                claims.append((found, now - begun))
                begun = now
        await arena.tidy(run)
        return {"attempts": attempts, "claims": claims}


async def main(name: str) -> None:
    """Do what stdin says until it ends."""
    # Ctrl-C reaches every process of a terminal; a worker ends with its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    worker = Worker(name, Runtime())
    _say({})
    try:
        while line := await reader.readline():
            try:
                answer = await worker.do(json.loads(line))
            except OutliveError as error:
                answer = {"error": str(error)}
            _say(answer)
    finally:
        await worker.leave()


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
