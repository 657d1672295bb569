"""Cases of transactions: what a body says is committed with what it wrote, or neither is."""

from __future__ import annotations

import pytest

from outlive.errors import UnsupportedByDriver
from outlive.model.instance import Commit, InstanceStatus
from outlive.ports.instance_store import Body
from outlive.testing.conformance.instance_runner import message, runner, runners
from outlive.testing.conformance.lab import Lab, scenario


class Refusal(Exception):
    """Something that goes wrong in a body."""


def body_of(lab: Lab, commit: Commit, error: Exception | None = None) -> Body:
    """A body of the kind that the backend takes, which says ``commit`` or raises."""

    def say(connection: object) -> Commit:
        assert connection is not None
        if error is not None:
            raise error
        return commit

    async def say_later(connection: object) -> Commit:
        return say(connection)

    return say_later if lab.capabilities.transact == "async" else say


class TransactCases:
    """A step that writes with its record, where the backend has transactions."""

    @scenario
    async def test_what_a_body_says_is_committed(self, lab: Lab) -> None:
        lab.require("transact")
        a = await runner(lab)
        await a.put("to")
        held = await a.own("i")
        commit = a.next(held, sends=(message("to", "m"),))
        assert (await a.instances.transact(held.id, body_of(lab, commit))).ok
        assert await a.versions("i") == [1]
        assert await a.mail_ids("to") == ["m"]

    @scenario
    async def test_what_a_body_raises_is_raised_and_nothing_is_committed(self, lab: Lab) -> None:
        lab.require("transact")
        a = await runner(lab)
        held = await a.own("i")
        before = await a.record("i")
        with pytest.raises(Refusal):
            await a.instances.transact(held.id, body_of(lab, a.next(held), Refusal("no")))
        assert await a.record("i") == before
        await a.advance(held)

    @scenario
    async def test_who_lost_it_commits_nothing_by_a_body(self, lab: Lab) -> None:
        lab.require("transact")
        a, b = await runners(lab, 2)
        held = await a.own("i")
        await a.release(held, due=True)
        await b.claim_one()
        before = await b.record("i")
        assert not (await a.instances.transact(held.id, body_of(lab, a.next(held)))).ok
        assert await b.record("i") == before

    @scenario
    async def test_an_end_by_a_body_is_an_end(self, lab: Lab) -> None:
        lab.require("transact")
        a = await runner(lab)
        held = await a.own("i")
        commit = a.next(held, status=InstanceStatus.COMPLETED, outcome="7")
        assert (await a.instances.transact(held.id, body_of(lab, commit))).ok
        assert (await a.record("i")).outcome == "7"

    @scenario
    async def test_without_transactions_it_is_refused(self, lab: Lab) -> None:
        a = await runner(lab)
        if lab.capabilities.transact:
            pytest.skip("the backend has transactions")
        held = await a.own("i")
        with pytest.raises(UnsupportedByDriver):
            await a.instances.transact(held.id, body_of(lab, a.next(held)))
        assert await a.versions("i") == []
