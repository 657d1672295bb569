"""Cases of families: who ends with an instance that is terminated, and who does not."""

from __future__ import annotations

import asyncio

from outlive.model.instance import InstanceStatus, Opened
from outlive.names import InstanceId
from outlive.ports.wakeups import Wakeup
from outlive.testing.conformance.instance_runner import Runner, runner, runners
from outlive.testing.conformance.lab import LONG_S, Lab, scenario
from outlive.testing.conformance.wakeups import Bell

_BELOW = '"with its parent"'


async def _ended(a: Runner, *ids: str) -> list[bool]:
    """Which of them were terminated."""
    return [await a.status(id_) is InstanceStatus.TERMINATED for id_ in ids]


class FamilyCases:
    """A termination that says what becomes of those below reaches all of them in one step."""

    @scenario
    async def test_a_termination_reaches_children_and_their_children(self, lab: Lab) -> None:
        a, operator = await runners(lab, 2)
        await a.own("p")
        owned = await a.own("p/owned", parent="p")
        await a.put("p/pending", "p/suspended", parent="p")
        await a.suspend("p/suspended")
        await a.put("p/owned/deep", parent="p/owned")
        await a.put("p/owned/deep/deeper", parent="p/owned/deep")
        await a.send("p/pending", "m")
        below = ("p/owned", "p/pending", "p/suspended", "p/owned/deep", "p/owned/deep/deeper")
        assert await operator.terminate("p", below=_BELOW) is Opened.CHANGED
        assert await _ended(a, "p", *below) == [True] * 6
        assert (await a.record("p")).outcome == '"stop"'
        assert {(await a.record(id_)).outcome for id_ in below} == {_BELOW}
        found = await a.record("p/owned")
        assert (found.owner, found.due_at) == (None, None)
        assert found.token > owned.token
        assert not (await a.commit(owned)).ok
        assert await a.mail("p/pending") == []
        assert await a.ids() == []

    @scenario
    async def test_a_termination_spares_those_that_are_to_outlive_it(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("p", "stranger")
        await a.put("kept", parent="p", outlives=True)
        await a.put("of-kept", parent="kept")
        await a.put("of-stranger", parent="stranger")
        await a.put_ended("done", parent="p")
        assert await a.terminate("p", below=_BELOW) is Opened.CHANGED
        assert await _ended(a, "kept", "of-kept", "stranger", "of-stranger", "done") == [False] * 5
        assert (await a.record("done")).outcome == "1"

    @scenario
    async def test_a_child_that_a_commit_started_keeps_its_policy(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("p")
        starts = (
            a.new("bound", parent=InstanceId("p")),
            a.new("free", parent=InstanceId("p"), outlives=True),
        )
        await a.advance(held, starts=starts)
        await a.terminate("p", below=_BELOW)
        assert await _ended(a, "bound", "free") == [True, False]

    @scenario
    async def test_without_a_word_for_them_those_below_go_on(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("p")
        await a.put("child", parent="p")
        await a.terminate("p")
        assert await _ended(a, "p", "child") == [True, False]

    @scenario
    async def test_a_run_that_began_anew_has_left_its_children_alone(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.advance(await a.own("p"))
        await a.put("before", parent="p")
        with_it = a.new("with", parent=InstanceId("p"))
        await lab.advance(0.01)
        held = await a.advance(held, restart="{}", starts=(with_it,))
        await lab.advance(0.01)
        await a.advance(held, starts=(a.new("after", parent=InstanceId("p")),))
        await a.terminate("p", below=_BELOW)
        assert await _ended(a, "before", "with", "after") == [False, False, True]

    @scenario
    async def test_a_refused_termination_reaches_nobody_below(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put_ended("p")
        await a.put("child", parent="p")
        assert await a.terminate("p", below=_BELOW) is Opened.REFUSED
        assert await _ended(a, "child") == [False]

    @scenario
    async def test_a_termination_again_reaches_nobody_that_came_later(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("p")
        await a.terminate("p", below=_BELOW)
        await a.put("late", parent="p")
        assert await a.terminate("p", below=_BELOW) is Opened.CHANGED
        assert await _ended(a, "late") == [False]

    @scenario
    async def test_families_of_other_namespaces_are_left_alone(self, lab: Lab) -> None:
        a = await runner(lab)
        other = await runner(lab, "b", "other")
        for each in (a, other):
            await each.put("p")
            await each.put("child", parent="p")
        await a.terminate("p", below=_BELOW)
        assert await _ended(a, "child") == [True]
        assert await _ended(other, "p", "child") == [False, False]

    @scenario
    async def test_no_child_slips_past_a_termination(self, lab: Lab) -> None:
        """Whoever commits a child in the same moment is refused, or the child ends as well."""
        a, operator = await runners(lab, 2)
        for number in range(10):
            parent = f"p{number}"
            held = await a.own(parent)
            child = a.new(f"{parent}/c", parent=InstanceId(parent))
            started, _ = await asyncio.gather(
                a.commit(held, starts=(child,)), operator.terminate(parent, below=_BELOW)
            )
            assert await _ended(a, parent) == [True]
            if started.ok:
                assert await _ended(a, child.id) == [True]
            else:
                assert not await a.exists(child.id)

    @scenario
    async def test_owners_and_watchers_of_those_below_hear_of_it(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await runners(lab, 2)
        await b.put("p")
        await a.own("child", parent="p")
        await b.put("other", parent="child")
        owner, watcher = Bell(a.member), Bell(b.member)
        await b.instances.get(InstanceId("other"), wait_us=round(LONG_S * 1e6))
        await b.terminate("p", below=_BELOW)
        assert await owner.next() == Wakeup("operate/child")
        assert await watcher.next() == Wakeup("instance/other")
