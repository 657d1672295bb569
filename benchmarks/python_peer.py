"""A peer written in Python, kept in a cache outside the clone, and run as a process beside us.

Installs only when asked to; otherwise uses what an earlier run installed.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.charts.peers import INSTALL_LIMIT_S, Absent, cache
from benchmarks.children import ROOT, Child


class PythonPeer:
    """One peer: the folder of its packages, what they need, and the program that drives it."""

    def __init__(self, name: str, needs: tuple[str, ...], program: str) -> None:
        self._name = name
        self._needs = needs
        self._program = program

    def install(self) -> None:
        """Put it into the cache, if it is not there."""
        if self.is_installed():
            return
        pip = [sys.executable, "-m", "pip", "install", "-qq", "--target", str(self._place())]
        subprocess.run(
            [*pip, *self._needs], check=True, timeout=INSTALL_LIMIT_S, stdout=subprocess.DEVNULL
        )

    def is_installed(self) -> bool:
        """Whether it is in the cache."""
        return self._place().is_dir()

    def _place(self) -> Path:
        return cache() / self._name

    @asynccontextmanager
    async def started(self, *arguments: str) -> AsyncGenerator[Child]:
        """Its program, ready to be told something, for as long as the block lasts.

        Raises:
            Absent: It was not installed.
        """
        if not self.is_installed():
            raise Absent("it is not installed; --peers installs it")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", self._program, *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(self._place())},
        )
        child = Child(process)
        try:
            await child.hear()
            yield child
        finally:
            await child.end()
