"""The processes of the demonstration: started, heard, signalled and ended by their id."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REGIONS = ("us-east", "eu-west", "ap-south")
# A worker that says nothing for this long is a bug; the story ends with an error instead of
# hanging.
_PATIENCE_S = 20.0


class Instance:
    """One worker process and what it says."""

    def __init__(self, region: str, process: asyncio.subprocess.Process) -> None:
        self.region = region
        self.process = process

    async def hear(self, *events: str) -> dict[str, Any]:
        """The next message that is one of ``events``; others are passed over."""
        assert self.process.stdout is not None
        async with asyncio.timeout(_PATIENCE_S):
            while line := await self.process.stdout.readline():
                message: dict[str, Any] = json.loads(line)
                if message["event"] in events:
                    return message
        raise RuntimeError(f"the {self.region} instance ended before it reported one of {events}")

    def go(self) -> None:
        """Let it begin, or end."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.process.send_signal(number)

    async def end(self) -> None:
        """End the process, if it still runs."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


async def first_to_say(
    instances: Sequence[Instance], event: str
) -> tuple[Instance, dict[str, Any]]:
    """Who of ``instances`` is the first to say ``event``, and with what."""
    hearing = {asyncio.ensure_future(each.hear(event)): each for each in instances}
    done, pending = await asyncio.wait(hearing, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    task = done.pop()
    return hearing[task], task.result()


def tell(text: str = "") -> None:
    """One line of the story."""
    print(text, flush=True)


async def start(file: Path, region: str, program: str = "worker") -> Instance:
    """Start an instance of one of the demonstration's programs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"outlive.demo.{program}",
        str(file),
        region,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    return Instance(region, process)
