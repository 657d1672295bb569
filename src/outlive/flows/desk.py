"""What ``host.flows`` and its handles share: the store, the app's definitions, and the host's ears.

Owns the waiting for the end of a flow, wherever it runs.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from outlive.errors import FlowEnded, FlowNotFound, UnsupportedByDriver, UsageError
from outlive.flows.bell import FlowBell
from outlive.flows.claiming import FlowClaimer
from outlive.flows.flow import Flow
from outlive.flows.starting import Starter
from outlive.flows.waiting import End, Waiters
from outlive.model.instance import FINAL, InstanceRecord
from outlive.names import InstanceId
from outlive.ports.driver import Driver
from outlive.runtime.runtime import Runtime
from outlive.runtime.sessions import Sessions
from outlive.telemetry import HostLogs, Telemetry
from outlive.work.bell import Alarm
from outlive.work.claiming import POLL_DEAF_S, POLL_S
from outlive.work.repeating import until_known

if TYPE_CHECKING:
    from outlive.flows.host import FlowHost


# What ends while somebody begins to watch it may ring nobody. So who watches looks again after each
# of these, and then by the poll: the first is longer than a commit takes as a rule, the second
# longer than it takes on a server that has no time.
_DOUBTS_S = (0.02, 0.5)

# How long somebody asks to be told: for many looks, which then read only, and need not be doubted;
# and not much longer than one whose host died is told in vain.
_NOTE_S = 60.0


class FlowDesk:
    """The flows of one namespace, as one connected host reaches them."""

    def __init__(
        self,
        runtime: Runtime,
        driver: Driver,
        sessions: Sessions,
        flows: Mapping[str, Flow[..., Any]],
        *,
        telemetry: Telemetry,
        host_name: str,
        logs: HostLogs,
    ) -> None:
        if driver.instances is None:
            raise UnsupportedByDriver(
                f"{driver.capabilities.backend} does not support flows; "
                "docs/reference/capabilities.md lists the backends that do"
            )
        self.runtime = runtime
        self.driver = driver
        self.store = driver.instances
        self.wakeups = driver.wakeups
        self.sessions = sessions
        self.flows = flows
        self.telemetry = telemetry
        self.host_name = host_name
        self.logs = logs
        self.log = log = logs.logger("outlive.flows")
        self.bell = FlowBell(driver.wakeups)
        self.waiters = Waiters()
        self.claimer = FlowClaimer(runtime, self.store, sessions, host=host_name, log=log)
        self.starter = Starter(self)
        # The one that runs flows here, while ``host.run()`` does.
        self.host: FlowHost | None = None

    def definition(self, flow: Flow[..., Any] | str) -> Flow[..., Any] | None:
        """The definition that is meant, if this process has it.

        Raises:
            UsageError: It is neither a flow nor the name of one.
        """
        if isinstance(flow, str):
            return self.flows.get(flow)
        if not isinstance(flow, Flow):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(
                f"the flow to start must be an @app.flow or the name of a flow, not {flow!r}"
            )
        return flow

    async def record(self, id: InstanceId) -> InstanceRecord:  # noqa: A002 - it is one
        """What the store knows of one flow.

        Raises:
            FlowNotFound: There is none of this id.
        """
        record = await until_known(self.runtime, lambda _: self.store.get(id))
        if record is None or record.kind != "flow":
            raise FlowNotFound(id)
        return record

    def runs_here(self, id: InstanceId) -> bool:  # noqa: A002 - it is one
        """Whether this host has the flow in its memory now."""
        return self.host is not None and id in self.host.home.lives

    async def end_of(self, id: InstanceId) -> End:  # noqa: A002 - it is one
        """Wait until the flow has ended.

        A flow that runs here is waited for without asking the store.

        Raises:
            FlowNotFound: There is none of this id.
            StoreUnavailable, OutcomeUnknown: The store does not answer.
        """
        while True:
            if self.runs_here(id):
                end = await self.waiters.expect(id).wait()
                if end is not None:
                    return end
            end = await self._end_elsewhere(id)
            if end is not None:
                return end

    async def _end_elsewhere(self, id: InstanceId) -> End | None:  # noqa: A002 - it is one
        """Watch a flow that runs on another host, or on none; ``None`` when it came here."""
        watch = _Watch(self.bell, self.runtime, id)
        try:
            while True:
                record = await self._watched(id, watch.asks_us())
                if record.status in FINAL:
                    return record.status, record.outcome
                if self.runs_here(id):
                    return None
                await watch.pause()
        finally:
            watch.end()

    async def _watched(self, id: InstanceId, wait_us: int) -> InstanceRecord:  # noqa: A002
        record = await until_known(self.runtime, lambda _: self.store.get(id, wait_us=wait_us))
        if record is None or record.kind != "flow":
            raise FlowNotFound(id)
        return record

    async def replied(self, id: InstanceId, message: str) -> str:  # noqa: A002 - it is one
        """Wait for the reply of a flow to a message.

        Raises:
            FlowEnded: It ended without a reply.
            FlowNotFound: There is no such flow.
        """
        watch = _Watch(self.bell, self.runtime, id)
        try:
            while True:
                reply = await self.reply_so_far(id, message, wait_us=watch.asks_us())
                if reply is not None:
                    return reply
                await watch.pause()
        finally:
            watch.end()

    async def reply_so_far(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        message: str,
        *,
        wait_us: int = 0,
    ) -> str | None:
        """The reply of a flow to a message, if there is one by now.

        Raises:
            FlowEnded: It ended without a reply.
            FlowNotFound: There is no such flow.
        """
        record = await self.store.get(id, wait_us=wait_us)
        reply = await self.store.reply(id, message)
        if reply is not None:
            return reply
        if record is None:
            raise FlowNotFound(id)
        if record.status in FINAL:
            raise FlowEnded(id, record.status)
        return None

    async def close(self) -> None:
        """Wait for what goes on by itself, and stop listening. Repeatable."""
        await self.claimer.close()
        self.bell.close()


class _Watch:
    """One who waits for a flow elsewhere: when it looks, and when it leaves a note for that."""

    def __init__(self, bell: FlowBell, runtime: Runtime, id: str) -> None:  # noqa: A002 - it is one
        self._bell = bell
        self._clock = runtime.clock
        self._poll_s = POLL_S * runtime.patience
        self._note_s = _NOTE_S * runtime.patience
        self._alarm = Alarm()
        self._noted_until = -math.inf
        self._looks = 0
        self.end = bell.watch(id, self._alarm.ring)

    def asks_us(self) -> int:
        """For how long to be told, at the look that comes now; 0 where a note stands yet."""
        self._alarm.reset()
        now = self._clock.monotonic()
        # It outlives the look behind this one, also if that is answered late.
        if self._noted_until - now > self._note_s / 2:
            return 0
        self._noted_until = now + self._note_s
        self._looks = 0
        return round(self._note_s * 1e6)

    async def pause(self) -> None:
        """Sleep until a ring or the next look."""
        poll_s = POLL_DEAF_S if self._bell.deaf else self._poll_s
        pause_s = _DOUBTS_S[self._looks] if self._looks < len(_DOUBTS_S) else poll_s
        self._looks += 1
        if await self._alarm.sleep(min(pause_s, poll_s)):
            # The note is used up.
            self._noted_until = -math.inf


async def within(timeout_s: float | None, waiting: Any, what: str) -> Any:
    """``await waiting``, for so long at most.

    Raises:
        TimeoutError: Says what did not happen.
    """
    if timeout_s is None:
        return await waiting
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            return await waiting
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TimeoutError(f"{what} within {timeout_s:g} s") from error
