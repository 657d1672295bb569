"""How another process of the same user looks at an orchestrator: a socket that only speaks.

Owns the socket and its place. Whoever connects is given one JSON document and hung up on; nothing
is ever read, so that nobody can ask for anything else. The folder and the socket belong to the user
alone (0700, 0600).
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlive.errors import ConfigurationError
from outlive.process import current

if TYPE_CHECKING:
    from outlive.charts.orchestrator.orchestrator import Orchestrator

# A screen shows fewer; a document of all groups of a busy process would be megabytes.
GROUPS_SHOWN = 50

SUFFIX = ".charts.sock"


def folder() -> Path:
    """Where the sockets of this user's processes are; made when it is first asked for.

    Raises:
        ConfigurationError: Somebody else owns it, or may look into it.
    """
    path = Path(tempfile.gettempdir()) / f"outlive-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigurationError(
            f"{path} must be a directory of this user with mode 0700: remove it or fix its mode"
        )
    return path


def document(orchestrator: Orchestrator) -> dict[str, Any]:
    """What an onlooker is told: numbers, health, and the largest groups."""
    groups = sorted(orchestrator.groups, key=len, reverse=True)
    health = orchestrator.health()
    return {
        "pid": orchestrator.pid,
        "metrics": orchestrator.metrics().as_json(),
        "health": {"level": health.level, "reasons": health.reasons},
        "groups": [
            {
                "id": group.id,
                "name": group.name,
                "machines": len(group),
                "created_at": group.created_at.isoformat(),
            }
            for group in groups[:GROUPS_SHOWN]
        ],
        "groups_left_out": max(0, len(groups) - GROUPS_SHOWN),
    }


@asynccontextmanager
async def published(orchestrator: Orchestrator, path: Path | None) -> AsyncGenerator[Path]:
    """Let processes of this user look at ``orchestrator`` while the block runs."""
    place = folder() / f"{current.pid}{SUFFIX}" if path is None else path

    async def speak(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # An onlooker who goes away in the middle is no error of this process.
        with suppress(OSError):
            writer.write(json.dumps(document(orchestrator)).encode())
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(speak, sock=_bound(place))
    try:
        yield place
    finally:
        server.close()
        await server.wait_closed()
        place.unlink(missing_ok=True)


def _bound(place: Path) -> socket.socket:
    """A socket at ``place`` that is closed to others before anybody can connect."""
    bound = socket.socket(socket.AF_UNIX)
    try:
        # A process that died leaves its socket behind, and its number may be ours now.
        if place.is_socket():
            place.unlink()
        bound.bind(str(place))
        place.chmod(0o600)
    except OSError as error:
        bound.close()
        raise ConfigurationError(f"cannot listen at {place}: {error}") from error
    return bound
