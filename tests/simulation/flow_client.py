"""Who uses flows in a simulation: starts them, signals them, and operates on them.

Owns what was asked for of each flow. Asks again under the same id until it has an answer, as a
careful program does.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from outlive.errors import Conflict, FlowFailed, NotFound, OutliveError
from outlive.host import Host
from tests.simulation.flow_cases import CASES, TTL_S, Case, Program

# Failures of branches come to light one by one.
_MENDED_MAX = 20

# Behind a lost reply, a host goes on until it is answered or its session ends: two ttls at most.
_HEARD_S = 2 * TTL_S


@dataclass(slots=True)
class Wish:
    """One flow that somebody asked for, and what was done to it since."""

    id: str
    case: Case
    input: Any
    signalled: int = 0
    done: set[str] = field(default_factory=set[str])


class FlowClient:
    """The user of one host. ``wishes`` are those of the whole fleet."""

    def __init__(self, fleet: Any, name: str, host: Host, program: Program) -> None:
        self._fleet = fleet
        self._name = name
        self._flows = host.flows
        self._app = program.app
        self._draw: random.Random = fleet.simulation.stream(f"client/{name}")
        self._numbers = itertools.count()
        self.wishes: dict[str, Wish] = fleet.wishes

    async def run(self) -> None:
        """Ask for flows until the chaos is over; then only what is left to be said."""
        while not self._fleet.stopping:
            await asyncio.sleep(self._draw.uniform(0, TTL_S / 2))
            wish = self._wish()
            if await self._started(wish):
                await self._signal(wish)
            if self._draw.random() < 0.5:
                # The newest are the ones that still run.
                await self._operate(self._draw.choice(list(self.wishes.values())[-4:]))

    def _wish(self) -> Wish:
        case = self._draw.choice(list(CASES.values()))
        return Wish(f"{self._name}-{next(self._numbers)}", case, case.draw(self._draw))

    async def _started(self, wish: Wish) -> bool:
        flow = self._app.flows[wish.case.name]
        # Also one without an answer may be there.
        self.wishes[wish.id] = wish
        return await self._ask(lambda: self._flows.start(flow, wish.input, id=wish.id)) is not None

    async def _signal(self, wish: Wish) -> None:
        """Send what it waits for, each when the one before was acknowledged."""
        if not wish.case.signals:
            return
        handle = self._flows.get(wish.id)
        while wish.signalled < wish.input:
            number = wish.signalled
            # One name for one message, whoever sends it again after its first sender died.
            sent = await self._ask(lambda n=number: handle.signal("go", n, id=f"{wish.id}/{n}"))
            if sent is None:
                return
            wish.signalled = max(wish.signalled, number + 1)

    async def _operate(self, wish: Wish) -> None:
        handle = self._flows.get(wish.id)
        act = self._draw.choice(
            ("signal", "cancel", "terminate", "suspend", "resume", "retry", "look")
        )
        if act == "signal":
            await self._signal(wish)
        elif act == "cancel":
            wish.done.add(act)
            await self._ask(handle.cancel)
        elif act == "terminate" and self._draw.random() < 0.3:
            wish.done.add(act)
            await self._ask(lambda: handle.terminate("chaos"))
        elif act == "suspend":
            wish.done.add(act)
            await self._ask(handle.suspend)
            await asyncio.sleep(self._draw.uniform(0, TTL_S))
            await self._ask(handle.resume)
        elif act == "resume":
            await self._ask(handle.resume)
        elif act == "retry" and not wish.case.signals:
            await self._retry(wish)
        else:
            await self._ask(handle.status)

    async def finish(self) -> None:
        """In peace: let all go on that was suspended, and say all that was not said."""
        for wish in list(self.wishes.values()):
            if "suspend" in wish.done:
                await self._ask(self._flows.get(wish.id).resume)
            await self._signal(wish)
            if wish.case.name == "fragile":
                await self._mend(wish)

    async def _retry(self, wish: Wish) -> None:
        """Let it go on, once whoever ended it has heard of that and stopped its steps."""
        await asyncio.sleep(_HEARD_S)
        await self._ask(self._flows.get(wish.id).retry)

    async def _mend(self, wish: Wish) -> None:
        """Retry a flow until nothing of it fails any more."""
        handle = self._flows.get(wish.id)
        for _ in range(_MENDED_MAX):
            try:
                await handle.result(timeout=TTL_S * 10)
            except FlowFailed:
                await self._retry(wish)
            except TimeoutError:
                continue
            except OutliveError:
                return
            else:
                return

    async def _ask(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Ask a few times; ``None`` if there was no answer."""
        for _ in range(5):
            try:
                answer = await call()
            except (Conflict, NotFound):
                # It is not there yet, or not any more.
                return None
            except OutliveError as error:
                self._fleet.seen[f"met {type(error).__name__}"] += 1
                await asyncio.sleep(self._draw.uniform(0, TTL_S / 8))
            else:
                return True if answer is None else answer
        return None
