"""Renewal: the keeper's chore that keeps leases alive, and notices when they are not.

Runs on the keeper's loop with the keeper's own connection. A tenure waits in a heap by the next
thing due for it: a renewal, the at-risk notice, or its deadline.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import deque

from outlive.errors import LeaseLost, OutliveError
from outlive.leases.ownership import Ownership
from outlive.leases.tenure import ALIVE, Tenure
from outlive.ports.driver import Driver
from outlive.ports.lease_store import LeaseStore
from outlive.runtime.keeper import Keeper
from outlive.runtime.watchdog import Watchdog

_log = logging.getLogger("outlive.leases")

# Dead entries of the heap are swept out when they outnumber the living by this many: rarely enough
# to cost nothing, often enough to hold no memory worth naming.
_HEAP_SLACK = 1000


class Renewals:
    """Renews every watched tenure until it ends."""

    def __init__(self, ownership: Ownership, keeper: Keeper, watchdog: Watchdog) -> None:
        self._ownership = ownership
        self._runtime = ownership.runtime
        self._keeper = keeper
        self._watchdog = watchdog
        # Appended to by the application's thread, drained by the keeper's: a lease that is
        # released before the keeper's next look never enters the heap.
        self._incoming: deque[Tenure] = deque()
        self._heap: list[tuple[float, int, Tenure]] = []
        self._count = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self, tenure: Tenure) -> None:
        """Keep ``tenure`` alive from now on. Safe from any thread, and cheap."""
        plan = tenure.plan
        if plan.renew_jitter:
            spread = plan.renew_after_s * plan.renew_jitter
            tenure.renew_due += self._runtime.random.uniform(-spread, spread)
        self._incoming.append(tenure)
        if self._due(tenure) < self._keeper.next_look:
            self._keeper.wake()

    def tick(self, now: float, driver: Driver) -> float:
        """Do what is due; return when the next thing is."""
        incoming, heap = self._incoming, self._heap
        while incoming:
            tenure = incoming.popleft()
            if tenure.phase in ALIVE:
                self._push(tenure, self._due(tenure))
        while heap and heap[0][0] <= now:
            _, stamp, tenure = heapq.heappop(heap)
            # Only the newest entry of a tenure counts; older ones fall out here.
            if stamp == tenure.stamp and self._look_at(tenure, now, driver.leases):
                # Due times move only forward, so that one look never sees a tenure twice.
                self._push(tenure, max(self._due(tenure), now + 1e-4))
        if len(heap) > _HEAP_SLACK + 2 * len(self._ownership):
            # Leases released long before their next renewal would stay until it is due.
            self._heap = [e for e in heap if e[1] == e[2].stamp and e[2].phase in ALIVE]
            heapq.heapify(self._heap)
            heap = self._heap
        return heap[0][0] if heap else now + 3600.0

    async def stop(self) -> None:
        """Cancel the renewals under way. The leases themselves are released by their owner."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _push(self, tenure: Tenure, due: float) -> None:
        tenure.stamp = next(self._count)
        heapq.heappush(self._heap, (due, tenure.stamp, tenure))

    def _due(self, tenure: Tenure) -> float:
        # Compared by hand: every grant comes through here, and min() costs three times as much.
        due, plan = tenure.deadline, tenure.plan
        if not tenure.at_risk_told:
            at_risk = tenure.asked_at + plan.at_risk_after_s
            if at_risk < due:  # noqa: PLR1730
                due = at_risk
        if plan.auto_renew and not tenure.busy and tenure.renew_due < due:
            due = tenure.renew_due
        return due

    def _look_at(self, tenure: Tenure, now: float, store: LeaseStore) -> bool:
        """Act on one tenure; false once it has ended."""
        if tenure.phase not in ALIVE:
            return False
        if now >= tenure.deadline:
            self._ownership.lose(tenure, tenure.expired())
            return False
        plan = tenure.plan
        if self._watchdog.loop_closed:
            error = LeaseLost(tenure.grant.key, "closed", "the owner's event loop was closed")
            self._ownership.lose(tenure, error)
            return False
        if self._watchdog.stalled_s(now) >= plan.stall_limit_s:
            self._stalled(tenure)
            return False
        if not tenure.at_risk_told and now >= tenure.asked_at + plan.at_risk_after_s:
            tenure.at_risk_told = True
            self._ownership.at_risk(tenure, tenure.deadline - now)
        if plan.auto_renew and not tenure.busy and now >= tenure.renew_due:
            tenure.busy = True
            task = self._runtime.spawn(self._renew(tenure, store), name="outlive-renew")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return True

    def _stalled(self, tenure: Tenure) -> None:
        key = tenure.grant.key
        error = LeaseLost(
            key,
            "stalled",
            f"lease {key!r} was given up: the event loop of its owner was blocked for "
            f"{tenure.plan.stall_limit_s:g} s (stall_limit)",
        )
        self._ownership.lose(tenure, error)

    async def _renew(self, tenure: Tenure, store: LeaseStore) -> None:
        plan, clock = tenure.plan, self._runtime.clock
        started = clock.monotonic()
        # One hung request must not eat the whole budget: it is abandoned in time for another.
        limit_s = min(plan.attempt_timeout_s, max(0.0, tenure.deadline - started))
        try:
            async with asyncio.timeout(limit_s):
                await self._ownership.renew(tenure, store)
            spread = plan.renew_after_s * plan.renew_jitter
            tenure.renew_due = (
                started + plan.renew_after_s + self._runtime.random.uniform(-spread, spread)
            )
        except LeaseLost:
            return
        except (OutliveError, TimeoutError) as error:
            # Whatever is wrong, a password that was changed included, may be right again in time.
            self._failed(tenure, error)
        except Exception as error:
            # A mistake of a driver. It is told like any other failure, and tried again like one.
            self._ownership.log.exception("the driver failed to renew lease %r", tenure.grant.key)
            self._failed(tenure, error)
        finally:
            tenure.busy = False
            self._incoming.append(tenure)
            self._keeper.wake()

    def _failed(self, tenure: Tenure, error: BaseException) -> None:
        if tenure.phase not in ALIVE:
            return
        plan, now = tenure.plan, self._runtime.clock.monotonic()
        tenure.attempt += 1
        pause_s = min(plan.backoff_most_s, plan.backoff_first_s * 2 ** min(tenure.attempt - 1, 16))
        pause_s *= self._runtime.random.uniform(0.5, 1.0)
        spent = plan.retries_max is not None and tenure.attempt > plan.retries_max
        will_retry = not spent and now + pause_s < tenure.deadline
        self._ownership.renew_failed(tenure, error, will_retry=will_retry)
        if spent:
            self._ownership.lose(tenure, tenure.expired())
        else:
            tenure.renew_due = now + pause_s
