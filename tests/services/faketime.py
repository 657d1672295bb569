"""A shifted wall clock for one process, by libfaketime.

Owns the environment that does it. The monotonic clock is left alone: a wall clock that jumps while
the monotonic one does not is the very fault that tests want. A process that was started without the
environment cannot be shifted later; one started with a file can be shifted while it runs.
"""

from __future__ import annotations

from pathlib import Path

from tests.services import install


def environment(offset_s: float = 0.0, *, file: Path | None = None) -> dict[str, str]:
    """Give the variables for a child process whose wall clock is ``offset_s`` ahead.

    With ``file`` the offset is kept there, and `shift` changes it while the process runs.

    Raises:
        Unavailable: libfaketime cannot be had.
    """
    variables = {
        "LD_PRELOAD": str(install.libfaketime()),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        # Otherwise a change of the file is seen up to ten seconds late.
        "FAKETIME_NO_CACHE": "1",
    }
    if file is None:
        variables["FAKETIME"] = _offset(offset_s)
    else:
        shift(file, offset_s)
        variables["FAKETIME_TIMESTAMP_FILE"] = str(file)
    return variables


def shift(file: Path, offset_s: float) -> None:
    """Move the clock of the processes that follow ``file``, atomically."""
    partial = file.with_name(f"{file.name}.partial")
    partial.write_text(f"{_offset(offset_s)}\n")
    # The servers run as another account, whatever our umask is.
    partial.chmod(0o644)
    partial.rename(file)


def _offset(offset_s: float) -> str:
    return f"{offset_s:+.6f}"
