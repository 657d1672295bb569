"""The session that this host's claims hang on, as features see it.

Owns the waiting for one after the last was lost, and the way on which its loss reaches the event
loop that runs things under it. Opening and renewing are the heartbeat's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from outlive.errors import LeaseLost, UsageError
from outlive.runtime.heartbeat import Heartbeat
from outlive.runtime.keeper import Keeper
from outlive.runtime.runtime import Runtime
from outlive.runtime.session import LiveSession

# A session that the store refused is opened anew by the keeper; look again this often.
_LOOK_S = 0.05


class Sessions:
    """The sessions of one host, one after the other. Without ``kept`` there are none."""

    def __init__(
        self,
        runtime: Runtime,
        heartbeat: Heartbeat,
        keeper: Keeper,
        *,
        kept: bool,
        log: logging.Logger,
    ) -> None:
        self._clock = runtime.clock
        self._heartbeat = heartbeat
        self._keeper = keeper
        # A tool that keeps no session has nothing that a claim could hang on.
        self.kept = kept
        self.closed = False
        self._log = log

    @property
    def now(self) -> LiveSession:
        """The newest session, held or not."""
        return self._heartbeat.live

    @property
    def ttl_s(self) -> float:
        """How long peers wait for a host that died."""
        return self._heartbeat.ttl_s

    def on_lost(self, listener: Callable[[LiveSession], None]) -> Callable[[], None]:
        """Call ``listener`` on the running loop with each session that is lost, until ended."""
        loop = asyncio.get_running_loop()

        def post(session: LiveSession) -> None:
            try:
                loop.call_soon_threadsafe(listener, session)
            except RuntimeError:
                # The loop has closed: nothing runs on it any more.
                self._log.debug(
                    "the loss of session %s was not reported: the event loop is closed", session.id
                )

        return self._heartbeat.on_lost(post)

    def doubt(self, session: LiveSession) -> None:
        """The store refused a session that we believe in: let the keeper look at it now."""
        self._heartbeat.doubt(session)
        self._keeper.wake()

    async def held(self) -> LiveSession:
        """The session, waiting for the keeper to open one if the last was lost.

        Raises:
            LeaseLost: No new one could be opened for a whole ttl.
            UsageError: The host was closed, or keeps no session.
        """
        until = None
        while True:
            if self.closed:
                raise UsageError("this connection is closed; connect again")
            if not self.kept:
                raise UsageError("a claim needs a host session: connect with session=True")
            session = self._heartbeat.live
            if session.held:
                return session
            now = self._clock.monotonic()
            until = now + self._heartbeat.ttl_s if until is None else until
            if now >= until:
                raise LeaseLost(
                    f"host/{session.id}",
                    "expired",
                    "this host's session was lost, and no new session could be opened: check that "
                    "the store answers, then claim again",
                )
            await self._clock.sleep(_LOOK_S)
