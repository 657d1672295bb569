"""The keeper: renews what this host owns, from a thread and a connection of its own.

A blocked event loop therefore loses nothing until the watchdog says that it has been blocked for
too long. The keeper knows no feature: features hand it chores.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Protocol

from outlive.errors import OutliveError, UsageError
from outlive.ports.driver import Driver
from outlive.runtime.runtime import Background, Runtime

_log = logging.getLogger("outlive.host")

# Between two looks at least this much passes, so that a chore that is always due cannot spin.
PAUSE_MIN_S = 0.001


class Chore(Protocol):
    """Something the keeper does when it is due. Runs on the keeper's loop, never blocks it."""

    def tick(self, now: float, driver: Driver) -> float:
        """Start what is due at ``now`` (monotonic) and return when to look again."""
        ...

    async def stop(self) -> None:
        """End what was started. Repeatable."""
        ...


class Keeper:
    """Runs chores until stopped. Tolerates stop before start and stop twice."""

    def __init__(
        self,
        runtime: Runtime,
        open_driver: Callable[[], Awaitable[Driver]],
        *,
        log: logging.Logger = _log,
    ) -> None:
        self._runtime = runtime
        self._log = log
        self._open_driver = open_driver
        self._chores: list[Chore] = []
        self._background: Background | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._stopping = False
        self._pid = runtime.pid()
        self.next_look: float = 0.0
        self.driver: Driver | None = None

    def add(self, chore: Chore) -> None:
        """Let the keeper do ``chore`` from its next look on. Safe from any thread."""
        self._chores = [*self._chores, chore]
        self.wake()

    async def start(self) -> None:
        """Start and wait until the keeper's own connection stands.

        Raises:
            OutliveError: The store could not be opened a second time, for the keeper.
        """
        if self._background is not None or self._stopping:
            return
        caller = asyncio.get_running_loop()
        ready: asyncio.Future[None] = caller.create_future()

        def report(error: BaseException | None) -> None:
            if ready.done():
                return
            if error is None:
                ready.set_result(None)
            else:
                ready.set_exception(error)

        def report_from_keeper(error: BaseException | None) -> None:
            caller.call_soon_threadsafe(report, error)

        async def main() -> None:
            try:
                await self._main(report_from_keeper)
            except GeneratorExit:
                # Dropped with its loop and everything on it: there is nobody to tell.
                raise
            except BaseException as error:
                self._log.error(
                    "the renewal thread ended; leases and the host session will expire: %r", error
                )
                raise

        self._background = self._runtime.start_keeper(main)
        await ready

    async def stop(self) -> None:
        """End all chores and close the keeper's connection."""
        self._stopping = True
        self.wake()
        background, self._background = self._background, None
        if background is not None and self._pid == self._runtime.pid():
            await background.join()

    def wake(self) -> None:
        """Let the keeper look around now. Safe from any thread; harmless when it has ended."""
        loop, event = self._loop, self._wake
        if loop is None or event is None:
            return
        try:
            loop.call_soon_threadsafe(event.set)
        except RuntimeError:
            # The keeper's loop has closed: there is nobody left to wake.
            return

    async def _main(self, report: Callable[[BaseException | None], None]) -> None:
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        try:
            driver = await self._open_driver()
        except OutliveError as error:
            report(error)
            return
        except BaseException as error:
            report(UsageError(f"the renewal thread could not open the store: {error!r}"))
            raise
        self.driver = driver
        report(None)
        try:
            await self._keep(driver, self._wake)
        finally:
            for chore in self._chores:
                await chore.stop()
            await driver.close()

    async def _keep(self, driver: Driver, wake: asyncio.Event) -> None:
        clock = self._runtime.clock
        while not self._stopping:
            wake.clear()
            # Whoever brings work from here on wakes the keeper; until now it compared with the
            # time of this look, which is over.
            self.next_look = math.inf
            now = clock.monotonic()
            look_again = now + self._runtime.tick_s
            for chore in self._chores:
                try:
                    look_again = min(look_again, chore.tick(now, driver))
                except Exception:  # noqa: BLE001
                    # One chore's mistake must not stop the renewals of the others.
                    self._log.exception("a task of the renewal thread failed: %r", chore)
            self.next_look = look_again
            pause = max(PAUSE_MIN_S, look_again - clock.monotonic())
            try:
                async with asyncio.timeout(pause):
                    await wake.wait()
            except TimeoutError:
                continue
