"""Cases of hearing: the owner of an instance, and those who watch it, are told what concerns them.

All of them ask for the promise ``push``.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from outlive.model.instance import InstanceStatus, Reply
from outlive.names import HostId, InstanceId
from outlive.ports.wakeups import Wakeup
from outlive.testing.conformance.instance_runner import message, runners
from outlive.testing.conformance.lab import LONG_S, Lab, scenario
from outlive.testing.conformance.wakeups import Bell


class OwnerCases:
    """An owner hears what others do to its instance."""

    @scenario
    async def test_the_owner_hears_of_each_letter(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        await a.own("i/1")
        sender = await b.own("sender")
        bell = Bell(a.member)
        await b.send("i/1", "m1")
        assert await bell.next() == Wakeup("mail/i/1")
        await b.advance(sender, sends=(message("i/1", "m2"),))
        assert await bell.next() == Wakeup("mail/i/1")

    @scenario
    async def test_the_owner_is_the_host_that_claimed(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        await a.put("i")
        guest = await b.open_session(HostId(f"guest-of-{b.id}"))
        await b.claim_one(session=guest)
        bell = Bell(b.member)
        await a.send("i", "m")
        assert await bell.next() == Wakeup("mail/i")

    @scenario
    async def test_the_owner_hears_that_it_was_suspended_and_resumed(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        await a.own("i")
        bell = Bell(a.member)
        await b.suspend("i")
        assert await bell.next() == Wakeup("operate/i")
        await b.resume("i")
        assert await bell.next() == Wakeup("operate/i")

    @scenario
    async def test_the_owner_hears_that_it_was_taken_away(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        await a.own("i")
        bell = Bell(a.member)
        await b.terminate("i")
        assert await bell.next() == Wakeup("operate/i")


class WatcherCases:
    """Who watches an instance hears of its end and its replies."""

    @scenario
    async def test_a_watcher_hears_of_the_end(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        for id_, way in (("x", "finish"), ("y", "terminate")):
            held = await a.own(id_)
            bell = Bell(b.member)
            await b.instances.get(InstanceId(id_), wait_us=round(LONG_S * 1e6))
            if way == "finish":
                await a.finish(held, InstanceStatus.FAILED)
            else:
                await a.terminate(id_)
            assert await bell.next() == Wakeup(f"instance/{id_}")
            bell.stop()

    @scenario
    async def test_a_watcher_hears_of_a_reply_and_still_of_the_end(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        held = await a.own("i")
        bell = Bell(b.member)
        await b.instances.get(InstanceId("i"), wait_us=round(LONG_S * 1e6))
        held = await a.advance(held, replies=(Reply("m", "1"),))
        assert await bell.next() == Wakeup("instance/i")
        await a.finish(held)
        assert await bell.next() == Wakeup("instance/i")

    @scenario
    async def test_all_who_watch_hear(self, lab: Lab) -> None:
        lab.require("push")
        a, *watching = await runners(lab, 4)
        held = await a.own("i")
        bells = [Bell(one.member) for one in watching]
        for one in watching:
            await one.instances.get(InstanceId("i"), wait_us=round(LONG_S * 1e6))
        await a.finish(held)
        for bell in bells:
            assert await bell.next() == Wakeup("instance/i")

    @scenario
    async def test_ends_of_one_batch_are_each_heard_of_and_empty_their_mailboxes(
        self, lab: Lab
    ) -> None:
        """Whatever a driver does to spare the quiet ones what the others need."""
        lab.require("push")
        a, b = await runners(lab, 2)
        end: dict[str, Any] = {"status": InstanceStatus.COMPLETED, "outcome": "1"}
        for turn in range(2):
            names = [f"{kind}-{turn}" for kind in ("plain", "stale", "watched", "written", "goes")]
            plain, stale, watched, written, goes = [await a.own(name) for name in names]
            await b.send(written.id, "m")
            bell = Bell(b.member)
            await b.instances.get(watched.id, wait_us=round(LONG_S * 1e6))
            outcomes = await a.instances.commit(
                [
                    a.next(plain, **end),
                    a.next(replace(stale, version=1), **end),
                    a.next(watched, **end),
                    a.next(written, **end),
                    a.next(goes),
                ]
            )
            assert [each.ok for each in outcomes] == [True, False, True, True, True]
            assert await bell.next() == Wakeup(f"instance/{watched.id}")
            bell.stop()
            ended, running = InstanceStatus.COMPLETED, InstanceStatus.RUNNING
            found = [await a.status(name) for name in names]
            assert found == [ended, running, ended, ended, running]
            assert await a.mail(written.id) == []
            assert [len(await a.history(name)) for name in names] == [1, 0, 1, 1, 1]
