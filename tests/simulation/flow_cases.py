"""The flows that a simulation runs: each kind with its inputs, and what must come of it.

Owns the programs and their expected ends. Bodies of steps note that they ran, and under which
token they believed to.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import outlive
from outlive import App, Retry
from outlive.errors import StepOutcomeUnknown
from outlive.testing.simulation import SimHost
from tests.simulation.oracles.instance_history import InstanceHistory

TTL_S = 2.0

# Often enough that the worst seeds do not run out of attempts, and soon.
RETRY = Retry(max_attempts=1000, first=0.05, longest=0.2)

# Bodies last a while, so that hosts are stopped and killed in the middle of some.
STEP_S = TTL_S / 4
NAPS_S = (0.01, 0.3, TTL_S)


class World(Protocol):
    """What the flows of one run share."""

    stopping: bool

    @property
    def flows(self) -> InstanceHistory:
        """Where it is noted what ran."""
        ...


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of flow. ``ends`` are the results, or the status, that an input may come to.

    ``suspended`` are those of one that was suspended: its steps go on then, and no timer fires.
    """

    name: str
    draw: Callable[[random.Random], Any]
    ends: Callable[[Any], tuple[Any, ...]]
    signals: bool = False
    suspended: tuple[Any, ...] = ()


def _same(value: Any) -> Callable[[Any], tuple[Any, ...]]:
    return lambda _: (value,)


CASES = {
    case.name: case
    for case in (
        Case("chain", lambda draw: draw.randrange(1, 6), lambda n: (sum(range(n)),)),
        Case("nap", lambda draw: draw.choice(NAPS_S), _same(3)),
        Case("fan", lambda draw: draw.randrange(1, 8), lambda n: (2 * sum(range(n)),)),
        Case("inbox", lambda draw: draw.randrange(1, 5), lambda n: ([*range(n)],), signals=True),
        Case("family", lambda draw: draw.randrange(1, 4), lambda n: ([0, 0, 1, 3][1 : n + 1],)),
        Case("booking", lambda draw: draw.random() < 0.5, lambda bad: ("failed" if bad else 2,)),
        Case("payment", lambda draw: draw.randrange(9), lambda n: (n, "unknown")),
        Case("patience", lambda draw: draw.choice(NAPS_S), _same("waited")),
        Case("first", lambda draw: draw.choice(NAPS_S), lambda _: ("napped", "added")),
        Case("again", lambda draw: draw.randrange(3), _same("done")),
        Case("far", lambda draw: draw.randrange(1, 3), lambda n: (n * n,)),
        # Its failures are mended in the end.
        Case("fragile", lambda draw: draw.randrange(2, 5), lambda n: (sum(range(n)) * 3 + n,)),
        Case(
            "slow",
            lambda draw: draw.random() < 0.5,
            lambda cut: ("cut" if cut else 1,),
            suspended=(1,),
        ),
    )
}


class Program:
    """The app of one host: the same definitions on each, noting on which they run."""

    def __init__(self, world: World, host: SimHost, draw: random.Random) -> None:
        self._world = world
        self._host = host
        self._draw = draw
        self.app = App("simulated")
        self._define_steps()
        self._define_plain()
        self._define_waiting()
        self._define_joined()

    async def _work(self, said: Any, *, once: bool = False) -> None:
        me = outlive.current()
        flow = me.flow
        assert flow is not None
        said_so = json.dumps(said)
        note, key = self._world.flows.run, me.idempotency_key
        note(self._host.name, flow, key, me.token, input=said_so, once=once)
        await asyncio.sleep(self._draw.uniform(0, STEP_S))
        # Whoever goes on in a body after its host was lost is found out here.
        note(self._host.name, flow, key, me.token, input=said_so)

    def _define_steps(self) -> None:
        app = self.app

        @app.step(retry=RETRY)
        async def add(one: int, other: int) -> int:
            await self._work([one, other])
            if not self._world.stopping and self._draw.random() < 0.1:
                raise RuntimeError("chaos")
            return one + other

        @app.step
        async def brittle(number: int) -> int:
            await self._work([number])
            if not self._world.stopping and self._draw.random() < 0.4:
                raise ValueError("chaos")
            return number

        @app.step
        async def refuse(reason: str) -> None:
            await self._work([reason])
            raise ValueError(reason)

        @app.step(once=True)
        async def pay(amount: int) -> int:
            await self._work([amount], once=True)
            return amount

        @app.step(queue="far", retry=RETRY)
        async def square(number: int) -> int:
            await asyncio.sleep(self._draw.uniform(0, STEP_S))
            return number * number

        @app.step
        async def linger(seconds: float) -> int:
            await self._work([seconds])
            await asyncio.sleep(seconds)
            return 1

        self.add, self.refuse, self.pay, self.square, self.linger = add, refuse, pay, square, linger
        self.brittle = brittle

    def _define_plain(self) -> None:
        app, add = self.app, self.add

        @app.flow
        async def chain(count: int) -> int:
            total = 0
            for number in range(count):
                total = await add(total, number)
            return total

        @app.flow
        async def fan(count: int) -> int:
            return sum(await asyncio.gather(*(add(number, number) for number in range(count))))

        @app.flow
        async def payment(amount: int) -> int | str:
            try:
                return await self.pay(amount)
            except StepOutcomeUnknown:
                return "unknown"

        @app.flow
        async def again(left: int) -> str:
            await add(left, 0)
            if left:
                outlive.continue_as_new(left - 1)
            return "done"

        @app.flow
        async def far(number: int) -> int:
            return await self.square(number)

        self.chain = chain

    def _define_waiting(self) -> None:
        app, add = self.app, self.add

        @app.flow
        async def nap(seconds: float) -> int:
            two = await add(1, 1)
            await asyncio.sleep(seconds)
            return await add(two, 1)

        @app.flow
        async def inbox(count: int) -> list[int]:
            got: list[int] = []
            for _ in range(count):
                got.append(await outlive.wait_signal("go", int))
                await add(got[-1], 0)
            return got

        @app.flow
        async def patience(seconds: float) -> str:
            try:
                async with asyncio.timeout(seconds):
                    await outlive.wait_signal("never", int)
            except TimeoutError:
                await add(0, 0)
            return "waited"

        @app.flow
        async def slow(cut: bool) -> int | str:
            try:
                return await asyncio.wait_for(
                    self.linger(60.0 if cut else 0.01), 0.5 if cut else 99
                )
            except TimeoutError:
                return "cut"

    def _define_joined(self) -> None:
        app, add, chain = self.app, self.add, self.chain

        @app.flow
        async def family(count: int) -> list[int]:
            children = [chain(number) for number in range(1, count + 1)]
            return list(await asyncio.gather(*children))

        @app.flow
        async def booking(bad: bool) -> int:
            async with outlive.saga() as saga:
                one = await add(0, 1)
                saga.add(add, -1, 0)
                two = await add(one, 1)
                saga.add(add, -2, 0)
                if bad:
                    await self.refuse("sold out")
            return two

        @app.flow
        async def fragile(count: int) -> int:
            """Branches go on beside one that fails, and what they do is not done again."""

            async def branch(number: int) -> int:
                one = await add(number, 0) + await self.brittle(number)
                other = outlive.start_child(chain, 2, on_parent_end="abandon")
                return one + await add(number, 0) + await other

            branches = [branch(number) for number in range(count)]
            done = await asyncio.gather(*branches, return_exceptions=True)
            errors = [each for each in done if isinstance(each, BaseException)]
            if errors:
                raise errors[-1]
            return sum(each for each in done if isinstance(each, int))

        @app.flow
        async def first(seconds: float) -> str:
            napping = asyncio.create_task(asyncio.sleep(seconds))
            adding = asyncio.create_task(_awaited(add(1, 2)))
            done, _ = await asyncio.wait({napping, adding}, return_when="FIRST_COMPLETED")
            return "napped" if napping in done else "added"


async def _awaited(call: Any) -> Any:
    return await call
