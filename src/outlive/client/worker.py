"""A worker over HTTP: takes items, runs a function on each, and never outstays a claim.

Owns the slots, the heartbeat and the end. When the server is away it goes on with what it has until
the claims' own deadline, then lets go; it comes back by itself. When told to stop it takes nothing
more, gives what runs a while, and returns the rest to the queue.

All its claims hang on one session, which lives as long as the worker does: a claim that nobody
works on any more must be given back, because no ttl would end it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Coroutine, Generator, Sequence
from functools import partial
from typing import Any

import msgspec

from outlive.client.calling import Calls, Order
from outlive.client.client import Client, Item, queues_of
from outlive.errors import ClaimLost, OutliveError, StoreError, UsageError
from outlive.model.options import Duration, seconds
from outlive.model.retry import Later
from outlive.runtime.tasks import is_current
from outlive.serialization import describe, name_of, printable
from outlive.telemetry import plural

_log = logging.getLogger("outlive.client")

Work = Callable[[Item], Any]
"""What is done with an item, async or in a thread; its result is kept, what it raises fails it."""

_Settle = Callable[[], Coroutine[Any, Any, None]]

# One process that works on more at once is better served by a second process.
_CONCURRENCY_MAX = 10_000

# Longest pause while the server is away, and the first one.
_OUTAGE_S = (0.2, 10.0)

# The server keeps no more of an error than this, with every failed attempt.
_ERROR_CHARS_MAX = 2000

# The longest name of a class that a server takes.
_TYPE_CHARS_MAX = 128

# How long one request waits for work: most of what a server allows.
_WAIT_S = 25.0

# A claim is let go so much before its deadline, a tenth of a short ttl at most: cancelling takes
# time too.
_MARGIN_S = 0.5

# The part of the ttl that must be left when an item is begun, so that it lasts until a heartbeat.
_FRESH = 2 / 3

# How soon a heartbeat that failed is tried again.
_OUTAGE_BEAT_S = 1.0

# For the last request of a worker that stops; the claim's ttl does what it could not.
_LAST_WORD_S = 5.0

_UNRETURNED = "an item may be claimed and not released: %s; its claim expires by the ttl"

# A task that was cancelled at the end gets this long to clean up.
_CANCEL_PATIENCE_S = 5.0


class _Run:
    """One item being worked on."""

    __slots__ = ("gone", "item", "left", "order", "over", "task")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.task: asyncio.Task[None] | None = None
        # What this worker told it, and whether that was because its claim is gone.
        self.order = Order()
        self.gone = False
        # Whether the user's function has ended: what became of it is being sent.
        self.over = False
        # Whether it was given back while the function went on: what that returns is dropped.
        self.left = False

    def stop(self, *, dropped: bool = True) -> None:
        """Cancel what works on it; a thread is told, and what it returns is ``dropped`` or not."""
        self.order.given = True
        self.order.dropped = self.order.dropped or dropped
        if self.task is not None and not self.order.in_thread:
            self.task.cancel()


class HttpWorker:
    """Runs ``work`` on items of ``queues``, ``concurrency`` at a time, until it is stopped.

    The client is this worker's alone: what it claims and the worker does not know goes back.
    A claim that is lost or to be cancelled cancels the task that works on it. ``grace`` is how long
    tasks may go on after a stop before they are cancelled and their items released; of one that
    does not end then either, too, and what it returns is dropped. Whatever else ``work`` raises is
    a failure, ``CancelledError``, ``SystemExit`` and ``KeyboardInterrupt`` included.

    A plain function runs in a thread, and the claim is kept beside it. It cannot be cancelled: it
    sees ``cancelled()``, keeps its slot until it ends, and what it returns after ``grace`` is
    dropped.

    Raises:
        UsageError: ``work`` is no function, no queue is named, ``concurrency`` is no whole number
            from 1, or ``grace`` no duration.
    """

    def __init__(
        self,
        client: Client,
        queues: str | Sequence[str],
        work: Work,
        *,
        concurrency: int = 1,
        grace: Duration = 10.0,
    ) -> None:
        if type(concurrency) is not int or not 1 <= concurrency <= _CONCURRENCY_MAX:
            raise UsageError(
                f"concurrency must be a whole number from 1 to {_CONCURRENCY_MAX:,}, "
                f"not {concurrency!r}"
            )
        self._client = client
        self._clock = client.runtime.clock
        self._queues = queues_of(queues)
        self._concurrency = concurrency
        self._grace_s = seconds(grace, "grace")
        self._calls = Calls(work, client.runtime, most=concurrency)
        self._running: dict[str, _Run] = {}
        self._deadline = 0.0
        # Who runs the worker.
        self._main: asyncio.Task[Any] | None = None
        self._returning: set[asyncio.Task[None]] = set()
        # The request that has had no answer yet: what it may have brought is asked for again.
        self._request: str | None = None
        # How many requests had gone out before it.
        self._sent = 0
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        self.outage = False
        self.done = 0

    def stop(self) -> None:
        """Take nothing more and come to an end. Safe in a signal handler of the loop."""
        self._stop.set()

    async def run(self) -> None:
        """Work until ``stop``, SIGTERM or SIGINT; then finish or give back what is held.

        Raises:
            ConfigurationError, UsageError: The server will never take these requests: the token,
                its scope or the arguments are wrong.
        """
        loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        with _signals(loop, self.stop):
            beating = loop.create_task(self._beat(), name="outlive-client-heartbeat")
            try:
                await self._take()
            finally:
                await self._drain()
                if self._returning:
                    await asyncio.wait(self._returning, timeout=_LAST_WORD_S)
                for task in (beating, *self._returning):
                    task.cancel()
                await asyncio.wait([beating, *self._returning])
                self._calls.close()

    async def _take(self) -> None:
        """Fill the slots until told to stop."""
        pause_s = _OUTAGE_S[0]
        while not self._stop.is_set():
            if len(self._running) >= self._concurrency:
                await self._until_changed()
                continue
            try:
                item = await self._next()
            except ClaimLost:
                self._request = None
                self._lose_all("the session of this worker has expired")
                continue
            except StoreError as error:
                self._away(error)
                await self._pause(pause_s)
                pause_s = min(_OUTAGE_S[1], pause_s * 2)
                continue
            self._request = None
            pause_s = _OUTAGE_S[0]
            self.outage = False
            if item is not None:
                await self._begin(item)

    async def _next(self) -> Item | None:
        """The next item, or ``None``; a stop ends the wait, and gives back what it brings."""
        request = self._request
        if request is None:
            request = self._request = self._client.runtime.new_id()
            self._sent = self._client.sent
        asking = asyncio.create_task(
            self._client.next(self._queues, wait=_WAIT_S, request_id=request),
            name="outlive-client-next",
        )
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([asking, stopping], return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            await self._drop(asking, request)
            raise
        finally:
            stopping.cancel()
        if asking.done():
            return asking.result()
        await self._drop(asking, request)
        return None

    async def _drop(self, asking: asyncio.Task[Item | None], request: str) -> None:
        """End a request that nobody waits for, and give back what it brought or may bring."""
        if not asking.done():
            asking.cancel()
            await asyncio.wait([asking])
            # Where nothing ever went out, nothing can have been brought.
            if self._client.sent > self._sent:
                await self._give_back(request)
        elif not asking.cancelled() and asking.exception() is None:
            item = asking.result()
            if item is not None:
                self._return(item)

    async def _give_back(self, request: str) -> None:
        """Release what a request that was cut off may have brought, or what it brings now."""
        try:
            async with asyncio.timeout(_LAST_WORD_S):
                item = await self._client.next(self._queues, request_id=request)
                if item is not None:
                    await self._client.release(item)
        except TimeoutError:
            _log.warning(_UNRETURNED, f"no answer within {_LAST_WORD_S:g} s")
        except OutliveError as error:
            _log.warning(_UNRETURNED, error)

    async def _begin(self, item: Item) -> None:
        """Start the task of an item, if it is certain to be ours until the next heartbeat."""
        if item.deadline - self._clock.monotonic() < self._client.ttl * _FRESH:
            # It came at the end of a long wait, or slowly: ask before anything is done with it.
            try:
                deadline, states = await self._client.heartbeat([item])
            except StoreError as error:
                self._away(error)
                self._return(item)
                return
            except BaseException:
                # The worker is cancelled or refused: nobody else knows of the item.
                self._return(item)
                raise
            if states[item.id] != "ok":
                self._return(item)
                return
        else:
            deadline = item.deadline
        self._deadline = max(self._deadline, deadline)
        run = self._running[item.id] = _Run(item)
        run.task = asyncio.create_task(self._handle(run), name=f"outlive-item-{item.id}")
        self._changed.set()

    async def _handle(self, run: _Run) -> None:
        item = run.item
        try:
            settle = await self._worked(run)
            run.over = True
            if run.left:
                _log.info("item %s ended after its release; its result was dropped", item.id)
            elif settle is None:
                self._return(item)
            else:
                await _surely(settle())
        except ClaimLost:
            _log.warning(
                "the claim of item %s was lost before its end; another worker may run it", item.id
            )
        except OutliveError as error:
            _log.warning("could not settle item %s: %s", item.id, error)
            self._return(item)
        finally:
            if self._running.get(item.id) is run:
                del self._running[item.id]
            self._changed.set()

    async def _worked(self, run: _Run) -> _Settle | None:
        """Run the user's function, and say what is to be sent; ``None`` of a claim that is gone."""
        item, task = run.item, asyncio.current_task()
        try:
            result = await self._calls.call(item, run.order, partial(self._check, run))
        except asyncio.CancelledError as error:
            if run.gone:
                return None
            if run.order.given or self._ends():
                # Stopped before it was done: somebody else begins it again at once.
                return partial(self._client.release, item)
            # To give back what cancels itself would be to begin it again without end.
            return partial(self._fail, item, error)
        except Later as later:
            return partial(self._client.release, item, delay=later.delay_s)
        except GeneratorExit as error:
            if not is_current(task):
                # Nobody raised it: the coroutine is thrown away with its loop.
                raise
            return partial(self._fail, item, error)
        except BaseException as error:  # noqa: BLE001 - sys.exit() in a handler is a failure
            return partial(self._fail, item, error)
        return partial(self._complete, item, result)

    def _check(self, run: _Run) -> None:
        """Let nothing begin that was told to stop before, or whose claim is gone.

        Raises:
            CancelledError: It must not begin.
        """
        if self._clock.monotonic() >= self._deadline:
            # The process was paused since the claim: another worker may have the item by now.
            run.gone = True
        if run.gone or run.order.given:
            raise asyncio.CancelledError

    def _ends(self) -> bool:
        """Whether the worker itself is cancelled, as all tasks are when a loop is torn down."""
        return self._main is None or self._main.done() or self._main.cancelling() > 0

    async def _fail(self, item: Item, error: BaseException, *, dead: bool = False) -> None:
        # As a store keeps it: without the secrets that can be recognised, and never too long.
        where = msgspec.json.decode(describe(error))["traceback"]
        _log.warning(
            "item %s of queue %r failed in attempt %d:\n%s",
            *(item.id, item.queue, item.attempt, where),
            extra={"job": item.id, "queue": item.queue, "attempt": item.attempt},
        )
        await self._client.fail(item, _said(error), error_type=_type_of(error), dead=dead)

    async def _complete(self, item: Item, result: Any) -> None:
        try:
            await self._client.complete(item, result)
        except UsageError as error:
            # Never tried again: the work is done, and doing it twice would not help.
            await self._fail(item, error, dead=True)
        else:
            self.done += 1

    def _return(self, item: Item) -> None:
        """Give back, as soon as the server hears it, what nobody works on."""
        task = asyncio.create_task(self._release(item), name=f"outlive-return-{item.id}")
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def _release(self, item: Item) -> None:
        pause_s = _OUTAGE_S[0]
        while True:
            try:
                await self._client.release(item)
            except StoreError:
                await self._clock.sleep(pause_s * self._client.runtime.random.uniform(0.5, 1.0))
                pause_s = min(_OUTAGE_S[1], pause_s * 2)
            except ClaimLost:
                return
            except OutliveError as error:
                _log.warning("could not release item %s: %s", item.id, error)
                return
            else:
                return

    async def _beat(self) -> None:
        """Keep the claims at a third of the ttl; at their deadline, let go of them.

        One who has none says so: what the server thinks it has goes back to its queue.
        """
        margin_s = min(_MARGIN_S, self._client.ttl / 10)
        while True:
            await self._clock.sleep(self._beat_pause_s(margin_s))
            items = self._held()
            # One without items has no deadline, and the request has a limit of its own.
            left_s = self._deadline - margin_s - self._clock.monotonic() if items else None
            if left_s is not None and left_s <= 0:
                self._lose_all("the server was unavailable until the claim expired")
                continue
            try:
                async with asyncio.timeout(left_s):
                    deadline, states = await self._client.heartbeat(items, complete=True)
            except (OutliveError, TimeoutError) as error:
                self._away(error)
                continue
            self.outage = False
            self._deadline = max(self._deadline, deadline)
            for item_id, state in states.items():
                if state != "ok":
                    self._lose(item_id, state)

    def _beat_pause_s(self, margin_s: float) -> float:
        """How long until the next heartbeat; never beyond the instant at which to let go."""
        pause_s = self._client.ttl / 3
        if not self._held():
            return pause_s
        if self.outage:
            pause_s = min(_OUTAGE_BEAT_S, pause_s)
        return min(pause_s, max(0.0, self._deadline - margin_s - self._clock.monotonic()))

    def _held(self) -> list[Item]:
        """What is worked on under a claim; not what was told to stop because its claim is gone."""
        return [run.item for run in self._running.values() if not run.gone]

    def _lose_all(self, why: str) -> None:
        for item_id in list(self._running):
            self._lose(item_id, why)

    def _lose(self, item_id: str, why: str) -> None:
        run = self._running.get(item_id)
        if run is None or run.gone:
            return
        _log.warning("stopping work on item %s: %s", item_id, why)
        run.gone = why != "cancel"
        run.stop(dropped=run.gone)

    async def _drain(self) -> None:
        await self._ended(self._grace_s)
        for run in self._running.values():
            run.stop()
        await self._ended(_CANCEL_PATIENCE_S)
        stuck = [run for run in self._running.values() if not run.over]
        if stuck:
            _log.warning("%s ignored cancellation and will be released", plural(len(stuck), "item"))
        for run in stuck:
            run.left = True
            del self._running[run.item.id]
            self._return(run.item)

    async def _ended(self, timeout_s: float) -> None:
        tasks = [run.task for run in self._running.values() if run.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)

    def _away(self, error: Exception) -> None:
        if not self.outage:
            _log.warning("the server is unavailable, will retry: %s", error)
        self.outage = True

    async def _until_changed(self) -> None:
        self._changed.clear()
        waits = [asyncio.create_task(event.wait()) for event in (self._changed, self._stop)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _pause(self, pause_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s * self._client.runtime.random.uniform(0.5, 1.0)):
                await self._stop.wait()


def _said(error: BaseException) -> str:
    """What went wrong, in text that can be sent, without the secrets that can be recognised."""
    text = printable(error, _ERROR_CHARS_MAX) or type(error).__name__
    return text.encode(errors="backslashreplace").decode()


def _type_of(error: BaseException) -> str | None:
    """The name that a retry policy knows the error by, if it can know it."""
    name = name_of(type(error))
    return name if len(name) <= _TYPE_CHARS_MAX and name.isprintable() else None


async def _surely(settling: Coroutine[Any, Any, None]) -> None:
    """Finish ``settling`` though the caller is cancelled: half a word helps nobody."""
    task = asyncio.ensure_future(settling)
    try:
        # Not by `shield`: from Python 3.14 on that tells of errors which come when nobody
        # waits any more.
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        await asyncio.wait((task,))
    task.result()


@contextlib.contextmanager
def _signals(
    loop: asyncio.AbstractEventLoop, stop: Callable[[], None]
) -> Generator[None, None, None]:
    """Let SIGTERM and SIGINT stop the worker, where this thread may say so."""
    handled: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                loop.add_signal_handler(number, stop)
            except (NotImplementedError, RuntimeError, ValueError):
                continue
            handled.append(number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
