"""Cases of reading: records, histories, replies, and pages that skip nothing."""

from __future__ import annotations

from datetime import MAXYEAR
from typing import Any

from outlive.model.instance import InstanceFilter, InstanceStatus, Reply
from outlive.names import InstanceId
from outlive.testing.conformance.instance_runner import Runner, runner
from outlive.testing.conformance.job_worker import SOON_S
from outlive.testing.conformance.lab import LONG_S, Lab, scenario


class ReadCases:
    """What is known of one instance."""

    @scenario
    async def test_of_the_unknown_nothing_is_known(self, lab: Lab) -> None:
        a = await runner(lab)
        never = InstanceId("never")
        assert await a.instances.get(never) is None
        assert await a.instances.get(never, wait_us=1_000_000) is None
        assert await a.instances.reply(never, "m") is None
        assert await a.history("never") == []
        assert await a.mail("never") == []

    @scenario
    async def test_a_history_is_read_page_by_page(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        for _ in range(7):
            held = await a.advance(held)
        assert await a.versions("i") == [1, 2, 3, 4, 5, 6, 7]
        assert await a.versions("i", after=5) == [6, 7]
        assert await a.versions("i", after=7) == []
        assert [row.version for row in await a.history("i", 2, 3)] == [3, 4, 5]
        assert await a.history("i", 0, 0) == []

    @scenario
    async def test_a_reply_is_kept_as_long_as_the_instance(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        replies = (Reply("m1", '{"ok":1}'), Reply("m2", "null"))
        held = await a.advance(held, replies=replies)
        id_ = InstanceId("i")
        assert await a.instances.reply(id_, "m1") == '{"ok":1}'
        assert await a.instances.reply(id_, "m2") == "null"
        assert await a.instances.reply(id_, "m3") is None
        held = await a.advance(held, restart="2")
        await a.finish(held, replies=(Reply("m3", "3"),))
        assert await a.instances.reply(id_, "m1") == '{"ok":1}'
        assert await a.instances.reply(id_, "m3") == "3"

    @scenario
    async def test_of_two_replies_to_one_message_the_later_counts(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.advance(await a.own("i"), replies=(Reply("m", "1"), Reply("m", "2")))
        assert await a.instances.reply(InstanceId("i"), "m") == "2"
        await a.advance(held, replies=(Reply("m", "3"),))
        assert await a.instances.reply(InstanceId("i"), "m") == "3"

    @scenario
    async def test_what_is_due_beyond_all_calendars_hinders_no_reading(self, lab: Lab) -> None:
        a = await runner(lab)
        far = 2**62
        await a.put("far", due_at_us=far)
        held = await a.own("later")
        await a.advance(held, due_at_us=far)
        for name in ("far", "later"):
            due = (await a.record(name)).due_at
            assert due is not None
            assert due.year == MAXYEAR
        assert await a.list() == ["far", "later"]
        await a.put("past", due_at_us=-far)
        assert await a.ids() == ["past"]
        assert (await a.record("past")).status is InstanceStatus.RUNNING

    @scenario
    async def test_watching_changes_nothing(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("i")
        before = await a.record("i")
        assert await a.instances.get(InstanceId("i"), wait_us=1_000_000) == before
        assert await a.record("i") == before

    @scenario
    async def test_a_record_says_when_it_changed(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        created = (await a.record("i")).created_at
        await lab.advance(SOON_S)
        await a.advance(held)
        found = await a.record("i")
        assert found.created_at == created
        assert found.updated_at > created


class ListCases:
    """Pages of instances, oldest first."""

    @scenario
    async def test_pages_are_in_order_and_skip_nothing(self, lab: Lab) -> None:
        a = await runner(lab)
        names = [f"i{number}" for number in (5, 3, 9, 1, 7, 2, 8)]
        for name in names:
            await a.put(name)
        seen, after = list[str](), None
        while page := await a.instances.list(InstanceFilter(), after=after, limit=3):
            seen.extend(record.id for record in page)
            after = page[-1].cursor
            if len(seen) == 3:
                # What changes between two pages neither hides nor repeats anything.
                await a.claim(100)
                await a.terminate(names[-1])
                await a.put("new")
        assert seen == [*names, "new"]

    @scenario
    async def test_those_of_one_call_are_in_its_order(self, lab: Lab) -> None:
        a = await runner(lab)
        names = [f"i{number}" for number in (5, 3, 9, 1, 7)]
        await a.put(*names)
        assert await a.list() == names

    @scenario
    async def test_what_was_removed_hinders_no_page(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put_ended("x", "y", "z")
        (first,) = await a.instances.list(InstanceFilter(), after=None, limit=1)
        await a.purge("x")
        await a.purge("y")
        page = await a.instances.list(InstanceFilter(), after=first.cursor, limit=5)
        assert [record.id for record in page] == ["z"]

    @scenario
    async def test_a_page_holds_what_a_record_does(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i", attributes='{"a":1}')
        await a.advance(held, custom='"c"')
        (found,) = await a.instances.list(InstanceFilter(), after=None, limit=5)
        assert found == await a.record("i")
        assert list(await a.instances.list(InstanceFilter(), after=None, limit=0)) == []


class FilterCases:
    """Which instances are meant; counts and pages agree."""

    @scenario
    async def test_definitions_are_told_apart(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("f1", "f2")
        await a.put("g1", name="g")
        await a.put("c1", kind="chart")
        assert await self._meant(a, kind="chart") == ["c1"]
        assert await self._meant(a, names=("f",)) == ["f1", "f2", "c1"]
        assert await self._meant(a, kind="flow", names=("f", "g")) == ["f1", "f2", "g1"]
        assert await self._meant(a, names=("h",)) == []

    @scenario
    async def test_statuses_are_told_apart(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("pending", "suspended", "terminated")
        await a.suspend("suspended")
        await a.terminate("terminated")
        await a.own("running")
        await a.put_ended("completed")
        for status in InstanceStatus:
            expected = [] if status in ("failed", "cancelled") else [str(status)]
            assert await self._meant(a, statuses=(status,)) == expected
        both = (InstanceStatus.PENDING, InstanceStatus.COMPLETED)
        assert await self._meant(a, statuses=both) == ["pending", "completed"]

    @scenario
    async def test_a_prefix_is_taken_as_it_is(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("a%b", "a_b", "axb", "A%b", "a\\b", "a*b", "a[x]b")
        assert await self._meant(a, prefix="a%") == ["a%b"]
        assert await self._meant(a, prefix="a_") == ["a_b"]
        assert await self._meant(a, prefix="A") == ["A%b"]
        assert await self._meant(a, prefix="a\\") == ["a\\b"]
        assert await self._meant(a, prefix="a*") == ["a*b"]
        assert await self._meant(a, prefix="a[") == ["a[x]b"]
        assert len(await self._meant(a, prefix="")) == 7

    @scenario
    async def test_children_are_found_by_their_parent(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("c1", "c2", parent=InstanceId("p"))
        await a.put("other", parent=InstanceId("q"))
        assert await self._meant(a, parent=InstanceId("p")) == ["c1", "c2"]

    @scenario
    async def test_attributes_are_compared_as_the_values_they_are(self, lab: Lab) -> None:
        a = await runner(lab)
        values = {
            "number": '{"x":1,"y":"k"}',
            "text": '{"x":"1"}',
            "true": '{"x":true}',
            "false": '{"x":false}',
            "zero": '{"x":0}',
            "half": '{"x":0.5}',
            "none": "{}",
            "odd name": '{"it\'s \\"x\\".$[0]":"%"}',
        }
        for id_, attributes in values.items():
            await a.put(id_, attributes=attributes)
        assert await self._meant(a, attributes='{"x":1}') == ["number"]
        assert await self._meant(a, attributes='{"x":"1"}') == ["text"]
        assert await self._meant(a, attributes='{"x":true}') == ["true"]
        assert await self._meant(a, attributes='{"x":false}') == ["false"]
        assert await self._meant(a, attributes='{"x":0}') == ["zero"]
        assert await self._meant(a, attributes='{"x":0.5}') == ["half"]
        assert await self._meant(a, attributes='{"x":1,"y":"k"}') == ["number"]
        assert await self._meant(a, attributes='{"x":1,"y":"l"}') == []
        assert await self._meant(a, attributes='{"z":1}') == []
        assert await self._meant(a, attributes=values["odd name"]) == ["odd name"]
        assert len(await self._meant(a, attributes="{}")) == len(values)

    @scenario
    async def test_no_character_of_an_attribute_hinders_a_search(self, lab: Lab) -> None:
        a = await runner(lab)
        values = {
            "plain": "1",
            "nul": r'"\u0000"',
            "slash": r'"\\u0000"',
            "quote": r'''"' OR \"1\" --"''',
        }
        for name, value in values.items():
            await a.put(name, attributes=f'{{"x":{value}}}')
        for name, value in values.items():
            assert await self._meant(a, attributes=f'{{"x":{value}}}') == [name]

    @scenario
    async def test_an_attribute_is_found_whatever_its_value(self, lab: Lab) -> None:
        a = await runner(lab)
        values = {
            "text": '{"x.y":"why"}',
            "false": '{"a":1,"x.y":false}',
            "nul": r'{"x.y":"\u0000"}',
            "value": '{"a":"x.y"}',
            "longer": '{"x.y.z":1}',
            "none": "{}",
        }
        for id_, attributes in values.items():
            await a.put(id_, attributes=attributes)
        assert await self._meant(a, has_attribute="x.y") == ["text", "false", "nul"]
        assert await self._meant(a, has_attribute="x.y", attributes='{"a":1}') == ["false"]
        assert await self._meant(a, has_attribute="x") == []

    @scenario
    async def test_the_newest_attributes_count(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i", attributes='{"x":1}')
        await a.advance(held, attributes='{"x":2}')
        assert await self._meant(a, attributes='{"x":1}') == []
        assert await self._meant(a, attributes='{"x":2}') == ["i"]

    @scenario
    async def test_times_are_told_apart(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put_ended("old")
        await lab.advance(SOON_S)
        await a.put_ended("new")
        await a.put("live")
        created_us = (await a.record("new")).began_at_us
        assert await self._meant(a, created_from_us=created_us) == ["new", "live"]
        assert await self._meant(a, created_before_us=created_us) == ["old"]
        ended = (await a.record("new")).ended_at
        assert ended is not None
        ended_us = round(ended.timestamp() * 1e6)
        assert await self._meant(a, ended_before_us=ended_us) == ["old"]
        far_us = ended_us + round(LONG_S * 1e6)
        assert await self._meant(a, ended_before_us=far_us) == ["old", "new"]

    @scenario
    async def test_a_count_is_by_status(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("p1", "p2")
        await a.own("r1")
        await a.put_ended("c1", "c2", "c3")
        counts = await a.instances.count(InstanceFilter())
        assert {status: count for status, count in counts.items() if count} == {
            InstanceStatus.PENDING: 2,
            InstanceStatus.RUNNING: 1,
            InstanceStatus.COMPLETED: 3,
        }

    @staticmethod
    async def _meant(a: Runner, **wanted: Any) -> list[str]:
        """The ids that match, after a look that they were counted as well."""
        found = await a.list(**wanted)
        counts = await a.instances.count(InstanceFilter(**wanted))
        assert sum(counts.values()) == len(found)
        return found
