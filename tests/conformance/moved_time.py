"""Servers whose clock is moved where a suite would wait.

Owns the clock of such a server, and the lab that moves it. The server judges each expiry by its own
clock, as ever, and cannot tell that no time has passed. Where there is no compiler to build what
moves it, the clock is the machine's and the lab waits. The same suites on the machine's clock are a
long form, and the processes of ``tests/process`` live by that one anyway.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from outlive.clock import SystemClock
from outlive.ports.driver import DriverFactory
from outlive.testing.conformance import Lab
from outlive.testing.conformance.lab import settle
from tests.services import Unavailable, wall_clock


class ServerTime(SystemClock):
    """The clock of a server, and of its clients: the machine's, and all that was skipped."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._skipped_s = 0.0
        self.environment: dict[str, str] = {}
        """What a server must be started with to follow this clock."""
        try:
            self.environment = wall_clock.environment(file)
        except Unavailable:
            self.is_movable = False
        else:
            self.is_movable = True

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self._skipped_s)

    def monotonic(self) -> float:
        return super().monotonic() + self._skipped_s

    def skip(self, seconds: float) -> None:
        """Let ``seconds`` pass at once."""
        self._skipped_s += seconds
        wall_clock.shift(self._file, self._skipped_s)


@contextmanager
def server_time() -> Iterator[ServerTime]:
    """A clock that servers may follow until the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="outlive-time-"))
    # The servers run as another account.
    folder.chmod(0o755)
    try:
        yield ServerTime(folder / "offset")
    finally:
        shutil.rmtree(folder)


class MovedLab(Lab):
    """A lab on a server that follows ``time``."""

    def __init__(self, factory: DriverFactory, url: str, time: ServerTime, **more: Any) -> None:
        super().__init__(factory, url, time, **more)
        self._time = time

    async def advance(self, seconds: float) -> None:
        if not self._time.is_movable:
            await super().advance(seconds)
            return
        self._time.skip(seconds)
        await settle()
