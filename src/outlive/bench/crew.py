"""The worker processes of the benchmark: started once, told what to do, ended with the block.

Owns every process that it starts. URLs go over their stdin: others can see a command line.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from outlive.errors import StoreError

# Ten processes that start at once on two cores need some seconds; who is silent for longer than
# this is stuck.
_ANSWER_S = 60.0

# Who has not ended after its input was closed is killed.
_END_S = 5.0


class Hand:
    """One worker process."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process

    def tell(self, order: Mapping[str, Any]) -> None:
        """Give an order."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")

    async def hear(self) -> dict[str, Any]:
        """The answer to the oldest order that was not answered yet.

        Raises:
            StoreError: The store failed the worker, or the worker has ended or is stuck.
        """
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_ANSWER_S):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise StoreError(f"worker {self.name} did not answer within {_ANSWER_S:g} s") from None
        if not line:
            raise StoreError(f"worker {self.name} ended; its error is printed above")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise StoreError(answer["error"])
        return answer

    async def end(self) -> None:
        """Close its input, which ends it; kill it if it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(_END_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        except asyncio.CancelledError:
            self._process.kill()
            raise


@asynccontextmanager
async def crew(count: int) -> AsyncGenerator[list[Hand], None]:
    """``count`` workers that have started, until the block ends."""
    hands: list[Hand] = []
    try:
        for number in range(1, count + 1):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "outlive.bench.worker", f"worker-{number}"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            hands.append(Hand(f"worker-{number}", process))
        for hand in hands:
            await hand.hear()
        yield hands
    finally:
        await asyncio.gather(*(hand.end() for hand in hands))
