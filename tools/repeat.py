#!/usr/bin/env python3
"""Run a command several times, alone or beside a load, and tell how often it failed.

    python tools/repeat.py [--load] N COMMAND …

``--load`` keeps every core busy meanwhile, at the priority of the command: what passes there does
not depend on a quick machine. Exits with 1 if any run failed; each run goes to its end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def load() -> Iterator[None]:
    """Keep all cores busy."""
    spin = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(spin) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def repeat(count: int, command: list[str]) -> int:
    """Run it so often; the number of runs that failed."""
    failed = 0
    for number in range(1, count + 1):
        begun = time.monotonic()
        code = subprocess.run(command, check=False).returncode
        failed += code != 0
        spent_s = time.monotonic() - begun
        print(f"run {number} of {count}: exit status {code} after {spent_s:.0f} s", flush=True)
    print(f"{failed} of {count} runs failed", flush=True)
    return failed


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Run a command several times.")
    parser.add_argument("--load", action="store_true", help="keep all cores busy meanwhile")
    parser.add_argument("count", type=int)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    if given.load:
        with load():
            return int(repeat(given.count, given.command) > 0)
    return int(repeat(given.count, given.command) > 0)


if __name__ == "__main__":
    sys.exit(main())
