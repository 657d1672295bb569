"""A competition between real processes of this machine, started at once and told as it happens.

Owns the processes it starts and ends them all, whatever happens. Each is the same command that a
person would start in a terminal.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from outlive.errors import StoreError

# Beyond this a race shows nothing new, and each instance is a process of some thirty megabytes.
RACE_MAX = 16

# A process that has not connected after this long never will; imports take a second or two.
_READY_S = 60.0

# Giving a lock back takes milliseconds. Who has not ended after this long is stopped, or its store
# is away; then the lock ends by its ttl.
_END_S = 5.0

_REGIONS = ("us-east", "eu-west", "ap-south", "sa-east", "af-south", "me-central")

Hear = Callable[[str, Mapping[str, Any]], None]


def line_up(count: int) -> list[tuple[str, str]]:
    """Instance and region of each of ``count`` competitors."""
    names: list[tuple[str, str]] = []
    for number in range(count):
        region = _REGIONS[number % len(_REGIONS)]
        names.append((f"{region}-{number // len(_REGIONS) + 1}", region))
    return names


class Race:
    """One race: ``run`` it once."""

    def __init__(
        self, arguments: Sequence[str], environ: Mapping[str, str], hear: Hear, *, crash: bool
    ) -> None:
        """Compete with ``arguments`` in ``environ``, telling ``hear`` what each instance says.

        With ``crash`` the first winner is killed half-way through its work.
        """
        self._arguments = list(arguments)
        self._environ = {**os.environ, **environ}
        self._hear = hear
        self._crash = crash
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._ready = 0
        self._all_ready = asyncio.Event()
        self.winners: list[dict[str, Any]] = []
        self.refused = 0

    async def run(self, count: int) -> list[int]:
        """Start ``count`` instances, let them go at once, and wait for them all.

        Returns the exit codes of all but the one that was killed.

        Raises:
            StoreError: Not all of them came to the start.
        """
        killed_before = -signal.SIGKILL
        try:
            for instance, region in line_up(count):
                self._processes[instance] = await self._start(instance, region)
            listening = [
                asyncio.ensure_future(self._listen(instance, process))
                for instance, process in self._processes.items()
            ]
            await self._wait_ready(listening)
            for process in self._processes.values():
                _stdin(process).write(b"go\n")
            await asyncio.gather(*listening)
            codes = [await process.wait() for process in self._processes.values()]
            return [code for code in codes if not (self._crash and code == killed_before)]
        finally:
            await self._end()

    async def _start(self, instance: str, region: str) -> asyncio.subprocess.Process:
        command = ("-m", "outlive", "demo", "compete", "--gate", "-o", "jsonl")
        who = ("--instance", instance, "--region", region)
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            *who,
            *self._arguments,
            env=self._environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )

    async def _wait_ready(self, listening: Sequence[asyncio.Future[None]]) -> None:
        ready = asyncio.ensure_future(self._all_ready.wait())
        ended = asyncio.gather(*listening)
        await asyncio.wait({ready, ended}, timeout=_READY_S, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            raise StoreError(
                f"only {self._ready} of {len(self._processes)} instances were ready; the errors of "
                "the others are printed above"
            )

    async def _listen(self, instance: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            event: dict[str, Any] = json.loads(line)
            match event["event"]:
                case "ready":
                    self._ready += 1
                    if self._ready == len(self._processes):
                        self._all_ready.set()
                case "acquired":
                    self.winners.append(event)
                case "refused":
                    self.refused += 1
                case _:
                    pass
            self._hear(instance, event)
            if self._is_half_way(event):
                process.kill()
                self._hear(instance, {"event": "killed", "instance": instance})

    def _is_half_way(self, event: Mapping[str, Any]) -> bool:
        # Only the first winner: the one that takes over must be seen to finish.
        first = self._crash and len(self.winners) == 1
        return first and event["event"] == "item" and event["number"] * 2 >= event["items"]

    async def _end(self) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                # Not SIGKILL: what an instance owns is given back at once.
                process.terminate()
            _stdin(process).close()
        if not self._processes:
            return
        ending = [asyncio.ensure_future(process.wait()) for process in self._processes.values()]
        try:
            await asyncio.wait(ending, timeout=_END_S)
        finally:
            # Also when told to stop a second time: nobody is left behind.
            for process in self._processes.values():
                if process.returncode is None:
                    process.kill()
        await asyncio.wait(ending)


def _stdin(process: asyncio.subprocess.Process) -> asyncio.StreamWriter:
    assert process.stdin is not None
    return process.stdin
