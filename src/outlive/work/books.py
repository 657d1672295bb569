"""The books of one host's work: which claims are open here, and who waits for which result.

What handles of jobs and claims need of the host that made them; must never decide by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from outlive.model.job import SUSPECT_LOSSES, Changed, JobRecord, Return
from outlive.names import JobId, check_reason
from outlive.ports.job_store import JobStore
from outlive.runtime.runtime import Runtime
from outlive.telemetry import Telemetry, events
from outlive.work.bell import Alarm
from outlive.work.claim import Claim


class Books:
    """The open claims and awaited results of one host."""

    def __init__(
        self,
        runtime: Runtime,
        store: JobStore,
        telemetry: Telemetry,
        comes_due: Callable[[str, float], None],
    ) -> None:
        self.runtime = runtime
        self.store = store
        self.telemetry = telemetry
        self.comes_due = comes_due
        self._open: dict[JobId, Claim] = {}
        self._awaited: dict[JobId, list[Alarm]] = {}

    async def record(self, id: JobId) -> JobRecord | None:  # noqa: A002 - it is one
        """What the store knows of a job."""
        return await self.store.get(id)

    async def cancel_one(self, id: JobId, reason: str) -> Changed:  # noqa: A002 - it is one
        """Ask for the cancellation of one job."""
        (changed,) = await self.store.cancel([id], reason=check_reason(reason))
        return changed

    def on_ended(self, id: JobId, alarm: Alarm) -> Callable[[], None]:  # noqa: A002 - it is one
        """Ring ``alarm`` when the job ends in this process; what is returned ends it."""
        self._awaited.setdefault(id, []).append(alarm)

        def end() -> None:
            alarms = self._awaited.get(id, [])
            if alarm in alarms:
                alarms.remove(alarm)
            if not alarms:
                self._awaited.pop(id, None)

        return end

    def tell_ended(self, id: JobId) -> None:  # noqa: A002 - it is one
        """Let those who wait for a result look now."""
        for alarm in self._awaited.get(id, ()):
            alarm.ring()

    def claimed(self, claims: Iterable[Claim]) -> None:
        """These are open from now on."""
        self._open.update((claim.id, claim) for claim in claims)

    def has_suspect(self) -> bool:
        """Whether one of the open claims is that of a suspect, which runs alone of its kind."""
        return any(each.losses >= SUSPECT_LOSSES for each in self._open.values() if each.is_held)

    def settled(self, claim: Claim, outcome: str) -> None:
        """A claim has ended here, and how."""
        if self._open.get(claim.id) is claim:
            del self._open[claim.id]
        if self.telemetry.active:
            self.telemetry.record(events.JOBS_ENDED, queue=claim.job.queue, outcome=outcome)
        self.tell_ended(claim.id)

    async def give_back(self) -> None:
        """Release what is still open. Repeatable."""
        claims = [claim for claim in self._open.values() if claim.is_held]
        self._open.clear()
        if claims:
            await self.store.release([Return(each.id, each.job.token) for each in claims])
