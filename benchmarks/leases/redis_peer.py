"""A Redis lock as a peer, where a server and its client are installed; otherwise nothing at all.

The server is private and flushes at every write, the only setting that is as durable as the rest.
Its lock has a random value in place of a token that grows, and no history.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

Peers = dict[str, Callable[[float], Awaitable[float]]]

NAME = "redis-py Lock (flushed at every write, no growing token)"
_START_LIMIT_S = 120.0


@asynccontextmanager
async def redis_peers() -> AsyncGenerator[Peers]:
    """The peer by its name; empty where Redis cannot be had."""
    program = shutil.which("redis-server")
    if program is None or importlib.util.find_spec("redis") is None:
        yield {}
        return
    from redis.asyncio import Redis

    with tempfile.TemporaryDirectory(prefix="outlive-bench-") as directory:
        path = Path(directory) / "socket"
        server = _start(program, directory, path)
        client = Redis(unix_socket_path=str(path))
        try:
            await _wait_ready(client, server)
            yield {NAME: lambda seconds: _pairs(client, seconds)}
        finally:
            await client.aclose()
            server.terminate()
            server.wait()


def _start(program: str, directory: str, path: Path) -> subprocess.Popen[bytes]:
    options = {
        "port": "0",
        "unixsocket": str(path),
        "dir": directory,
        "save": "",
        "appendonly": "yes",
        "appendfsync": "always",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    return subprocess.Popen([program, *words], stdout=subprocess.DEVNULL)


async def _wait_ready(client: Any, server: subprocess.Popen[bytes]) -> None:
    from redis.exceptions import ConnectionError as NotReady

    until = time.monotonic() + _START_LIMIT_S
    while True:
        try:
            await client.ping()
        except NotReady:
            if server.poll() is not None or time.monotonic() > until:
                raise
        else:
            return


async def _pairs(client: Any, seconds: float) -> float:
    started = now = time.perf_counter()
    done = 0
    while now < started + seconds:
        lock = client.lock("uncontended", timeout=30)
        if not await lock.acquire(blocking=False):
            raise RuntimeError("the peer was refused a lock that nobody else wants")
        await lock.release()
        done += 2
        now = time.perf_counter()
    return done / (now - started)
