"""A shifted wall clock for one process and its children.

Owns the environment that does it, and the small library that is preloaded, which is built beside
the file that holds the offset. The monotonic clock is left alone: a wall clock that jumps while the
monotonic one does not is the very fault that tests want. A process that was started without the
environment cannot be shifted later.

libfaketime would do, but for servers: it reads its file anew at each reading of the clock, also in
a signal handler, and now and then a backend of PostgreSQL dies of that, and the server restarts.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.services import Unavailable, install

_SOURCE = Path(__file__).with_suffix(".c")
_BUILD_LIMIT_S = 60


def environment(file: Path, offset_s: float = 0.0) -> dict[str, str]:
    """Give the variables for a child process whose wall clock is ``offset_s`` ahead.

    The offset is kept in ``file``, and `shift` changes it while the process runs.

    Raises:
        Unavailable: There is no compiler, or it fails.
    """
    library = file.with_suffix(".so")
    command = [install.compiler(), "-O2", "-shared", "-fPIC", "-o", library, _SOURCE]
    built = subprocess.run(command, capture_output=True, check=False, timeout=_BUILD_LIMIT_S)
    if built.returncode != 0:
        lines = built.stderr.decode(errors="replace").strip().splitlines()
        raise Unavailable("wall clock", f"did not build: {lines[0] if lines else 'silently'}")
    # The servers run as another account, whatever our umask is.
    library.chmod(0o755)
    shift(file, offset_s)
    return {"LD_PRELOAD": str(library), "WALL_CLOCK_FILE": str(file)}


def shift(file: Path, offset_s: float) -> None:
    """Move the clock of the processes that follow ``file``.

    They have it mapped, so that it is written in place: eight bytes in one piece.
    """
    file.touch(0o644)
    with file.open("r+b", buffering=0) as handle:
        handle.write(round(offset_s * 1e9).to_bytes(8, "little", signed=True))
