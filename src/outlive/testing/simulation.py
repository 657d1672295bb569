"""A fleet in one thread: hosts with clocks of their own, on a seeded loop, in true time.

Owns true time, the hosts and their incarnations. Must never decide what goes wrong: that is the
fault plan's part. One seed is one run, so a failure repeats from its number.
"""

from __future__ import annotations

import asyncio
import gc
import random
from bisect import bisect_right
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any, TypeVar

from outlive.errors import UsageError
from outlive.model.options import CLOCK_DRIFT
from outlive.runtime.running_loop import running_loop
from outlive.testing.loop import STEPS_MAX, LoopHost, VirtualLoop, context_of

T = TypeVar("T")

# Wide enough to hold a leap-second table, far from any edge of datetime after jumps of days.
_EPOCH = datetime(2031, 5, 17, 12, 0, 0, tzinfo=UTC)

# Beyond the documented drift only fencing is promised; a tenth is far beyond any real machine.
DRIFT_BEYOND = 0.1

# Machines do not boot together: their monotonic clocks differ by up to a day.
_UPTIME_MAX_S = 86_400.0

# A wall clock jumps a day either way about this often, in true seconds.
_JUMP_EVERY_S = 3.0
_JUMPS_MAX = 200


class Unhandled(RuntimeError):
    """A task or callback failed and nobody looked. ``errors`` are the loop's reports."""

    def __init__(self, seed: int, errors: list[dict[str, Any]]) -> None:
        lines = [f"{error.get('message')}: {error.get('exception')!r}" for error in errors]
        super().__init__(f"seed {seed}: unhandled errors:\n" + "\n".join(lines))
        self.errors = errors


class TrueClock:
    """The simulation's own time; give it to the store."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        """Wall time without any jump."""
        return _EPOCH + timedelta(seconds=self._loop.now)

    def monotonic(self) -> float:
        """True seconds."""
        return self._loop.now

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running loop."""
        await asyncio.sleep(max(0.0, seconds))


class HostClock:
    """The clocks of one machine: a wall clock that jumps, a monotonic clock with its own rate.

    When the wall jumps is fixed beforehand, so that a run without jumps is the same in all else.
    """

    def __init__(self, loop: VirtualLoop, host: LoopHost, jumps: list[tuple[float, float]]) -> None:
        self._loop = loop
        self._host = host
        self._at = [at for at, _ in jumps]
        self._sums = list(accumulate((by for _, by in jumps), initial=0.0))

    @property
    def jumps(self) -> int:
        """How often the wall clock has jumped until now."""
        return bisect_right(self._at, self._loop.now)

    def now(self) -> datetime:
        """The wall clock, wrong by whole days at times."""
        return _EPOCH + timedelta(seconds=self._loop.now + self._sums[self.jumps])

    def monotonic(self) -> float:
        """Seconds by this machine's own rate."""
        return self._host.local_at(self._loop.now)

    async def sleep(self, seconds: float) -> None:
        """Sleep by this machine's own rate."""
        await asyncio.sleep(max(0.0, seconds))


class SimHost(LoopHost):
    """One incarnation of one simulated machine."""

    def __init__(self, simulation: Simulation, name: str, incarnation: int) -> None:
        draw = simulation.stream(f"machine/{name}")
        drift = simulation.drift_max
        # Half of the machines sit at the very edge of what is allowed, where bugs are.
        rate = 1 + draw.choice((-drift, drift, draw.uniform(-drift, drift)))
        super().__init__(f"{name}#{incarnation}", rate=rate, offset=draw.uniform(0, _UPTIME_MAX_S))
        self.machine = name
        self.incarnation = incarnation
        self._simulation = simulation
        self.clock = HostClock(simulation.loop, self, simulation.jumps_of(name))
        self.gone: asyncio.Future[None] = simulation.loop.create_future()
        self._resume_at = 0.0

    def spawn(self, main: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Start ``main`` on this host."""
        label = f"{self.name}/{name or getattr(main, '__name__', 'task')}"
        return self._simulation.loop.create_task(main, name=label, context=context_of(self))

    async def join(self, task: asyncio.Task[Any]) -> bool:
        """Wait until ``task`` is done or the host has crashed; whether it is done."""
        await asyncio.wait((task, self.gone), return_when=asyncio.FIRST_COMPLETED)
        return task.done()

    def crash(self) -> None:
        """Stop for good, like SIGKILL: nothing of this incarnation ever runs again."""
        if not self.crashed:
            self._simulation.loop.crash(self)
            self.gone.set_result(None)

    def pause(self, duration: float) -> None:
        """Stop, like SIGSTOP, and go on after ``duration`` true seconds; its clock goes on."""
        if self.crashed:
            return
        loop = self._simulation.loop
        self._resume_at = max(self._resume_at, loop.now + duration)
        loop.pause(self)
        world = context_of(None)
        world.run(loop.call_at, self._resume_at, self.resume)

    def resume(self, *, at_once: bool = False) -> None:
        """Go on, unless a longer pause was asked for meanwhile."""
        loop = self._simulation.loop
        if at_once or loop.now >= self._resume_at:
            self._resume_at = 0.0
            loop.resume(self)


class Simulation:
    """One seeded run.

    ``drift_max`` bounds the rate difference between hosts and store: within ``CLOCK_DRIFT``
    everything is promised, beyond it everything but L3. ``wall_jumps=False`` leaves the wall
    clocks alone and changes nothing else.
    """

    def __init__(
        self,
        seed: int,
        *,
        drift_max: float = CLOCK_DRIFT,
        wall_jumps: bool = True,
        steps_max: int = STEPS_MAX,
    ) -> None:
        self.seed = seed
        self.drift_max = drift_max
        self.loop = VirtualLoop(seed, steps_max=steps_max)
        self.clock = TrueClock(self.loop)
        self.hosts: dict[str, SimHost] = {}
        self._wall_jumps = wall_jumps
        self._incarnations: dict[str, int] = {}
        # The same for each incarnation of a machine.
        self._jumps: dict[str, list[tuple[float, float]]] = {}

    @property
    def now(self) -> float:
        """True time in seconds."""
        return self.loop.now

    def stream(self, name: str) -> random.Random:
        """A random stream of its own: drawing from it disturbs no other."""
        return random.Random(f"{self.seed}/{name}")  # noqa: S311

    def jumps_of(self, machine: str) -> list[tuple[float, float]]:
        """When and by how much the wall clock of ``machine`` jumps."""
        if not self._wall_jumps:
            return []
        if machine not in self._jumps:
            self._jumps[machine] = self._drawn_jumps(machine)
        return self._jumps[machine]

    def _drawn_jumps(self, machine: str) -> list[tuple[float, float]]:
        draw = self.stream(f"wall/{machine}")
        at = 0.0
        jumps: list[tuple[float, float]] = []
        for _ in range(_JUMPS_MAX):
            at += draw.expovariate(1 / _JUMP_EVERY_S)
            jumps.append((at, draw.choice((-86_400.0, 86_400.0))))
        return jumps

    def start_host(self, name: str) -> SimHost:
        """Start a machine, or the next incarnation of one whose last has crashed."""
        incarnation = self._incarnations.get(name, -1) + 1
        self._incarnations[name] = incarnation
        host = SimHost(self, name, incarnation)
        self.hosts[name] = host
        return host

    def run(self, main: Callable[[Simulation], Coroutine[Any, Any, T]]) -> T:
        """Run ``main`` outside of all hosts until it returns; then everything left is dropped.

        Raises:
            UsageError: It was called inside a running event loop, which is left as it was.
            Unhandled: A task or callback failed and nobody looked.
            Deadlock: Nothing will ever happen again.
            StepLimit: Something spins.
        """
        if running_loop() is not None:
            raise UsageError(
                "World.run() and the like start a loop of their own: call them from a plain "
                "`def test_…`, not from async code"
            )
        # The collector runs finalizers at moments that depend on the heap, not on the seed.
        collecting = gc.isenabled()
        gc.disable()
        try:
            result = self.loop.run_until_complete(main(self))
            unhandled = list(self.loop.unhandled)
        finally:
            self.loop.close()
            if collecting:
                gc.enable()
        if unhandled:
            raise Unhandled(self.seed, unhandled)
        return result
