"""Others beside us: XState on Node, and Python libraries, kept in a cache outside the clone.

Installs only when asked to; otherwise uses what an earlier run installed. What is not there is
said, never silently left out.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.charts.shapes import BURST, SHAPES
from benchmarks.children import ROOT, Child
from benchmarks.leases.backend import Absent

XSTATE = "xstate@5"
PYTHON_PEERS = ("transitions", "xstate-statemachine")

# Both come from a package index; a slow one needs its time.
INSTALL_LIMIT_S = 300

Rate = Callable[[str, float], Awaitable[float]]


def cache() -> Path:
    """Where peers are kept."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "outlive-benchmarks"


def install_xstate() -> None:
    """Put XState into the cache, where there is an npm to do it."""
    cache().mkdir(parents=True, exist_ok=True)
    npm = shutil.which("npm")
    if npm is not None and not _xstate().is_file():
        _run([npm, "install", "--silent", "--prefix", str(cache()), XSTATE])


def install_python() -> None:
    """Put the Python libraries into the cache."""
    if not _python().is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(_python())]
        _run([*pip, *PYTHON_PEERS])


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=INSTALL_LIMIT_S, stdout=subprocess.DEVNULL)


def _xstate() -> Path:
    return cache() / "node_modules" / "xstate" / "dist" / "xstate.esm.js"


def _python() -> Path:
    return cache() / "python"


def missing() -> list[str]:
    """Which peers are not there, and why."""
    found: list[str] = []
    if shutil.which("node") is None:
        found.append("XState: there is no node on the PATH")
    elif not _xstate().is_file():
        found.append("XState: it is not installed; --peers installs it")
    if not _python().is_dir():
        found.append("Python peers: they are not installed; --peers installs them")
    return found


@asynccontextmanager
async def xstate() -> AsyncGenerator[Rate]:
    """XState's ``actor.send``, on Node.

    Raises:
        Absent: There is no Node, or XState was not installed.
    """
    node = shutil.which("node")
    if node is None or not _xstate().is_file():
        raise Absent("XState is not there")
    program = Path(__file__).parent / "programs" / "xstate.mjs"
    documents = json.dumps(SHAPES)
    async with _speaking([node, str(program), str(_xstate()), documents, str(BURST)]) as rate:
        yield rate


@asynccontextmanager
async def python_peers() -> AsyncGenerator[Rate]:
    """``transitions`` for the flat chart, ``xstate-statemachine`` for the parallel one.

    Raises:
        Absent: They were not installed.
    """
    if not _python().is_dir():
        raise Absent("they are not there")
    command = [sys.executable, "-m", "benchmarks.charts.programs.python_peers"]
    async with _speaking(command, PYTHONPATH=str(_python())) as rate:
        yield rate


@asynccontextmanager
async def _speaking(command: list[str], **environ: str) -> AsyncGenerator[Rate]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **environ},
    )
    child = Child(process)

    async def rate(shape: str, seconds: float) -> float:
        child.tell([shape, seconds])
        return await child.hear()

    try:
        yield rate
    finally:
        await child.end()
