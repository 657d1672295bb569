"""The one injected ``Runtime``: time, randomness, ids, tasks and the keeper's thread.

No other module reads a clock, draws a random number or starts a thread by itself, so a simulation
replaces this object and owns the world.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Protocol

from outlive.clock import Clock, SystemClock
from outlive.process import current
from outlive.runtime.running_loop import stack_of

# The keeper looks around at least this often even when nothing is due: loop timers stop while a
# machine is suspended, and this bounds how long a resumed process believes in an old deadline.
TICK_S = 1.0

# 64 random bits name a host; with a billion hosts a collision has odds of one in forty.
# Owners add a counter to it, so one host never repeats itself.
_ID_BITS = 64

# 80 random bits beside the millisecond: a billion ids in one millisecond are still told apart.
_ORDERED_BYTES = 10
_MILLISECONDS_MASK = (1 << 48) - 1


class Background(Protocol):
    """A main function running beside the caller's event loop."""

    async def join(self) -> None:
        """Wait until it has ended; raise what it raised."""
        ...


class Runtime:
    """The real world: the machine's clocks, the system's randomness, a thread for the keeper."""

    tick_s: float = TICK_S

    # How many times longer than usual to wait for a ring before looking without one: more than
    # once only where no ring can be lost.
    patience: float = 1.0

    def __init__(self, *, clock: Clock | None = None, rng: random.Random | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        # Jitter comes from the cheap generator; ids from the system's, which a fork cannot repeat.
        self.random: random.Random = rng or random.Random()  # noqa: S311
        self._ids: random.Random = rng or random.SystemRandom()

    def new_id(self) -> str:
        """A fresh id, never used before by any process."""
        return f"{self._ids.getrandbits(_ID_BITS):016x}"

    def ordered_ids(self, count: int) -> list[str]:
        """Fresh ids that sort by the millisecond in which they were made, never used before.

        Rows that are written together then lie together in an index.
        """
        made = self._millisecond()
        # All of the chance at once: a call into the system for each would be felt.
        drawn = self._ids.randbytes(_ORDERED_BYTES * count).hex()
        digits = 2 * _ORDERED_BYTES
        return [made + drawn[at : at + digits] for at in range(0, digits * count, digits)]

    def ordered_id(self) -> str:
        """One of them."""
        return self._millisecond() + self._ids.randbytes(_ORDERED_BYTES).hex()

    def _millisecond(self) -> str:
        return f"{int(self.clock.now().timestamp() * 1000) & _MILLISECONDS_MASK:012x}"

    def start_pool(self, size: int, *, name: str) -> Executor:
        """Threads for code that blocks, ``size`` at most; the caller shuts it down."""
        return ThreadPoolExecutor(size, thread_name_prefix=name)

    def alive(self) -> bool:
        """Whether this process lives; only a simulation says no, of one that it has crashed."""
        return True

    def pid(self) -> int:
        """The process: a handle carried over a fork is not ours any more."""
        return current.pid

    def thread_id(self) -> int:
        """The thread that asks, for ``stack_of``."""
        return threading.get_ident()

    def stack_of(self, thread_id: int) -> str:
        """Where a thread of this process is right now, as text."""
        return stack_of(thread_id)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Start a task on the running loop. The caller keeps it and awaits its end."""
        return asyncio.get_running_loop().create_task(coroutine, name=name)

    def start_keeper(self, main: Callable[[], Coroutine[Any, Any, None]]) -> Background:
        """Run ``main`` on an event loop of its own, in a thread of its own.

        The thread is a daemon: a process that ends without closing is not held up by it, and its
        leases end by their ttl.
        """
        return _KeeperThread(main)


def caller_line(depth: int) -> tuple[str, int]:
    """File and line of the frame ``depth`` levels up; cheap enough for every acquire."""
    frame = inspect.currentframe()
    while frame is not None and depth > 0:
        frame, depth = frame.f_back, depth - 1
    return ("(unknown)", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


class _KeeperThread:
    def __init__(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._main = main
        self._done: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="outlive-keeper", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - whatever ended the keeper reaches join()
            self._done.set_exception(error)
        else:
            self._done.set_result(None)

    async def join(self) -> None:
        await asyncio.wrap_future(self._done)
