"""The lanes of one event loop: who has something to do, how much of a turn they get, how many.

Owns the only callback that runs machines. Nothing else may call ``Worker.work``. All of it belongs
to the thread of its loop, but ``post``, which any thread may call.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from outlive.charts.orchestrator.metrics import Counts
from outlive.charts.orchestrator.options import PoolOptions
from outlive.telemetry import PROCESS

if TYPE_CHECKING:
    from outlive.charts.orchestrator.worker import Worker

_log = PROCESS.logger("outlive.charts")

# Events of one lane in one turn. Large enough that going round costs little beside it, small enough
# that the default pool ends its turn within a millisecond.
SLICE_EVENTS = 32

# A turn ends here even if lanes are left: other callbacks of the loop wait meanwhile.
TURN_S = 0.005

# A machine that waits this long in its lane is held up by others: time for more lanes.
GROW_AGE_S = 0.05

# Between two changes of the pool, so that the last one can show what it is worth.
GROW_PAUSE_S = 0.1
SHRINK_PAUSE_S = 1.0

# One send in this many is timed: to time them all would cost a tenth of their speed.
SAMPLE_EVERY = 64
NEVER = 1 << 62


class Lane:
    """A queue of machines. ``used`` is whether anything ran since the pool was looked at last."""

    __slots__ = ("marked_at", "ready", "to_mark", "used")

    def __init__(self) -> None:
        self.ready: deque[Worker] = deque()
        self.used = False
        # The age of the queue is told by one machine at a time: the last when the mark was set.
        self.to_mark = 0
        self.marked_at = 0.0


class Lanes:
    """The machines of one event loop that have something to do."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, options: PoolOptions, *, metrics: bool = True
    ) -> None:
        self.loop = loop
        self.time = loop.time
        self.options = options
        self.counts = Counts()
        self.until_sample = SAMPLE_EVERY if metrics else NEVER
        self._lanes = [Lane() for _ in range(options.pool_size)]
        self._next = itertools.cycle(self._lanes)
        self._position = 0
        self._awake = False
        self._waiters: list[asyncio.Future[None]] = []
        # When this turn is to end, and whether it is past that: for machines whose actions work.
        self.until = 0.0
        self.late = False
        self._changed_at = float("-inf")
        self._look: asyncio.TimerHandle | None = None
        # Callbacks would otherwise inherit, and keep alive, the context of whoever sent first.
        self._context = Context()
        self._inbox: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._rung = False

    # -- machines -------------------------------------------------------------------------------

    def join(self, worker: Worker) -> None:
        """Let ``worker`` have a turn. It is in no lane now."""
        next(self._next).ready.append(worker)
        if not self._awake:
            self._awake = True
            self.loop.call_soon(self._turn, context=self._context)

    def _turn(self) -> None:
        try:
            self._visit()
        finally:
            # Whatever broke out of a machine, the others must not wait for ever.
            if any(lane.ready for lane in self._lanes):
                self.loop.call_soon(self._turn, context=self._context)
            else:
                self._fall_asleep()

    def _fall_asleep(self) -> None:
        self._awake = False
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def _visit(self) -> None:
        """Let each lane handle its slice, as far as the time of a turn allows."""
        now = self.time()
        self.until = until = now + TURN_S
        self.late = False
        lanes = self._lanes
        count = len(lanes)
        oldest = 0.0
        handled = 0
        position = self._position
        for number in range(position, position + count):
            lane = lanes[number % count]
            ready = lane.ready
            if not ready:
                continue
            if now >= until:
                break
            if lane.to_mark <= 0:
                lane.to_mark = len(ready)
                lane.marked_at = now
            left = SLICE_EVENTS
            visits = 0
            while ready and left > 0 and not self.late:
                worker = ready.popleft()
                try:
                    left -= worker.work(left)
                except BaseException as error:
                    worker.recover(error)
                    raise
                visits += 1
            handled += SLICE_EVENTS - left
            lane.used = True
            lane.to_mark -= visits
            now = self.time()
            # As long as the marked machine has not had its turn, it has waited at least so long.
            oldest = max(oldest, now - lane.marked_at)
            self._position = (number + 1) % count
        self._note(handled, oldest, now)

    async def idle(self) -> None:
        """Wait until no machine has anything to do. One whose action awaits has nothing to do."""
        if self._awake:
            waiter: asyncio.Future[None] = self.loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def _note(self, handled: int, oldest_s: float, now: float) -> None:
        counts = self.counts
        counts.handled += handled
        counts.queue_age_s = oldest_s
        options = self.options
        if (
            oldest_s > GROW_AGE_S
            and options.allow_growth
            and len(self._lanes) < options.max_pool_size
            and now - self._changed_at >= GROW_PAUSE_S
        ):
            wanted = max(len(self._lanes) + 1, int(len(self._lanes) * options.growth_factor))
            self._resize(min(wanted, options.max_pool_size))
            counts.grown += 1

    # -- the pool -------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """How many lanes there are."""
        return len(self._lanes)

    @property
    def waiting(self) -> int:
        """How many machines are in a lane."""
        return sum(len(lane.ready) for lane in self._lanes)

    @property
    def age_s(self) -> float:
        """How long the machine that is timed now has waited for its turn; 0 when nobody waits."""
        now = self.time()
        ages = [now - lane.marked_at for lane in self._lanes if lane.ready and lane.to_mark > 0]
        return max(ages, default=0.0)

    def _resize(self, size: int) -> None:
        """Have ``size`` lanes, and deal out anew who waits. The events stay in their mailboxes."""
        waiting = [worker for lane in self._lanes for worker in lane.ready]
        self._lanes = [Lane() for _ in range(size)]
        self._next = itertools.cycle(self._lanes)
        self._position = 0
        for worker in waiting:
            next(self._next).ready.append(worker)
        self._changed_at = self.time()
        if self._look is None and size > self.options.pool_size:
            self._look = self.loop.call_later(
                SHRINK_PAUSE_S, self._consider_shrinking, context=self._context
            )

    def _consider_shrinking(self) -> None:
        self._look = None
        size = len(self._lanes)
        used = sum(lane.used or bool(lane.ready) for lane in self._lanes)
        for lane in self._lanes:
            lane.used = False
        options = self.options
        if used < size * options.shrink_threshold:
            size = max(options.pool_size, int(size / options.growth_factor))
            self._resize(size)
            self.counts.shrunk += 1
        elif size > options.pool_size:
            self._look = self.loop.call_later(
                SHRINK_PAUSE_S, self._consider_shrinking, context=self._context
            )

    # -- other threads --------------------------------------------------------------------------

    def post(self, function: Callable[..., Any], *args: Any) -> None:
        """Call ``function`` in the thread of this loop, soon. In order for one thread that posts.

        Raises:
            RuntimeError: The loop is closed.
        """
        if self.loop.is_closed():
            raise RuntimeError("the event loop of these machines is closed")
        self._inbox.append((function, args))
        # After the note, or the loop could look into the inbox before it is there.
        if not self._rung:
            self._rung = True
            self.loop.call_soon_threadsafe(self._empty_inbox, context=Context())

    def _empty_inbox(self) -> None:
        # Before the first look, or a note that comes during the last one would not ring.
        self._rung = False
        inbox = self._inbox
        while inbox:
            function, args = inbox.popleft()
            try:
                function(*args)
            except Exception:  # noqa: BLE001 - the notes behind it must still be read
                _log.exception("a call from another thread failed")
