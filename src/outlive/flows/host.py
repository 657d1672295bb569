"""The host of flows: one loop that claims for all definitions of an app, and runs what it gets.

It claims at most as many flows as it has free slots, waits for a ring where there are none, and
polls behind that as the safety net. Owns the beginning of each flow here, and their end when the
host stops or loses its session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from outlive.errors import LeaseLost, OutliveError, StoreError
from outlive.flows.activation import LiveFlow
from outlive.flows.bell import FlowBell
from outlive.flows.claiming import FlowClaimer
from outlive.flows.household import Household
from outlive.flows.loading import load, may_hide_a_wish
from outlive.flows.lookout import Lookout
from outlive.model.flow_options import FlowOptions
from outlive.model.instance import FINAL, ClaimedInstance, Handback, InstanceStatus
from outlive.runtime.backoff import Backoff
from outlive.runtime.session import LiveSession
from outlive.telemetry import events
from outlive.work.bell import Alarm
from outlive.work.claiming import POLL_DEAF_S
from outlive.work.noting import Noting
from outlive.work.repeating import while_held

# A claim under way, and what was stopped, get this long to end.
_PATIENCE_S = 5.0

# A fleet of hosts whose rings are lost asks this often while all its slots are taken.
_TICK_S = 0.05

# A flow that commits all the time is asked for so often when somebody has operated on it. What its
# commits are answered says the rest.
_LOOKS_MAX = 3


class FlowHost:
    """Runs the flows of an app on one host, until stopped. Used once."""

    def __init__(
        self,
        home: Household,
        claimer: FlowClaimer,
        bell: FlowBell,
        *,
        names: tuple[str, ...],
        options: FlowOptions,
        claim_batch: int,
        log: logging.Logger,
    ) -> None:
        self.home = home
        self._claimer = claimer
        self._bell = bell
        self._names = names
        self._concurrency = options.concurrency
        self._lookout = Lookout(options, claim_batch)
        self._log = log
        self._clock = home.runtime.clock
        self._alarm = Alarm()
        self._noting = Noting()
        self._backoff = Backoff(0.1, 5.0, home.runtime.random)
        self._stopping = False
        # Whether somebody rang since the last look.
        self._rung = False
        # Whether rings were missed since the last look at all flows that are here, and whether
        # that look is under way.
        self._missed = self._looking = False
        # The flows whose status is being read, and whether it may be another since that was asked.
        self._looked_at: dict[LiveFlow, bool] = {}
        self._ended: asyncio.Future[None] | None = None
        self._heed_no_more: Callable[[], object] = lambda: None
        home.freed = self._on_freed
        home.comes_due = self.look_in

    @property
    def open(self) -> bool:
        """Whether a flow that is started now can begin here at once."""
        running = self._ended is not None and not self._stopping
        return running and self.home.active < self._concurrency

    def runs(self, name: str) -> bool:
        """Whether this host runs flows of this definition."""
        return name in self._names

    def defined(self, names: tuple[str, ...]) -> None:
        """There are more definitions: claim their flows as well."""
        self._names = names
        self._on_all_names()

    async def run(self) -> None:
        """Claim and run until ``stop``."""
        bell = self._bell
        bell.on_claimable, bell.on_mail = self._on_ring, self._on_mail
        bell.on_operate, bell.on_gone = self._on_operate, self._on_gone
        bell.on_missed = self._on_missed
        bell.open()
        # As long as anything runs, which may be longer than claims are made.
        self._heed_no_more = self._claimer.sessions.on_lost(self._on_lost)
        self._ended = asyncio.get_running_loop().create_future()
        try:
            while not self._stopping:
                await self._turn()
        finally:
            self._stopping = True
            self._ended.set_result(None)
            bell.on_claimable = bell.on_mail = bell.on_gone = None

    async def stop(self, grace_s: float, hurry: asyncio.Event | None = None) -> None:
        """Claim no more; let steps end within ``grace_s``; hand everything back. Repeatable.

        ``hurry`` ends the grace when it is set. What waits is handed back at once, and begins
        nothing new. Steps that run longer are stopped, and their flows can be claimed by others at
        once. So are those of flows that are terminated meanwhile, or whose session is lost.
        """
        self._stopping = True
        self._alarm.ring()
        try:
            await self._let_end(grace_s, hurry or asyncio.Event())
        finally:
            self._heed_no_more()
            self._bell.on_operate = self._bell.on_missed = None
            self.home.close()

    async def _let_end(self, grace_s: float, hurry: asyncio.Event) -> None:
        home = self.home
        if self._ended is not None:
            await asyncio.wait([self._ended], timeout=_PATIENCE_S)
        home.stuck_flows.let_all_go()
        for live in list(home.lives.values()):
            live.leave(now=False)
        until = self._clock.monotonic() + grace_s
        while home.lives and not hurry.is_set() and self._clock.monotonic() < until:
            await self._clock.sleep(min(_TICK_S, max(0.001, until - self._clock.monotonic())))
        for live in list(home.lives.values()):
            live.leave(now=True)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await home.settled()
                # Those that sleep are due one day, and nobody else may know when.
                await self._bell.leave()
        except StoreError as error:
            self._log.debug("could not notify the other hosts that this host is leaving: %s", error)
        except TimeoutError:
            self._log.warning(
                "timed out releasing flows; other hosts can claim them when this session expires"
            )

    # -- claiming ---------------------------------------------------------------------------------

    async def _turn(self) -> None:
        """Claim what fits, or wait until something does."""
        lookout = self._lookout
        self._alarm.reset()
        free = max(0, self._concurrency - self.home.active)
        left_s = lookout.wait_s(self._clock.monotonic(), free=free)
        if left_s:
            await self._alarm.sleep(left_s)
            return
        poll_s = POLL_DEAF_S if self._bell.deaf else lookout.poll_s
        limit = lookout.limit(free)
        lookout.asks()
        rung, self._rung = self._rung, False
        try:
            wait_s = self._noting.wait_s(self._clock.monotonic(), poll_s)
            session, claimed = await self._claimer.ask(
                self._names, limit, wait_s=wait_s, unwanted=self._return
            )
        except (StoreError, LeaseLost) as error:
            pause_s = self._backoff.next_s()
            self._log.warning("could not claim flows, next attempt in %.1f s: %s", pause_s, error)
            await self._alarm.sleep(pause_s)
            return
        self._backoff.reset()
        self.home.clock.heard(claimed.at_us)
        got = len(claimed.instances)
        if got >= limit:
            self._noting.gone()
        due_s = poll_s if claimed.next_due_s is None else min(poll_s, claimed.next_due_s)
        lookout.answered(self._clock.monotonic(), got=got, limit=limit, due_s=due_s)
        if self.home.telemetry.active:
            self.home.telemetry.record(events.FLOWS, got, event="claimed")
            if rung and not got:
                self.home.telemetry.record(events.FLOWS, event="missed")
        for each in claimed.instances:
            self.begin(each, session, claimed.at_us)
        for id in claimed.letters:  # noqa: A001 - it is one
            self._on_mail(id)

    def _return(self, claimed: ClaimedInstance, session: LiveSession) -> None:
        back = Handback(claimed.id, claimed.token, due=True)
        self.home.releases.put(back, session, lambda _: None)

    def look_in(self, in_s: float) -> None:
        """A flow comes due so soon: look then, if nothing else makes us look before."""
        if self._lookout.comes_due(self._clock.monotonic(), in_s):
            self._alarm.ring()

    # -- beginning --------------------------------------------------------------------------------

    def begin(self, claimed: ClaimedInstance, session: LiveSession, at_us: int = 0) -> bool:
        """Run a flow that is owned by this host's session; whether it begins here.

        ``at_us`` is when it was claimed, with the letters that it had then.
        """
        if self._stopping:
            self._return(claimed, session)
            return False
        known = self.home.lives.get(claimed.id)
        if not session.held or (known is not None and known.row.token > claimed.token):
            # An answer that came too late: its session is lost, and what hung on it is taken over,
            # perhaps by this host itself.
            return False
        live = self.home.enter(claimed, session, at_us)
        if claimed.version == claimed.base and not (claimed.letters and may_hide_a_wish(claimed)):
            live.begin((), claimed.letters)
        else:
            self.home.spawn(load(self.home, live, claimed), "outlive-flow-load")
        return True

    # -- what others tell -------------------------------------------------------------------------

    def _on_freed(self) -> None:
        if self._lookout.hopeful:
            self._alarm.ring()

    def _on_ring(self, name: str) -> None:
        if name in self._names:
            self._noting.gone()
            self._rung = True
            self._on_all_names()

    def _on_gone(self) -> None:
        # Its notes are rung in vain, but never before ours if ours ends later.
        self._noting.gone()
        self._on_all_names()

    def _on_all_names(self) -> None:
        self._lookout.rang()
        self._alarm.ring()

    def _on_mail(self, id: str) -> None:  # noqa: A002 - it is one
        live = self.home.lives.get(id)
        if live is not None:
            live.mail()

    def _on_operate(self, id: str) -> None:  # noqa: A002 - it is one
        live = self.home.lives.get(id)
        if live is not None:
            self.home.spawn(self._look_at_status(live), "outlive-flow-operate")

    def _on_missed(self) -> None:
        # What letters and new flows were rung for, the next claim makes good. What operators did is
        # to be looked for.
        self._missed = True
        if not self._looking:
            self._looking = True
            self.home.spawn(self._look_at_all(), "outlive-flow-operate")

    async def _look_at_all(self) -> None:
        """Look at each flow that is here, one after the other: there may be thousands."""
        try:
            while self._missed:
                self._missed = False
                # First those that do something, which nobody may want any more.
                for live in sorted(self.home.lives.values(), key=lambda live: live.idle):
                    if not live.closed:
                        await self._look_at_status(live)
        finally:
            self._looking = False

    async def _look_at_status(self, live: LiveFlow) -> None:
        """Somebody suspended the flow, resumed it, or took it from us.

        One look at a time: of two the answer of the older one may come last.
        """
        if live in self._looked_at:
            self._looked_at[live] = True
            return
        self._looked_at[live] = True
        looks = 0
        try:
            while self._looked_at[live] and not live.closed:
                self._looked_at[live] = False
                looks += 1
                await self._look_once(live, last=looks >= _LOOKS_MAX)
        finally:
            del self._looked_at[live]

    async def _look_once(self, live: LiveFlow, *, last: bool) -> None:
        version = live.row.version

        async def read() -> Any:
            return await self.home.store.get(live.id)

        try:
            record = await while_held(self.home.runtime, live.session, read)
        except OutliveError as error:
            self._log.debug("could not read the status of flow %s: %s", live.id, error)
            return
        if live.closed:
            return
        if live.row.version != version and not last:
            # A commit was answered meanwhile, and may have said something newer.
            self._looked_at[live] = True
            return
        ours = record is not None and record.token == live.row.token
        if ours and live.ending:
            # Its own end, perhaps, whose answer is on its way: that one says whether it is.
            return
        if record is None or record.status in FINAL or record.token != live.row.token:
            self.home.drop(live)
        else:
            live.operated(suspended=record.status is InstanceStatus.SUSPENDED)

    def _on_lost(self, session: LiveSession) -> None:
        """This host's session is lost: drop what hangs on it, before others begin."""
        for live in list(self.home.lives.values()):
            if live.session is session:
                self.home.forfeit(live)
