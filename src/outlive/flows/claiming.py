"""Claiming of flows: asks the store for instances under this host's session.

Owns the requests, each with an id of its own, so that a lost reply is asked for again and nothing
is claimed twice or left behind: what arrives too late, or for nobody, is given back.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from msgspec.structs import replace

from outlive.errors import LeaseLost, OutcomeUnknown, OutliveError
from outlive.model.instance import (
    CLAIM_MAX,
    ClaimedInstance,
    ClaimedInstances,
    Handback,
    InstanceClaimRequest,
)
from outlive.names import InstanceId
from outlive.ports.instance_store import InstanceStore
from outlive.runtime.runtime import Runtime
from outlive.runtime.session import LiveSession
from outlive.runtime.sessions import Sessions
from outlive.work.repeating import until_known, while_held
from outlive.work.strays import Held, Strays

Claim = tuple[LiveSession, ClaimedInstances]
"""What was claimed, and the session that it hangs on."""


class FlowClaimer:
    """Makes the claims of one host for its flows."""

    def __init__(
        self,
        runtime: Runtime,
        store: InstanceStore,
        sessions: Sessions,
        *,
        host: str,
        log: logging.Logger,
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._host = host
        self._log = log
        self._numbers = itertools.count(1)
        self._later: set[asyncio.Task[Any]] = set()
        self._strays = Strays(runtime, log)
        self.sessions = sessions

    async def ask(
        self,
        names: tuple[str, ...],
        limit: int,
        *,
        wait_s: float,
        unwanted: Callable[[ClaimedInstance, LiveSession], None],
    ) -> Claim:
        """Claim once, asking again for a reply that was lost.

        Goes on when the caller is cancelled; what it is given then goes to ``unwanted``.

        Raises:
            LeaseLost: This host's session has ended, and no new one stands yet.
            StoreError: The store did not answer. What it may have claimed is given back later.
        """
        asking: asyncio.Task[Claim] = self._runtime.spawn(
            self._ask(names, limit, wait_s), name="outlive-flow-claim"
        )
        try:
            # Not by `shield`: from Python 3.14 on that tells of errors which come when nobody
            # waits any more.
            await asyncio.wait((asking,))
            return asking.result()
        except asyncio.CancelledError:
            self.later(self._give_back(asking, unwanted))
            raise

    async def _give_back(
        self,
        asking: asyncio.Task[Claim],
        unwanted: Callable[[ClaimedInstance, LiveSession], None],
    ) -> None:
        try:
            session, claimed = await asking
        except (OutliveError, asyncio.CancelledError) as error:
            self._log.warning(
                "could not release the flows of a cancelled claim; they are released when this "
                "host's session expires: %s",
                error,
            )
            return
        for each in claimed.instances:
            unwanted(each, session)

    async def _ask(self, names: tuple[str, ...], limit: int, wait_s: float) -> Claim:
        session, repeated = await self.sessions.held(), False
        request = InstanceClaimRequest(
            session=session.id,
            worker=self._host,
            request=f"{session.id}-f{next(self._numbers):x}",
            kind="flow",
            names=names,
            limit=min(limit, CLAIM_MAX),
            wait_us=round(wait_s * 1e6),
        )

        async def once(tries: int) -> ClaimedInstances:
            nonlocal repeated
            repeated = tries > 0
            return await self._store.claim(replace(request, again=True) if tries else request)

        try:
            claimed = await until_known(self._runtime, once)
        except LeaseLost:
            self.sessions.doubt(session)
            raise
        except OutcomeUnknown:
            self.later(self._find_out(request, session))
            raise
        if repeated:
            self._watch(request, session, claimed.instances)
        return session, claimed

    async def _find_out(self, request: InstanceClaimRequest, session: LiveSession) -> None:
        """Learn what a claim without an answer was given, and give it back."""
        look = replace(request, again=True, limit=0, wait_us=0)

        async def give_back() -> None:
            claimed = await self._store.claim(look)
            if claimed.instances:
                backs = [Handback(each.id, each.token, due=True) for each in claimed.instances]
                await self._store.release(backs)

        try:
            await while_held(self._runtime, session, give_back)
            self._watch(request, session)
        except OutliveError as error:
            self._log.warning(
                "lost the reply to a claim; any flows it claimed are released when this host's "
                "session expires: %s",
                error,
            )

    def _watch(
        self,
        request: InstanceClaimRequest,
        session: LiveSession,
        known: Sequence[ClaimedInstance] = (),
    ) -> None:
        look = replace(request, again=True, limit=0, wait_us=0)

        async def find() -> list[Held]:
            return [(each.id, each.token) for each in (await self._store.claim(look)).instances]

        async def give_back(strays: Sequence[Held]) -> None:
            await self._store.release(
                [Handback(InstanceId(flow), token, due=True) for flow, token in strays]
            )

        self._strays.watch(find, give_back, session, [(each.id, each.token) for each in known])

    def later(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run something to its end beside the caller; ``close`` waits for it."""
        task = self._runtime.spawn(coroutine, name="outlive-flow-cleanup")
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def close(self) -> None:
        """Wait for what goes on by itself. Repeatable."""
        here = asyncio.get_running_loop()
        while mine := [task for task in list(self._later) if task.get_loop() is here]:
            await asyncio.wait(mine)
        await self._strays.close()
