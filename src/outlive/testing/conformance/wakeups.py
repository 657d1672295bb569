"""The suite of the ``Wakeups`` port: hints reach the hosts they are meant for, and no others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import pytest

from outlive.names import HostId
from outlive.ports.wakeups import Wakeup
from outlive.testing.conformance.lab import LONG_S, Lab, Member, scenario

# A hint arrives within milliseconds; a loaded machine gets much longer before a test fails.
ARRIVES_WITHIN_S = 10.0
# How long to listen before calling it silence. Longer would only find later mistakes.
SILENCE_S = 0.15
# More than a host takes in while it is busy, and what a busy minute brings.
BURST = 300
# Hosts that are rung work off a handful of things in far less than this, on a slow machine too.
CAUGHT_UP_WITHIN_S = 10.0


class Bell:
    """Collects the hints that reach one host."""

    def __init__(self, member: Member) -> None:
        self.heard: asyncio.Queue[Wakeup] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self.stop = member.wakeups.subscribe(self._hear)

    def _hear(self, wakeup: Wakeup) -> None:
        assert asyncio.get_running_loop() is self._loop
        self.heard.put_nowait(wakeup)

    async def next(self) -> Wakeup:
        """The next hint; the test fails if none arrives."""
        async with asyncio.timeout(ARRIVES_WITHIN_S):
            return await self.heard.get()

    async def next_or(self, again_s: float | None) -> None:
        """Wait for a hint, or until the store wants to be asked again, if the answer said so."""
        async with asyncio.timeout(ARRIVES_WITHIN_S):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(again_s):
                    await self.heard.get()

    async def stays_silent(self) -> None:
        """The test fails if a hint arrives within a short while."""
        await asyncio.sleep(SILENCE_S)
        assert self.heard.empty(), f"a hint that was not meant: {self.heard.get_nowait()}"


class Claimant(Protocol):
    """A host of a lab that claims jobs or instances."""

    member: Member

    async def ask(self, limit: int = 1, *, wait: float = 0) -> Any:
        """Claim what is ready; leave a note for ``wait`` seconds if that is too little."""
        ...


async def work_off(
    crew: Sequence[Claimant],
    claims_of: Callable[[Any], Sequence[Any]],
    put: Callable[[str], Awaitable[object]],
    finish: Callable[[Any, Any], Awaitable[object]],
) -> None:
    """Let a crew that waits claim and finish what is put meanwhile; nothing may be missed."""
    total, done = 60, asyncio.Event()
    found: list[str] = []

    async def run(one: Claimant) -> None:
        bell = Bell(one.member)
        while len(found) < total:
            answer = await one.ask(2, wait=LONG_S)
            claims = claims_of(answer)
            for claimed in claims:
                found.append(claimed.id)
                await finish(one, claimed)
            if len(claims) < 2 and len(found) < total:
                # Asks again only for a hint, or when the store said so.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(answer.next_due_s):
                        await bell.heard.get()
        done.set()

    async def feed() -> None:
        for number in range(total):
            await put(f"x{number}")
            await asyncio.sleep(0.001 * (number % 4))

    tasks = [asyncio.create_task(run(one)) for one in crew]
    try:
        await feed()
        async with asyncio.timeout(CAUGHT_UP_WITHIN_S):
            await done.wait()
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks)
    assert sorted(found) == sorted(f"x{number}" for number in range(total))


class WakeupsSuite:
    """What every ``Wakeups`` port does. A subclass defines the ``lab`` fixture."""

    @pytest.fixture
    def lab(self) -> Lab:
        raise AssertionError("a driver's suite defines a fixture that returns its Lab")

    @scenario
    async def test_a_hint_reaches_the_host_it_is_meant_for(self, lab: Lab) -> None:
        lab.require("push")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        bell_b, bell_c = Bell(b), Bell(c)
        await a.wakeups.ring(Wakeup("jobs/mail", 7, 2), host=b.id)
        assert await bell_b.next() == Wakeup("jobs/mail", 7, 2)
        await bell_c.stays_silent()

    @scenario
    async def test_a_hint_for_all_reaches_all_hosts(self, lab: Lab) -> None:
        lab.require("push")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        bells = [Bell(member) for member in (a, b, c)]
        await a.wakeups.ring(Wakeup("jobs/mail"))
        for bell in bells:
            assert await bell.next() == Wakeup("jobs/mail")

    @scenario
    async def test_a_host_can_ring_itself(self, lab: Lab) -> None:
        lab.require("push")
        a = await lab.host("a")
        bell = Bell(a)
        await a.wakeups.ring(Wakeup("t"), host=a.id)
        assert await bell.next() == Wakeup("t")

    @scenario
    async def test_hosts_of_one_name_are_different_hosts(self, lab: Lab) -> None:
        lab.require("push")
        first, second = await lab.host("a"), await lab.host("a")
        bell_first, bell_second = Bell(first), Bell(second)
        await first.wakeups.ring(Wakeup("t"), host=second.id)
        assert await bell_second.next() == Wakeup("t")
        await bell_first.stays_silent()

    @scenario
    async def test_hints_stay_in_their_namespace(self, lab: Lab) -> None:
        lab.require("push")
        a = await lab.host("a", "one")
        b = await lab.host("b", "two")
        bell = Bell(b)
        await a.wakeups.ring(Wakeup("t"))
        await a.wakeups.ring(Wakeup("t"), host=b.id)
        await bell.stays_silent()

    @scenario
    async def test_every_listener_of_a_host_hears(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await lab.host("a"), await lab.host("b")
        bells = [Bell(b), Bell(b)]
        await a.wakeups.ring(Wakeup("t"), host=b.id)
        for bell in bells:
            assert await bell.next() == Wakeup("t")

    @scenario
    async def test_who_unsubscribed_hears_nothing(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await lab.host("a"), await lab.host("b")
        gone, stays = Bell(b), Bell(b)
        gone.stop()
        gone.stop()
        await a.wakeups.ring(Wakeup("t"), host=b.id)
        assert await stays.next() == Wakeup("t")
        await gone.stays_silent()

    @scenario
    async def test_a_broken_listener_does_not_deafen_the_others(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await lab.host("a"), await lab.host("b")

        def broken(_: Wakeup) -> None:
            raise RuntimeError("a listener with a mistake in it")

        b.wakeups.subscribe(broken)
        bell = Bell(b)
        for _ in range(2):
            await a.wakeups.ring(Wakeup("t"), host=b.id)
            assert await bell.next() == Wakeup("t")

    @scenario
    async def test_ringing_for_a_host_that_is_gone_is_harmless(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        Bell(b)
        await b.driver.close()
        await a.wakeups.ring(Wakeup("t"), host=b.id)
        await a.wakeups.ring(Wakeup("t"), host=HostId("never-was"))
        await a.wakeups.ring(Wakeup("t"))

    @scenario
    async def test_topics_arrive_as_they_were_sent(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await lab.host("a"), await lab.host("b")
        bell = Bell(b)
        for topic in ("lease/a/b", "it's; --", "x:y,z|w", "\U0001f511", "t" * 518):
            await a.wakeups.ring(Wakeup(topic, 2**40, 3), host=b.id)
            assert await bell.next() == Wakeup(topic, 2**40, 3)

    @scenario
    async def test_of_a_burst_of_hints_each_arrives(self, lab: Lab) -> None:
        # Each is about something else, and whoever waits for that hears of nothing else.
        lab.require("push")
        a, b = await lab.host("a"), await lab.host("b")
        bell = Bell(b)
        sent = [Wakeup(f"instance/{number}") for number in range(BURST)]
        for wakeup in sent:
            await a.wakeups.ring(wakeup, host=b.id)
        heard = {await bell.next() for _ in sent}
        assert heard == set(sent)

    @scenario
    async def test_who_listens_knows_that_hints_arrive(self, lab: Lab) -> None:
        lab.require("push")
        a = await lab.host("a")
        bell = Bell(a)
        await a.wakeups.ring(Wakeup("t"), host=a.id)
        await bell.next()
        assert not a.wakeups.deaf
