"""Cases of claiming: what is due or has letters, for who can run it, by one host at a time."""

from __future__ import annotations

from outlive.model.instance import CLAIM_MAX, LETTERS_MAX, InstanceStatus
from outlive.names import InstanceId
from outlive.testing.conformance.instance_runner import message, runner, runners
from outlive.testing.conformance.job_worker import PAST_S, SOON_S
from outlive.testing.conformance.lab import LONG_S, Lab, scenario


class ClaimCases:
    """Who gets what."""

    @scenario
    async def test_a_claim_brings_everything_along(self, lab: Lab) -> None:
        a = await runner(lab)
        new = a.new(
            "i",
            input='{"x":1}',
            parent=InstanceId("p"),
            headers='{"h":1}',
            attributes='{"a":true}',
            history=("[]",),
        )
        (started,) = await a.start(new)
        await a.send("i", "m", '"hello"', kind="update", name="price")
        claimed = await a.claim_one(worker="w1")
        assert (claimed.id, claimed.kind, claimed.name) == ("i", "flow", "f")
        assert (claimed.token, claimed.version, claimed.base) == (1, 1, 0)
        assert (claimed.input, claimed.parent) == ('{"x":1}', "p")
        assert (claimed.headers, claimed.attributes, claimed.custom) == (
            '{"h":1}',
            '{"a":true}',
            None,
        )
        assert claimed.began_at_us == started.began_at_us
        (letter,) = claimed.letters
        assert (letter.id, letter.kind, letter.name) == ("m", "update", "price")
        assert letter.payload == '"hello"'
        found = await a.record("i")
        assert (found.status, found.owner, found.owned_by) == (InstanceStatus.RUNNING, a.id, "w1")

    @scenario
    async def test_what_is_owned_is_claimed_by_nobody(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        await a.put("i")
        await a.claim_one()
        await a.send("i", "m")
        assert await b.ids() == []
        assert await a.ids() == []

    @scenario
    async def test_only_the_definitions_that_are_named_are_claimed(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("f1", name="f")
        await a.put("g1", name="g")
        await a.put("h1", name="h")
        await a.put("chart", kind="chart")
        assert sorted(await a.ids(names=("f", "h", "unknown"))) == ["f1", "h1"]
        assert await a.ids(names=()) == []
        assert await a.ids(kind="chart") == ["chart"]
        assert await a.ids(names=("g", "g")) == ["g1"]

    @scenario
    async def test_the_longest_due_go_first(self, lab: Lab) -> None:
        a = await runner(lab)
        now_us = await a.now_us()
        for id_, name, ago in (("x", "f", 3), ("y", "g", 9), ("z", "f", 6), ("w", "g", 1)):
            await a.put(id_, name=name, due_at_us=now_us - ago * 1_000_000)
        assert await a.ids(3, names=("f", "g")) == ["y", "z", "x"]
        assert await a.ids(3, names=("f", "g")) == ["w"]

    @scenario
    async def test_a_claim_keeps_to_its_limit(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put(*(f"i{number}" for number in range(5)))
        assert len(await a.ids(2)) == 2
        assert await a.ids(0) == []
        assert len(await a.ids(9)) == 3

    @scenario
    async def test_no_claim_takes_more_than_the_most(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.start(*(a.new(f"i{number}") for number in range(CLAIM_MAX + 5)))
        assert len(await a.ids(CLAIM_MAX + 5)) == CLAIM_MAX
        assert len(await a.ids(CLAIM_MAX)) == 5

    @scenario
    async def test_tokens_grow_with_each_claim(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        await a.put("i")
        tokens = list[int]()
        for one in (a, b, a):
            claimed = await one.claim_one()
            tokens.append(claimed.token)
            assert await one.release(claimed, due=True)
        assert tokens == sorted(set(tokens))

    @scenario
    async def test_the_ended_and_the_suspended_are_not_claimed(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("suspended", "terminated")
        await a.put_ended("ended")
        await a.suspend("suspended")
        await a.terminate("terminated")
        await a.send("suspended", "m")
        assert await a.ids() == []

    @scenario
    async def test_a_parked_instance_waits_for_its_time(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.park("later", due=LONG_S)
        await a.park("never")
        assert await a.ids() == []
        await a.park("soon", due=SOON_S)
        await lab.advance(SOON_S + PAST_S)
        assert await a.ids() == ["soon"]

    @scenario
    async def test_it_is_never_claimed_before_its_time_by_the_clock_of_the_store(
        self, lab: Lab
    ) -> None:
        a, b = await runners(lab, 2)
        held = await a.own("i")
        due_us = await a.now_us() + round(SOON_S * 1e6)
        await a.advance(held, release=True, due_at_us=due_us)
        while not (answer := await b.ask()).instances:
            await lab.advance(SOON_S / 100)
        assert answer.at_us >= due_us

    @scenario
    async def test_a_parked_instance_wakes_by_a_letter(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        await a.park("i", due=LONG_S)
        await a.park("j")
        await a.send("i", "m1")
        await a.send("j", "m2")
        found = await b.claim(5)
        assert {(one.id, one.letters[0].id) for one in found} == {("i", "m1"), ("j", "m2")}
        assert {one.version for one in found} == {1}

    @scenario
    async def test_what_was_never_begun_waits_for_its_time_with_its_letters(self, lab: Lab) -> None:
        a = await runner(lab)
        now_us = await a.now_us()
        due_us = now_us + round(SOON_S * 1e6)
        await a.put("soon", due_at_us=due_us)
        await a.put("later", delay=LONG_S)
        for id_ in ("soon", "later"):
            await a.send(id_, f"{id_}/1")
            await a.send(id_, f"{id_}/2", kind="update", name="u")
        while not (answer := await a.ask()).instances:
            await lab.advance(SOON_S / 100)
        assert answer.at_us >= due_us
        (claimed,) = answer.instances
        assert (claimed.id, claimed.first) == ("soon", True)
        assert [letter.id for letter in claimed.letters] == ["soon/1", "soon/2"]
        await a.suspend("later")
        await a.resume("later")
        assert await a.ids() == []

    @scenario
    async def test_a_wish_to_cancel_does_not_wait_for_the_time(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        await a.put("i", "other", delay=LONG_S)
        await a.send("i", "m1")
        await a.send("other", "m2")
        await a.send("i", "m3", kind="cancel")
        (claimed,) = await b.claim(5)
        assert [letter.id for letter in claimed.letters] == ["m1", "m3"]
        assert (claimed.id, claimed.first) == ("i", True)

    @scenario
    async def test_only_the_first_claim_is_the_first(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("i", delay=SOON_S)
        await lab.advance(SOON_S + PAST_S)
        claimed = await a.claim_one()
        assert claimed.first
        later = await a.now_us() + round(LONG_S * 1e6)
        await a.advance(claimed, release=True, due_at_us=later)
        # It has begun: a letter wakes it whenever it is due.
        await a.send("i", "m")
        assert not (await a.claim_one()).first

    @scenario
    async def test_the_first_letters_come_with_a_claim(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("i")
        count = LETTERS_MAX + 20
        await a.instances.send([message("i", f"m{number:03}") for number in range(count)])
        claimed = await a.claim_one()
        expected = [f"m{number:03}" for number in range(count)]
        assert [letter.id for letter in claimed.letters] == expected[:LETTERS_MAX]
        rest = await a.mail("i", after=claimed.letters[-1].number)
        assert [letter.id for letter in rest] == expected[LETTERS_MAX:]


class AnswerCases:
    """What a claim says beside what it takes."""

    @scenario
    async def test_a_claim_says_when_the_next_comes_due(self, lab: Lab) -> None:
        a = await runner(lab)
        assert (await a.ask()).next_due_s is None
        await a.park("later", due=LONG_S)
        await a.put("other", name="g", delay=LONG_S / 2)
        answer = await a.ask()
        assert answer.next_due_s is not None
        assert 0 < answer.next_due_s <= LONG_S
        both = await a.ask(names=("f", "g"))
        assert both.next_due_s is not None
        assert both.next_due_s <= LONG_S / 2
        assert (await a.ask(names=("unknown",))).next_due_s is None

    @scenario
    async def test_a_claim_that_had_enough_does_not_say(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("now")
        await a.put("later", delay=LONG_S)
        assert (await a.ask(0)).next_due_s is None
        assert (await a.ask(1)).next_due_s is None
        assert (await a.ask(1)).next_due_s is not None

    @scenario
    async def test_what_nobody_may_claim_does_not_come_due(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("suspended", delay=LONG_S)
        await a.suspend("suspended")
        held = await a.own("owned")
        await a.advance(held, due_at_us=await a.now_us() + round(LONG_S * 1e6))
        await a.put_ended("ended")
        assert (await a.ask()).next_due_s is None

    @scenario
    async def test_a_claim_names_what_has_letters(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        await a.own("quiet")
        await a.own("chart", kind="chart")
        held = await a.own("mailed")
        await b.own("of b")
        for id_ in ("mailed", "chart", "of b"):
            await b.send(id_, "m")
        for limit in (0, 1):
            assert sorted((await a.ask(limit)).letters) == ["chart", "mailed"]
        (letter,) = await a.mail("mailed")
        await a.advance(held, consumed=(letter.number,))
        assert (await a.ask(0)).letters == ("chart",)

    @scenario
    async def test_what_a_claim_takes_is_not_named_again(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("i")
        await a.send("i", "m")
        answer = await a.ask(3)
        assert [found.id for found in answer.instances] == ["i"]
        assert answer.letters == ()
        assert (await a.ask(0)).letters == ("i",)

    @scenario
    async def test_a_claim_tells_the_time_of_the_store(self, lab: Lab) -> None:
        a = await runner(lab)
        first = await a.now_us()
        await lab.advance(SOON_S)
        second = await a.now_us()
        # Half of it: a wall clock may be set back a little while a real store is waited for.
        assert second - first >= SOON_S * 1e6 / 2
