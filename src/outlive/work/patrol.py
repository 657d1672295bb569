"""The patrol: looks after running jobs, now and then.

Asks whether the claims of long runs still stand and whether somebody wants them cancelled, in case
a ring was lost; and writes progress, not more than once a second for each job.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from outlive.model.job import Extension, Settled
from outlive.serialization import encode
from outlive.work.claiming import Claimer
from outlive.work.running import LOST, Run
from outlive.work.settling import Lane

# Progress is for people, who read no faster.
_REPORT_EVERY_S = 1.0


class Runs(Protocol):
    """Whose runs are looked after."""

    runs: dict[str, Run]

    def cancel(self, run: Run) -> None:
        """Somebody wants the job cancelled."""
        ...


class Patrol:
    """Looks after the runs of one worker."""

    def __init__(self, worker: Runs, extend: Lane, claimer: Claimer) -> None:
        self._worker = worker
        self._extend = extend
        self._claimer = claimer
        self._clock = claimer.runtime.clock

    async def run(self) -> None:
        """Go round until cancelled."""
        every_s = self._claimer.sessions.ttl_s / 2
        while True:
            seen = list(self._worker.runs.values())
            await self._clock.sleep(every_s)
            for run in seen:
                # Only what ran all this time: a short job ends before anybody could cancel it.
                if not run.over:
                    self.ask(run, None)

    def reporting(self, run: Run) -> Reporter:
        """What takes the progress of ``run``."""
        return Reporter(self, run)

    def ask(self, run: Run, progress: str | None) -> None:
        """Learn whether the claim stands, and keep ``progress``."""
        job = run.job
        asked = self._extend.put(Extension(job.id, job.token, progress), run.session)

        def answered(future: asyncio.Future[Settled]) -> None:
            if future.cancelled() or run.over:
                return
            if future.result() is Settled.LOST:
                run.stop(LOST)
            elif future.result() is Settled.CANCEL:
                self._worker.cancel(run)

        asked.add_done_callback(answered)


class Reporter:
    """Takes the progress of one run, from any thread."""

    __slots__ = ("_due", "_loop", "_newest", "_patrol", "_run")

    def __init__(self, patrol: Patrol, run: Run) -> None:
        self._patrol = patrol
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._newest: str | None = None
        self._due = 0.0

    def report(self, progress: object) -> None:
        """Keep ``progress``, soon."""
        text = encode(progress, "the progress")
        first, self._newest = self._newest is None, text
        if first:
            self._loop.call_soon_threadsafe(self._plan)

    def beat(self) -> None:
        """Nothing to keep: who wants to hear of it asks ``current()``."""

    def unwritten(self) -> str | None:
        """What was told and is not written yet; it is the caller's now."""
        text, self._newest = self._newest, None
        return text

    def _plan(self) -> None:
        now = self._loop.time()
        at = max(now, self._due)
        self._due = at + _REPORT_EVERY_S
        self._loop.call_at(at, self._write)

    def _write(self) -> None:
        text = None if self._run.over else self.unwritten()
        if text is not None:
            self._patrol.ask(self._run, text)
