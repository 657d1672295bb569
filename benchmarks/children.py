"""Other processes of a measurement: programs of this package that speak lines of JSON.

Owns starting and ending them. None outlives its block, however the block ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

# The end of a program is noticed immediately. A program that is silent for longer than this hangs,
# however slow the machine is.
ANSWER_LIMIT_S = 900.0

# Shared by all processes of the machine, unlike the plain monotonic clock in some containers.
_CLOCK_ID = getattr(time, "CLOCK_BOOTTIME", None) or time.CLOCK_MONOTONIC


def boot_time() -> float:
    """Seconds of the clock that every process of this machine shares."""
    return time.clock_gettime(_CLOCK_ID)


class Child:
    """One running program."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def tell(self, message: object) -> None:
        """Send one line."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def hear(self, limit_s: float = ANSWER_LIMIT_S) -> Any:
        """The program's next line.

        Raises:
            RuntimeError: The program ended instead; its own error is on the terminal.
            TimeoutError: It said nothing for ``limit_s``.
        """
        assert self._process.stdout is not None
        async with asyncio.timeout(limit_s):
            line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a program of the measurement ended: {await self._process.wait()}")
        return json.loads(line)

    async def end(self) -> None:
        """Close its input, which tells it to end; kill it if it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(10):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def children(module: str, arguments: Sequence[Sequence[str]]) -> AsyncGenerator[list[Child]]:
    """Run ``module`` once for each list of ``arguments``, until the block ends."""
    running: list[Child] = []
    try:
        for words in arguments:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", module, *words),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                cwd=ROOT,
            )
            running.append(Child(process))
        yield running
    finally:
        await asyncio.gather(*(child.end() for child in running))


def say(message: object) -> None:
    """In a program: send one line to whoever started it."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


async def listen() -> Any:
    """In a program: the next line from whoever started it, or ``None`` when it is to end."""
    line = await asyncio.to_thread(sys.stdin.readline)
    return json.loads(line) if line else None
