"""The standard streams: always there, and an error of one is no mystery.

A shell may start a command with a stream closed (``>&-``), or with one that takes nothing
(``>/dev/full``). Owns what becomes of both; must never lose what another stream could still say.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TextIO

# What a stream says that takes no more: the disk or the quota is full, the device fails, the
# terminal is gone.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.ENXIO})


def prepare() -> None:
    """Put nothing where a stream is missing, and let a terminal show what it can."""
    _fill()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows its escape; it does not end the program.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _fill() -> None:
    """Open what is missing, in the place where it is missing.

    Otherwise the next file that is opened, a store perhaps, would have the number of a stream, and
    be given to every child as such.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is not None:
            continue
        nothing = os.open(os.devnull, os.O_RDWR)
        if nothing != number:
            os.dup2(nothing, number)
            os.close(nothing)
        setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def takes_no_more(error: BaseException) -> bool:
    """Whether ``error`` is that a stream refused what was written to it.

    An error of a file names the file, and drivers let none of their own out.
    """
    return isinstance(error, OSError) and error.errno in _FULL and error.filename is None


def discard(stream: TextIO) -> None:
    """Let nothing more be written: Python would flush once more while it ends, and fail again."""
    try:
        number = stream.fileno()
    except OSError:
        # It is no stream of the system.
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, number)
    os.close(nothing)
