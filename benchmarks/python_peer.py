"""A peer written in Python, kept in a cache outside the clone, and run as a process beside us.

Installs only when asked to; otherwise uses what an earlier run installed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.charts.peers import INSTALL_LIMIT_S, cache
from benchmarks.children import ROOT, Child
from benchmarks.leases.backend import Absent


def _installer() -> list[str]:
    """What installs packages here: an environment made by uv has no pip of its own."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "-qq"]
    uv = shutil.which("uv")
    if uv is None:
        raise RuntimeError("--peers needs pip in this environment, or uv on the PATH")
    return [uv, "pip", "install", "-q", "--python", sys.executable]


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
        # Under another name until it is whole: a run that was cut off leaves nothing that counts.
        partial = self._place().with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        subprocess.run(
            [*_installer(), "--target", str(partial), *self._needs],
            check=True,
            timeout=INSTALL_LIMIT_S,
            stdout=subprocess.DEVNULL,
        )
        partial.rename(self._place())

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
