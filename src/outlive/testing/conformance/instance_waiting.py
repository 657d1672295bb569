"""Cases of rings: who waits, owns or watches hears of what concerns it, and nobody else.

All of them ask for the promise ``push``.
"""

from __future__ import annotations

import asyncio
from typing import Any

from outlive.names import HostId, InstanceId
from outlive.ports.wakeups import Wakeup
from outlive.testing.conformance.instance_runner import Runner, message, runner, runners
from outlive.testing.conformance.job_worker import PAST_S, SOON_S
from outlive.testing.conformance.lab import LONG_S, Lab, scenario
from outlive.testing.conformance.wakeups import Bell, work_off

RING = Wakeup("instances/flow/f")


async def wait(one: Runner, *, for_s: float = LONG_S, **fields: Any) -> Bell:
    """Listen, then find nothing and leave a note."""
    bell = Bell(one.member)
    assert await one.claim(wait=for_s, **fields) == []
    return bell


class WaitingCases:
    """Whatever makes an instance claimable rings those who wait."""

    @scenario
    async def test_a_start_rings(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        bell = await wait(b)
        await a.put("i")
        assert await bell.next() == RING
        assert await b.ids() == ["i"]

    @scenario
    async def test_a_start_of_a_commit_rings(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        bell = await wait(b)
        await a.advance(await a.own("i"), starts=(a.new("child"),))
        assert await bell.next() == RING
        assert await b.ids() == ["child"]

    @scenario
    async def test_a_release_rings(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        held = await a.own("i")
        bell = await wait(b)
        await a.release(held, due=True)
        assert await bell.next() == RING
        assert await b.ids() == ["i"]

    @scenario
    async def test_a_commit_that_parks_what_is_due_rings(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        held = await a.own("i")
        bell = await wait(b)
        await a.advance(held, release=True, due_at_us=0)
        assert await bell.next() == RING
        assert await b.ids() == ["i"]

    @scenario
    async def test_a_commit_that_parks_with_letters_rings(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        held = await a.own("i")
        await a.send("i", "m")
        bell = await wait(b)
        await a.advance(held, release=True)
        assert await bell.next() == RING
        assert await b.ids() == ["i"]

    @scenario
    async def test_a_letter_for_what_is_parked_rings(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        await a.park("i", "j", "k")
        for sending in ("send", "commit", "terminate"):
            bell = await wait(b)
            if sending == "send":
                await a.send("i", "m")
            elif sending == "commit":
                await a.advance(await a.own("sender"), sends=(message("j", "m"),))
            else:
                await a.terminate("sender", sends=[message("k", "m")])
            assert await bell.next() == RING
            bell.stop()
            assert len(await b.claim()) == 1

    @scenario
    async def test_a_reclaim_rings(self, lab: Lab) -> None:
        lab.require("push")
        a, b, gone = await runners(lab, 3)
        await gone.own("i")
        bell = await wait(b)
        await gone.end()
        assert await a.reclaim() == ["i"]
        assert await bell.next() == RING
        assert await b.ids() == ["i"]

    @scenario
    async def test_a_resumed_instance_rings(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        await a.park("i")
        await a.suspend("i")
        bell = await wait(b)
        await a.resume("i")
        assert await bell.next() == RING
        assert await b.ids() == ["i"]

    @scenario
    async def test_a_reopened_instance_rings(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        await a.put_ended("i")
        bell = await wait(b)
        await a.reopen("i", 2)
        assert await bell.next() == RING
        assert await b.ids() == ["i"]

    @scenario
    async def test_a_host_waits_for_several_definitions(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        bell = await wait(b, names=("f", "it's", "y/z"))
        await a.put("1", name="it's")
        assert await bell.next() == Wakeup("instances/flow/it's")
        await a.put("2", name="y/z")
        assert await bell.next() == Wakeup("instances/flow/y/z")

    @scenario
    async def test_who_waits_for_the_session_of_another_is_rung_itself(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        guest = await b.open_session(HostId(f"guest-of-{b.id}"))
        bell = await wait(b, session=guest)
        await a.put("i")
        assert await bell.next() == RING

    @scenario
    async def test_somebody_hears_of_each_letter_that_was_rung_for(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        await a.park("parked")
        await a.own("owned")
        waiting = await wait(b)
        await a.instances.ring([InstanceId("parked"), InstanceId("never")])
        assert await waiting.next() == RING
        owning = Bell(a.member)
        await b.instances.ring([InstanceId("owned")])
        assert await owning.next() == Wakeup("mail/owned")

    @scenario
    async def test_notes_of_hosts_that_died_keep_no_ring_from_the_living(self, lab: Lab) -> None:
        lab.require("push")
        a, *gone, b = await runners(lab, 5)
        for one in gone:
            await wait(one)
        bell = await wait(b, for_s=2 * LONG_S)
        await a.put("i")
        assert await bell.next() == RING
        assert await b.ids() == ["i"]


class SilenceCases:
    """No note, no ring."""

    @scenario
    async def test_who_does_not_wait_is_not_rung(self, lab: Lab) -> None:
        lab.require_silence()
        a, b = await runners(lab, 2)
        bell = Bell(b.member)
        await b.claim()
        await a.put("i")
        await bell.stays_silent()

    @scenario
    async def test_who_had_enough_is_not_rung(self, lab: Lab) -> None:
        lab.require_silence()
        a, b = await runners(lab, 2)
        await a.put("i")
        bell = Bell(b.member)
        assert len(await b.claim(1, wait=LONG_S)) == 1
        await a.put("j")
        await bell.stays_silent()

    @scenario
    async def test_nobody_is_rung_for_what_cannot_be_claimed(self, lab: Lab) -> None:
        lab.require_silence()
        a, b = await runners(lab, 2)
        await a.park("suspended")
        await a.suspend("suspended")
        bell = await wait(b)
        await a.put("later", delay=LONG_S)
        await a.put("other", name="g")
        await a.put("chart", kind="chart")
        held = await a.own("owned")
        await a.advance(held, release=True)
        await a.send("suspended", "m")
        await bell.stays_silent()

    @scenario
    async def test_a_note_ends_with_its_time(self, lab: Lab) -> None:
        lab.require_silence()
        a, b = await runners(lab, 2)
        held = await a.own("watched")
        bell = Bell(b.member)
        await b.claim(wait=SOON_S)
        await b.instances.get(InstanceId("watched"), wait_us=round(SOON_S * 1e6))
        await lab.advance(SOON_S + PAST_S)
        await a.put("i")
        await a.finish(held)
        await bell.stays_silent()

    @scenario
    async def test_who_only_looks_or_owns_no_more_hears_nothing(self, lab: Lab) -> None:
        lab.require_silence()
        a, b = await runners(lab, 2)
        held = await a.own("i")
        await a.release(held, due=True)
        held = await b.claim_one()
        bell = Bell(a.member)
        await a.instances.get(InstanceId("i"))
        await b.send("i", "m")
        await b.suspend("i")
        await b.finish(held)
        await bell.stays_silent()


class SlipCases:
    """Nothing slips between the look and the note: a waiter that is never rung is never needed."""

    @scenario
    async def test_nothing_slips_between_the_look_and_the_note(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        bell = Bell(b.member)
        for turn in range(24):
            looking = asyncio.create_task(b.ask(wait=LONG_S))
            # At another moment of the claim each time.
            await asyncio.sleep(0.0002 * (turn % 12))
            await a.put(f"i{turn}")
            answer = await looking
            while not answer.instances:
                await bell.next_or(answer.next_due_s)
                answer = await b.ask(wait=LONG_S)
            assert [claimed.id for claimed in answer.instances] == [f"i{turn}"]
            await b.finish(answer.instances[0])

    @scenario
    async def test_nothing_slips_between_a_letter_and_the_parking(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        held = await a.own("i")
        for turn in range(24):
            bell = await wait(b)
            parking = asyncio.create_task(a.advance(held, release=True))
            await asyncio.sleep(0.0002 * (turn % 12))
            await b.send("i", f"m{turn}")
            await parking
            assert await bell.next() in (RING, Wakeup("mail/i"))
            bell.stop()
            held = await a.claim_one()
            assert [letter.id for letter in held.letters] == [f"m{turn}"]
            held = await a.advance(held, consumed=(held.letters[0].number,))

    @scenario
    async def test_waiting_hosts_miss_nothing(self, lab: Lab) -> None:
        lab.require("push")
        source = await runner(lab, "source")
        crew = await runners(lab, 3)
        await work_off(crew, lambda answer: answer.instances, source.put, Runner.finish)
