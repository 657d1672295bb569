"""Cases of what a commit sends out: starts, messages and replies go with it, and only with it."""

from __future__ import annotations

from msgspec.structs import replace

from outlive.model.instance import Commit, InstanceStatus, Reply
from outlive.names import InstanceId, Token
from outlive.testing.conformance.instance_runner import Runner, message, runner, runners
from outlive.testing.conformance.lab import Lab, scenario


class AllOrNothingCases:
    """All of a commit, or nothing of it."""

    @scenario
    async def test_what_is_sent_out_goes_with_the_commit(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        await b.own("other")
        held = await a.own("i")
        commit = await self._full(a, a.next(held))
        outcome = await a.send_commit(commit)
        assert (outcome.ok, outcome.taken) == (True, ())
        assert await a.mail_ids("i") == []
        assert await a.mail_ids("other") == ["out"]
        assert await a.instances.reply(InstanceId("i"), "question") == '"answer"'
        child = await a.record("child")
        assert (child.status, child.owner, child.parent) == (InstanceStatus.PENDING, None, "i")
        assert await b.ids() == ["child"]

    @scenario
    async def test_nothing_of_a_refused_commit_goes_out(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        await b.own("other")
        held = await a.own("i")
        commit = await self._full(a, a.next(held))
        before = await a.record("i")
        wrong = (
            replace(commit, token=Token(2), commit="w1"),
            replace(commit, version=2, commit="w2"),
            replace(commit, version=0, commit="w3"),
        )
        for refused in wrong:
            assert not (await a.send_commit(refused)).ok
        assert await a.record("i") == before
        assert await a.mail_ids("i") == ["in"]
        assert await a.mail_ids("other") == []
        assert not await a.exists("child")
        assert await a.instances.reply(InstanceId("i"), "question") is None
        assert await a.history("i") == []
        assert await b.ids() == []

    @staticmethod
    async def _full(a: Runner, commit: Commit) -> Commit:
        """The commit with one of everything that can be in it, but jobs."""
        await a.send("i", "in")
        (letter,) = await a.mail("i")
        return replace(
            commit,
            consumed=(letter.number,),
            sends=(message("other", "out"),),
            starts=(a.new("child", parent=InstanceId("i")),),
            replies=(Reply("question", '"answer"'),),
        )

    @scenario
    async def test_an_id_that_others_have_is_taken_and_the_rest_committed(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("x")
        before = await a.record("x")
        held = await a.own("i")
        outcome = await a.commit(held, starts=(a.new("x", input="9"), a.new("y")))
        assert (outcome.ok, outcome.taken) == (True, ("x",))
        assert await a.record("x") == before
        assert await a.exists("y")
        assert (await a.record("i")).version == 1

    @scenario
    async def test_a_commit_starts_for_nobody(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        held = await a.own("i")
        await a.advance(held, starts=(a.new("child", session=a.id, worker="a"),))
        found = await a.record("child")
        assert (found.owner, found.token) == (None, 0)
        assert await b.ids() == ["child"]

    @scenario
    async def test_what_it_starts_gets_what_it_sends(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        sends = (message("child", "m"), message("i", "to myself"))
        await a.advance(held, sends=sends, starts=(a.new("child"),))
        assert await a.mail_ids("child") == ["m"]
        assert await a.mail_ids("i") == ["to myself"]
        assert await a.ids() == ["child"]

    @scenario
    async def test_what_is_sent_to_nobody_is_dropped(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put_ended("ended")
        await a.put("there")
        held = await a.own("i")
        sends = tuple(message(to, "m") for to in ("ended", "never", "there"))
        await a.advance(held, sends=sends)
        assert await a.mail_ids("there") == ["m"]
        assert await a.mail_ids("ended") == []
        assert not await a.exists("never")

    @scenario
    async def test_messages_of_one_commit_keep_their_order(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("to")
        held = await a.own("i")
        names = [f"m{number}" for number in range(20)]
        await a.advance(held, sends=tuple(message("to", name) for name in names))
        assert await a.mail_ids("to") == names
