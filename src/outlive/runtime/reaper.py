"""The reaper: ends the sessions of the dead in time, and lets others have their work.

Runs on the keeper, beside the heartbeat and never before it: a store that is slow to give work
back must not cost this host its own session. It looks again exactly when the session that ends
soonest could have ended, so that take-over is prompt and an idle fleet is quiet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from outlive.errors import OutliveError
from outlive.model.instance import ReclaimedInstance
from outlive.model.job import JobState, Reclaimed
from outlive.model.session import HostSession
from outlive.ports.driver import Driver
from outlive.ports.host_store import HostStore
from outlive.ports.instance_store import InstanceStore
from outlive.ports.job_store import JobStore
from outlive.ports.wakeups import Wakeup
from outlive.runtime.heartbeat import Heartbeat
from outlive.runtime.runtime import Runtime
from outlive.serialization import decode_plain
from outlive.telemetry import plural

_log = logging.getLogger("outlive.host")

# Ended in one statement; more than this at once is a fleet restart, and the next look goes on.
REAP_MAX = 100

# A fleet larger than this is looked at every second instead of at the right moment.
SESSIONS_MAX = 1000

# Taken back in one step: few enough to hold no lock for long.
RECLAIM_MAX = 500

# One look takes back this many batches at most; the next comes a second later.
_RECLAIM_ROUNDS_MAX = 200

# After the moment at which a session could have ended: all hosts of a fleet compute the same one,
# and the first of them is enough.
_SPREAD_S = (0.02, 0.25)

# The next look when something was left to do, or the store did not answer.
_SOON_S = 1.0

# The next look comes within this part of a ttl: a session that is opened behind a look, and whose
# host dies at once, is seen before it ends.
_PAUSE_TTLS = 0.8

# A sweep looks for work of sessions that were ended and from which nobody took it back. Whoever
# dies in between is reaped in time, which sweeps as well, and whoever fails sweeps again at once.
# What is left for a sweep that nothing calls for is rare, and so is it.
_SWEEP_TTLS = 3

# Hosts that one line of the log names; the others each have a line for who asks for more.
_NAMED_MAX = 5


# A host is gone, and with it what it alone knew of the future: who runs the same looks anew.
GONE = Wakeup("hosts/gone")


@dataclass(slots=True)
class _Taken:
    """What one look has taken, to be told in one line.

    It may be the work of others than the ``hosts`` that were found dead: theirs may have been taken
    by a peer, and what a peer has reaped is taken by whoever comes first.
    """

    hosts: list[str] = field(default_factory=list[str])
    jobs: int = 0
    dead_jobs: int = 0
    flows: int = 0

    def parts(self) -> tuple[str, str, str]:
        """Jobs, flows and hosts in words."""
        jobs, flows = plural(self.jobs, "job"), plural(self.flows, "flow")
        dead = f" ({self.dead_jobs} dead: lost too often)" if self.dead_jobs else ""
        named = ", ".join(self.hosts[:_NAMED_MAX])
        more = len(self.hosts) - _NAMED_MAX
        who = f"; hosts found dead: {named}" if named else ""
        return f"{jobs}{dead}", flows, f"{who}{f' and {more} more' if more > 0 else ''}"


class Reaper:
    """Looks after the sessions of others."""

    def __init__(
        self,
        runtime: Runtime,
        heartbeat: Heartbeat,
        *,
        reclaimed: Callable[[Sequence[Reclaimed]], None] | None = None,
        taken_over: Callable[[Sequence[ReclaimedInstance]], None] | None = None,
        log: logging.Logger = _log,
    ) -> None:
        self._runtime = runtime
        self._log = log
        self._heartbeat = heartbeat
        self._reclaimed = reclaimed
        self._taken_over = taken_over
        self._task: asyncio.Task[None] | None = None
        first_s = min(_SOON_S, heartbeat.ttl_s / 10)
        self._due = runtime.clock.monotonic() + first_s
        self._sweep_due = self._due
        self._handed_over = 0
        # Whether a host has gone of which the others have not been told.
        self._untold = False
        # What could not be taken back at the last look.
        self._failing: set[str] = set()
        # Hosts that were found dead, until all that they left has been taken.
        self._gone: list[str] = []

    def expect(self, ttl_s: float) -> None:
        """A session of this ttl was opened: look no later than its end. Safe from any thread."""
        self._due = min(self._due, self._runtime.clock.monotonic() + ttl_s + _SPREAD_S[0])

    def tick(self, now: float, driver: Driver) -> float:
        """Look if it is time and no look is under way."""
        hosts, heartbeat = driver.hosts, self._heartbeat
        if hosts is None:
            return now + heartbeat.ttl_s
        if self._task is not None and not self._task.done():
            return now + _SOON_S
        if self._handed_over != heartbeat.handed_over:
            self._handed_over = heartbeat.handed_over
            self._due = self._sweep_due = now
        if now >= self._due:
            self._due = now + heartbeat.ttl_s / 2
            look = self._look(hosts, driver, now)
            self._task = self._runtime.spawn(look, name="outlive-reaper")
        return self._due

    async def stop(self) -> None:
        """End the look under way."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _look(self, hosts: HostStore, driver: Driver, now: float) -> None:
        ttl_s, more, taken = self._heartbeat.ttl_s, False, _Taken()
        try:
            async with asyncio.timeout(ttl_s):
                if not self._heartbeat.live.held:
                    # Who is not alive by its own clock does not judge others.
                    self._due = now + min(_SOON_S, ttl_s / 3)
                    return
                sessions = await hosts.list(limit=SESSIONS_MAX)
                others = [each for each in sessions if each.id != self._heartbeat.live.id]
                full = len(sessions) == SESSIONS_MAX
                dead = await self._reap(hosts, others, now, unseen=full)
                self._gone += [each.name for each in dead]
                # As many as one look finds: a store that takes nothing back may be away for long.
                del self._gone[:-REAP_MAX]
                taken.hosts = list(self._gone)
                more = len(dead) == REAP_MAX
                self._untold = self._untold or bool(dead)
                if dead or now >= self._sweep_due:
                    self._sweep_due = now + _SWEEP_TTLS * ttl_s
                    more = await self._sweep(driver, now, taken) or more
                if self._untold:
                    # When its work is free: who looks before that finds nothing.
                    await driver.wakeups.ring(GONE)
                    self._untold = False
        except (OutliveError, TimeoutError) as error:
            # What was ended may not have been taken back.
            self._due = self._sweep_due = now + min(_SOON_S, ttl_s / 3)
            self._log.warning(
                "could not check for dead hosts, will retry: %s", str(error) or type(error).__name__
            )
            return
        finally:
            self._tell(taken)
        if not (more or self._failing):
            self._gone.clear()
        self._due = now + self._pause_s(others, now, soon=more or full)

    def _tell(self, taken: _Taken) -> None:
        """Tell in one line what was taken, however much it is and of however many hosts."""
        # A session without work may be that of a worker over HTTP, which ends by running out.
        if taken.jobs or taken.flows:
            # A host died: who keeps the fleet wants to see that without asking for more.
            self._log.warning("recovered %s and %s from dead hosts%s", *taken.parts())

    async def _reap(
        self, hosts: HostStore, others: Sequence[HostSession], now: float, *, unseen: bool
    ) -> Sequence[HostSession]:
        """End the sessions of the dead, if we may judge.

        Only a host that has itself been healthy for a whole ttl may: after an outage every session
        is late at once, and the first to wake must not take everybody's work. One that is alone
        has nobody to wait for. With ``unseen``, there may be others that are not shown here.
        """
        if not unseen and all(each.alive for each in others):
            return ()
        healthy = now - self._heartbeat.healthy_since >= self._heartbeat.ttl_s
        if not healthy and any(each.alive for each in others):
            return ()
        dead = await hosts.reap(limit=REAP_MAX)
        for each in dead:
            self._log.info(
                "host %s is dead: its session %s expired",
                *(each.name, each.id),
                extra={"session": each.id},
            )
        return dead

    async def _sweep(self, driver: Driver, now: float, taken: _Taken) -> bool:
        """Take back what hangs on ended sessions; true if there may be more.

        What cannot be taken back keeps nobody from taking back the rest.
        """
        taking: list[tuple[str, Callable[[], Awaitable[bool]]]] = []
        if driver.jobs is not None:
            taking.append(("jobs", partial(self._reclaim, driver.jobs, taken)))
        if driver.instances is not None:
            taking.append(("flows", partial(self._take_over, driver.instances, taken)))
        more = False
        for what, take in taking:
            try:
                # A part of the look's own time, so that one which hangs leaves some for the next.
                async with asyncio.timeout(self._heartbeat.ttl_s / 3):
                    more = await take() or more
            except (OutliveError, TimeoutError) as error:
                more, self._sweep_due = True, now
                self._complain(what, error)
            else:
                self._failing.discard(what)
        return more

    def _complain(self, what: str, error: Exception) -> None:
        """Tell a failure when it begins, and not each second of it."""
        level = logging.DEBUG if what in self._failing else logging.WARNING
        self._failing.add(what)
        self._log.log(
            level,
            "could not recover %s from dead hosts, will retry: %s",
            *(what, str(error) or type(error).__name__),
        )

    async def _reclaim(self, jobs: JobStore, taken: _Taken) -> bool:
        """Take back the claims of ended sessions; true if there may be more."""
        for _ in range(_RECLAIM_ROUNDS_MAX):
            some = await jobs.reclaim(limit=RECLAIM_MAX)
            taken.jobs += len(some)
            for each in some:
                if each.state is JobState.DEAD:
                    taken.dead_jobs += 1
                    await self._tell_dead(jobs, each)
                else:
                    self._log.info(
                        "job %s of queue %r was recovered from a dead host",
                        *(each.id, each.queue),
                        extra={"job": each.id, "queue": each.queue},
                    )
            if some and self._reclaimed is not None:
                self._reclaimed(some)
            if len(some) < RECLAIM_MAX:
                return False
        return True

    async def _tell_dead(self, jobs: JobStore, job: Reclaimed) -> None:
        """Log a job that was lost too often, with the reason that the store keeps."""
        record = await jobs.get(job.id)
        self._log.error(
            "job %s of queue %r is dead: %s",
            *(
                job.id,
                job.queue,
                "lost too often" if record is None else decode_plain(record.error),
            ),
            extra={"job": job.id, "queue": job.queue},
        )

    async def _take_over(self, instances: InstanceStore, taken: _Taken) -> bool:
        """Let others have the instances of ended sessions; true if there may be more."""
        for _ in range(_RECLAIM_ROUNDS_MAX):
            some = await instances.reclaim(limit=RECLAIM_MAX)
            taken.flows += len(some)
            for each in some:
                self._log.info(
                    "flow %s of %r was recovered from a dead host",
                    *(each.id, each.name),
                    extra={"flow": each.id},
                )
            if some and self._taken_over is not None:
                self._taken_over(some)
            if len(some) < RECLAIM_MAX:
                return False
        return True

    def _pause_s(self, others: Sequence[HostSession], now: float, *, soon: bool) -> float:
        """How long nobody's session can run out unnoticed."""
        ttl_s = self._heartbeat.ttl_s
        if soon:
            return min(_SOON_S, ttl_s / 3)
        spread_s = min(self._runtime.random.uniform(*_SPREAD_S), ttl_s / 4)
        pause_s = _PAUSE_TTLS * ttl_s
        for each in others:
            if each.alive:
                pause_s = min(pause_s, each.remaining_s + spread_s)
        if not all(each.alive for each in others):
            # Someone is late, and either was reaped just now or waits until we may judge.
            until_healthy_s = self._heartbeat.healthy_since + ttl_s - now
            pause_s = min(pause_s, max(until_healthy_s, min(_SOON_S, ttl_s / 3)))
        return max(pause_s, spread_s)
