"""The code of one run on its loop: its main coroutine, and the tasks that this has made.

Owns when the code runs, always to its next wait, and how it ends: in order when the main coroutine
has, or broken off where it stands when it would never wait or has recorded too much. Pure, as the
run is.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING, Any

from outlive.errors import HistoryTooLong, UsageError
from outlive.flows import asking
from outlive.flows.ending import Ending, ending_of
from outlive.flows.events import TimerSet
from outlive.flows.failures import failure_of
from outlive.flows.loop import FlowLoop
from outlive.model.instance import InstanceStatus

if TYPE_CHECKING:
    from outlive.flows.run import FlowRun, Heard


# Tasks are told so often that what they wait for is gone: once for each thing that a saga undoes.
# One that has more of them, or swallows what it is told, keeps its flow from ending until somebody
# terminates it.
_IN_VAIN_MAX = 1000


class FlowCode:
    """The running code of one run. ``ending`` is what it ends with, once that is certain."""

    __slots__ = (
        "_asked_to_cancel",
        "_ends_in_order",
        "_loop",
        "_run",
        "_spins",
        "_warned",
        "ending",
        "main",
    )

    def __init__(self, run: FlowRun, loop: FlowLoop) -> None:
        self._run = run
        self._loop = loop
        self._asked_to_cancel = False
        self._warned = False
        # Whether its tasks are told more than once: they were spared, or wait for nothing.
        self._ends_in_order = False
        self._spins: tuple[Exception, Heard] | None = None
        self.ending: Ending | None = None
        self.main: asyncio.Task[Any] | None = loop.begin(
            self._run_main(), "main", Context(), main=True
        )

    async def _run_main(self) -> Any:
        flow = self._run.flow
        args, kwargs = flow.arguments.decode(self._run.input)
        try:
            return await flow.function(*args, **kwargs)
        except (SystemExit, KeyboardInterrupt) as error:
            raise UsageError(
                f"flow code raised {type(error).__name__}: end a flow by returning or by raising "
                "an exception"
            ) from error

    def activate(self) -> None:
        """Let the code run to its next wait, at the time that the run has.

        Raises:
            NonDeterminism: It does something else than the history says. Drop the run.
        """
        run, loop = self._run, self._loop
        asking_ = run.asking
        asking_.calls_made = asking_.refused = 0
        # Not as a local: its error refers to this frame, from Python 3.13 on.
        assert self.main is not None
        try:
            loop.run(run.at_us / 1e6)
            if self._spins is not None:
                self._break_off(self._spins[0])
            elif self.main.done():
                if self.ending is None:
                    self._wind_up(self.main)
                else:
                    self._wind_on()
        except UsageError as error:
            # The code spins; what it would do next is unknown, and would be so at each replay.
            self._break_off(error)
        if run.difference is not None:
            raise run.difference
        if loop.armed or loop.disarmed:
            self._harvest_timers()
        if run.out.events > asking.EVENTS_WARNED:
            self._look_at_length()
        if self.ending is not None and not loop.living:
            run.finish(self.ending)

    def cancel(self, reason: str) -> bool:
        """Ask the main coroutine to cancel itself; False if it was asked before."""
        assert self.main is not None
        if self._asked_to_cancel and not self._run.replaying:
            # Once in a run: it is at its clean-up, which must not be interrupted.
            return False
        self._asked_to_cancel = True
        self.main.cancel(reason)
        return True

    def close(self) -> None:
        """Drop the code, wherever it stands. Repeatable."""
        self._close_loop()
        # Timers that nobody has heard of keep their loop, and it them.
        self._loop.take_timers()
        self.main = None

    def spins(self, error: Exception) -> None:
        """The code swallows ``error`` in a loop: hear no more of it, and end the flow with that."""
        if self._spins is None:
            self._spins = error, self._run.hush()

    def _break_off(self, error: Exception) -> None:
        """End the flow where it stands, without its code."""
        self.ending = Ending(InstanceStatus.FAILED, failure=failure_of(error))
        heard = self._run.hush() if self._spins is None else self._spins[1]
        self._close_loop()
        self._run.hear(heard)

    def _close_loop(self) -> None:
        loop, run = self._loop, self._run
        if loop.is_closed():
            return
        loop.close()
        if loop.left_behind:
            run.log.warning(
                "flow %r (%s) was unloaded, but %d of its tasks still run: its code swallows "
                "GeneratorExit or outlive.Evicted; catch Exception, not BaseException",
                *(run.id, run.flow.name, loop.left_behind),
                extra={"flow": run.id},
            )

    def _wind_up(self, main: asyncio.Task[Any]) -> None:
        """The main coroutine has ended: end the other tasks, however long their clean-up takes."""
        self.ending = ending_of(self._run.flow, main, self._run.out.failed_last)
        self._loop.forget(main)
        if self._loop.living:
            self._loop.cancel_tasks()
            self._loop.run()
            self._wind_on()

    def _wind_on(self) -> None:
        """End what is left of tasks that were cancelled, once nobody has need of it."""
        loop, run = self._loop, self._run
        if not loop.living:
            return
        if not self._ends_in_order:
            self._ends_in_order = loop.protecting or not run.expects
            if not self._ends_in_order:
                return
        for _ in range(_IN_VAIN_MAX):
            if not loop.protecting:
                # What sagas have left behind, and updates that came while they undid.
                loop.cancel_tasks()
                loop.run()
            if not loop.living or run.expects:
                return
            # They wait for a task that has ended, and for nothing that could still happen.
            loop.cancel_all()
            loop.run()

    def _harvest_timers(self) -> None:
        run = self._run
        armed, disarmed = self._loop.take_timers()
        for number in disarmed:
            run.timers.cancel(number)
        for number, due in armed:
            due_us = round(due * 1e6)
            timer = run.timers.set(number, due_us)
            run.out.put(TimerSet(at=run.at_us, timer=timer, due=due_us))

    def _look_at_length(self) -> None:
        """Warn of a long history, once; end the flow where it is too long."""
        run = self._run
        if self.ending is not None:
            return
        if run.out.events > asking.EVENTS_MAX + asking.UNDOING_MAX:
            # Timers and signals alone made it so long: its code asks for nothing that could raise.
            self._break_off(HistoryTooLong(run.id, asking.EVENTS_MAX))
        elif not self._warned:
            self._warned = True
            if not run.replaying:
                run.log.warning(
                    "flow %r (%s) has more than %d events in its history, and will fail at %d: "
                    "end a long run with outlive.continue_as_new()",
                    *(run.id, run.flow.name, asking.EVENTS_WARNED, asking.EVENTS_MAX),
                    extra={"flow": run.id},
                )
