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

XSTATE = "xstate@5"
PYTHON_PEERS = ("transitions", "xstate-statemachine")

# Both come from a package index; a slow one needs its time.
INSTALL_LIMIT_S = 300

Rate = Callable[[str, float], Awaitable[float]]


class Absent(Exception):
    """A peer cannot be had here; the message says why."""


def cache() -> Path:
    """Where peers are kept."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "outlive-benchmarks"


def install() -> None:
    """Put the peers into the cache, as far as they can be had."""
    cache().mkdir(parents=True, exist_ok=True)
    npm = shutil.which("npm")
    if npm is not None and not _xstate().is_file():
        _run([npm, "install", "--silent", "--prefix", str(cache()), XSTATE])
    if not _python().is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(_python())]
        _run([*pip, *PYTHON_PEERS])


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=INSTALL_LIMIT_S, stdout=subprocess.DEVNULL)


def _xstate() -> Path:
    return cache() / "node_modules" / "xstate" / "dist" / "xstate.esm.js"


def _python() -> Path:
    return cache() / "python"


@asynccontextmanager
async def xstate() -> AsyncGenerator[Rate]:
    """XState's ``actor.send``, on Node.

    Raises:
        Absent: There is no Node, or XState was not installed.
    """
    node = shutil.which("node")
    if node is None:
        raise Absent("there is no node on the PATH")
    if not _xstate().is_file():
        raise Absent("it is not installed; --peers installs it")
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
        raise Absent("they are not installed; --peers installs them")
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
