"""How late the machine itself was, for tests of a promise that names a time.

Owns the ``lateness`` of a test: a thread sleeps and works in small portions, and adds up by how
much each took longer than it should have. A take-over within ten seconds is judged by ten seconds
and that sum: the test holds on a slow machine and beside any load, and still finds a host that
looks a minute later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

# Together a twentieth of one core: work meets a load that a sleeper alone would not feel.
_SLEEP_S, _WORK_S = 0.04, 0.002


class Lateness:
    """By how much a sleeper that works a little was late, from one instant to now."""

    def __init__(self) -> None:
        self._late: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="lateness", daemon=True)
        self._thread.start()

    def since(self, at: float) -> float:
        """Seconds lost since ``at``, by the boot-time clock."""
        return sum(late_s for seen_at, late_s in self._late if seen_at >= at)

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()

    def _measure(self) -> None:
        clock = time.CLOCK_BOOTTIME
        while not self._over.is_set():
            began, worked = time.clock_gettime(clock), time.thread_time()
            time.sleep(_SLEEP_S)
            while time.thread_time() - worked < _WORK_S:
                pass
            ended = time.clock_gettime(clock)
            self._late.append((ended, ended - began - _SLEEP_S - (time.thread_time() - worked)))


@pytest.fixture
def lateness() -> Iterator[Lateness]:
    """The lateness of this machine while the test runs."""
    found = Lateness()
    yield found
    found.close()
