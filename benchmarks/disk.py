"""How long the disk takes to keep a promise: the number behind every durable number.

A run on a disk that flushes in microseconds measures the processor; on one that takes
milliseconds it measures the disk, and ratios to a floor that waits for the same disk near one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import median

_PROBES = 40
_PAGE = b"\0" * 4096

# Darwin has no fdatasync; its fsync is as near as Python gets.
_flush = getattr(os, "fdatasync", os.fsync)


def flush_ms(directory: Path) -> float:
    """The median time to append one page to a file in ``directory`` and flush it."""
    path = directory / "flush-probe"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        times: list[float] = []
        for number in range(_PROBES):
            started = time.perf_counter()
            os.pwrite(descriptor, _PAGE, number * len(_PAGE))
            _flush(descriptor)
            times.append(time.perf_counter() - started)
    finally:
        os.close(descriptor)
        path.unlink()
    return median(times) * 1000
