"""Full mailboxes, dead letters, and events that nobody takes."""

from __future__ import annotations

import asyncio

import pytest

from outlive.charts import Chart
from outlive.charts.orchestrator import Orchestrator
from outlive.errors import EventUnhandled, MailboxFull, UnknownTarget
from tests.unit.charts.orchestrator.charts_used import RECORDER, gated


@pytest.fixture
async def hub():
    made = Orchestrator()
    yield made
    await made.force_cleanup()


class TestMailboxes:
    async def blocked(self, hub, gate, **options):
        machine = await hub.start(gated(gate), **options)
        machine.send("SLOW")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return machine

    async def test_reject_refuses_the_newest(self, hub):
        gate = asyncio.Event()
        machine = await self.blocked(hub, gate, mailbox_limit=2, mailbox_policy="reject")
        await machine.send("PING")
        await machine.send("PING")
        with pytest.raises(MailboxFull):
            await machine.send("PING")
        with pytest.raises(MailboxFull):
            await machine.request("PING")
        gate.set()
        await machine.wait_for(lambda snapshot: snapshot.context["pings"] == 2, timeout=5)
        assert hub.metrics().throttled == 2
        assert [letter.event.type for letter in hub.letters.recent()] == ["PING"]

    async def test_drop_oldest_answers_for_the_oldest(self, hub):
        gate = asyncio.Event()
        machine = await self.blocked(hub, gate, mailbox_limit=2, mailbox_policy="drop-oldest")
        oldest = asyncio.ensure_future(machine.request("PING"))
        await asyncio.sleep(0)
        await machine.send("PING")
        await machine.send("PING")
        with pytest.raises(MailboxFull):
            await oldest
        gate.set()
        await machine.wait_for(lambda snapshot: snapshot.context["pings"] == 2, timeout=5)
        assert hub.metrics().discarded == 1

    async def test_wait_keeps_the_order_and_lets_senders_in_one_by_one(self, hub):
        gate = asyncio.Event()
        machine = await self.blocked(hub, gate, mailbox_limit=2, mailbox_policy="wait")
        sends = [asyncio.ensure_future(machine.send("PING")) for _ in range(4)]
        await asyncio.sleep(0)
        assert [send.done() for send in sends] == [True, True, False, False]
        with pytest.raises(MailboxFull):
            await machine.send("PING")
        gate.set()
        await asyncio.gather(*sends)
        assert (await machine.request("LOOK")).context["pings"] == 4

    async def test_a_full_mailbox_keeps_no_timer_and_no_child_away(self, hub):
        gate = asyncio.Event()

        async def wait() -> None:
            await gate.wait()

        chart = Chart.load(
            {
                "id": "c",
                "initial": "a",
                "states": {
                    "a": {"on": {"SLOW": {"actions": "wait"}}, "after": {"5": "b"}},
                    "b": {},
                },
            },
            actions={"wait": wait},
        )
        machine = await hub.start(chart, mailbox_limit=1, mailbox_policy="reject")
        machine.send("SLOW")
        await asyncio.sleep(0)
        await machine.send("X")
        await asyncio.sleep(0.02)
        gate.set()
        await machine.wait_for(lambda snapshot: snapshot.matches("b"), timeout=5)


async def test_unknown_targets_are_errors_for_some_and_dead_letters_for_all(hub):
    group = hub.group("g")
    heard = []
    hub.letters.listen(heard.append)
    group.send("nobody", "PAY", amount=5)
    with pytest.raises(UnknownTarget):
        await group.send("nobody", "PAY")
    with pytest.raises(UnknownTarget):
        await group.request("nobody", "PAY")
    assert [(letter.machine, letter.event.type) for letter in heard] == [("nobody", "PAY")] * 2
    assert hub.metrics().dead_letters == 2


async def test_an_ended_machine_takes_nothing(hub):
    machine = await hub.start(RECORDER)
    waiting = asyncio.gather(
        machine.request("END"), machine.request("NOTE", n=1), return_exceptions=True
    )
    done, late = await waiting
    assert done.status == "done"
    assert isinstance(late, UnknownTarget)
    with pytest.raises(UnknownTarget, match="has ended"):
        await machine.send("NOTE", n=2)
    assert hub.metrics().active_machines == 0


DOOR = Chart.load(
    {
        "id": "door",
        "initial": "shut",
        "states": {
            "shut": {"on": {"OPEN": "open"}},
            "open": {"on": {"ENTER": "entered"}},
            "entered": {},
        },
    }
)


@pytest.mark.parametrize(
    ("policy", "ends_in", "letters"),
    [
        ("ignore", "open", 0),
        ("error", "open", 0),
        ("defer", "entered", 0),
        ("dead-letter", "open", 1),
    ],
)
async def test_an_event_that_nothing_takes_goes_by_the_policy(policy, ends_in, letters):
    hub = Orchestrator(unhandled=policy, logging=False)
    machine = await hub.start(DOOR)
    if policy == "error":
        with pytest.raises(EventUnhandled):
            await machine.request("ENTER")
    else:
        await machine.request("ENTER")
    await machine.request("OPEN")
    await hub.idle()
    assert machine.snapshot.value == ends_in
    assert hub.metrics().dead_letters == len(hub.letters) == letters
    await hub.force_cleanup()
