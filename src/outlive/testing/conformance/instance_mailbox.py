"""Cases of mailboxes: each message once, in order, until its receiver's commit takes it out."""

from __future__ import annotations

from outlive.model.instance import CANCEL_KIND, CANCELS_MAX, LETTERS_MAX, MAILBOX_MAX, Sent
from outlive.testing.conformance.instance_runner import Runner, message, runner, runners
from outlive.testing.conformance.lab import Lab, scenario

# Messages of one call where a mailbox is filled: a few calls, and none of them huge.
_CHUNK = 2000


async def fill(one: Runner, to: str) -> None:
    """Send as many messages as a mailbox takes."""
    for start in range(0, MAILBOX_MAX, _CHUNK):
        batch = [message(to, f"m{number}") for number in range(start, start + _CHUNK)]
        assert set(await one.instances.send(batch)) == {Sent.SENT}


class SendCases:
    """What becomes of a message."""

    @scenario
    async def test_a_message_lies_in_the_mailbox_as_it_was_sent(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("i")
        before_us = await a.now_us()
        assert await a.send("i", "m1", '{"x":1}', kind="update", name="price") is Sent.SENT
        (letter,) = await a.mail("i")
        assert (letter.id, letter.kind, letter.name) == ("m1", "update", "price")
        assert letter.payload == '{"x":1}'
        assert before_us <= letter.sent_at_us <= await a.now_us()

    @scenario
    async def test_letters_are_in_the_order_of_sending(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        await a.put("i")
        await a.send("i", "z")
        await b.send("i", "a")
        await a.instances.send([message("i", "m"), message("i", "b")])
        letters = await a.mail("i")
        assert [letter.id for letter in letters] == ["z", "a", "m", "b"]
        numbers = [letter.number for letter in letters]
        assert numbers == sorted(set(numbers))
        assert numbers[0] > 0

    @scenario
    async def test_a_second_message_of_an_id_is_nothing(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        await a.put("i", "j")
        assert await a.send("i", "m", "1") is Sent.SENT
        assert await b.send("i", "m", "2") is Sent.DUPLICATE
        assert await a.send("j", "m", "3") is Sent.SENT
        assert [letter.payload for letter in await a.mail("i")] == ["1"]
        assert [letter.payload for letter in await a.mail("j")] == ["3"]

    @scenario
    async def test_one_id_twice_in_a_call_is_one_letter(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("i")
        outcomes = await a.instances.send([message("i", "m", "1"), message("i", "m", "2")])
        assert list(outcomes) == [Sent.SENT, Sent.DUPLICATE]
        assert [letter.payload for letter in await a.mail("i")] == ["1"]

    @scenario
    async def test_a_message_that_was_read_is_not_sent_again(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        await a.send("i", "m")
        (letter,) = await a.mail("i")
        held = await a.advance(held, consumed=(letter.number,))
        assert await a.send("i", "m") is Sent.DUPLICATE
        assert await a.mail("i") == []
        await a.finish(held)
        assert await a.send("i", "m") is Sent.DUPLICATE

    @scenario
    async def test_nobody_writes_to_the_ended_or_the_unknown(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put_ended("ended")
        await a.put("terminated", "there")
        await a.terminate("terminated")
        outcomes = await a.instances.send(
            [message(to, "m") for to in ("ended", "never", "there", "terminated")]
        )
        assert list(outcomes) == [Sent.ENDED, Sent.NOT_FOUND, Sent.SENT, Sent.ENDED]
        assert await a.mail("ended") == []
        assert await a.mail("never") == []

    @scenario
    async def test_a_message_to_a_suspended_one_waits(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.park("i")
        await a.suspend("i")
        assert await a.send("i", "m") is Sent.SENT
        assert await a.ids() == []
        await a.resume("i")
        claimed = await a.claim_one()
        assert [letter.id for letter in claimed.letters] == ["m"]

    @scenario
    async def test_a_full_mailbox_takes_no_more_from_outside(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        held = await a.own("i")
        await fill(b, "i")
        assert await b.send("i", "one more") is Sent.FULL
        assert await b.send("i", "m0") is Sent.DUPLICATE
        sender = await b.own("sender")
        await b.advance(sender, sends=(message("i", "of a commit"),))
        first, second, *_ = await a.mail("i")
        await a.advance(held, consumed=(first.number, second.number))
        assert await b.send("i", "one more") is Sent.SENT
        assert await b.send("i", "yet one") is Sent.FULL

    @scenario
    async def test_a_full_mailbox_has_room_for_wishes_to_cancel(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("full")
        await fill(a, "full")
        for number in range(CANCELS_MAX):
            wish = message("full", f"c{number}", kind=CANCEL_KIND)
            assert await a.instances.send([wish]) == [Sent.SENT]
        assert await a.send("full", "one more") is Sent.FULL
        wish = message("full", "enough", kind=CANCEL_KIND)
        assert await a.instances.send([wish]) == [Sent.FULL]

    @scenario
    async def test_what_is_refused_takes_no_place_of_a_wish_to_cancel(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("full")
        await fill(a, "full")
        known = [message("full", f"m{number}") for number in range(CANCELS_MAX // 2)]
        signals = [message("full", f"s{number}") for number in range(CANCELS_MAX)]
        wishes = [
            message("full", f"c{number}", kind=CANCEL_KIND) for number in range(CANCELS_MAX + 1)
        ]
        outcomes = await a.instances.send([*known, *signals, wishes[0]])
        duplicates, refused = [Sent.DUPLICATE] * len(known), [Sent.FULL] * len(signals)
        assert list(outcomes) == [*duplicates, *refused, Sent.SENT]
        outcomes = await a.instances.send([*wishes[:-1], signals[0], wishes[-1]])
        sent = [Sent.SENT] * (CANCELS_MAX - 1)
        assert list(outcomes) == [Sent.DUPLICATE, *sent, Sent.FULL, Sent.FULL]

    @scenario
    async def test_what_was_sent_before_takes_no_place_of_what_is_new(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        await fill(a, "i")
        first, second, *_ = await a.mail("i")
        await a.advance(held, consumed=(first.number, second.number))
        batch = [message("i", id_) for id_ in ("m0", "x", "x", "m1", "m2", "y", "z")]
        batch.append(message("i", "enough", kind=CANCEL_KIND))
        assert list(await a.instances.send(batch)) == [
            Sent.DUPLICATE,
            Sent.SENT,
            Sent.DUPLICATE,
            Sent.DUPLICATE,
            Sent.DUPLICATE,
            Sent.SENT,
            Sent.FULL,
            Sent.SENT,
        ]

    @scenario
    async def test_a_full_mailbox_hinders_no_other(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("full", "empty")
        await fill(a, "full")
        outcomes = await a.instances.send([message("full", "x"), message("empty", "x")])
        assert list(outcomes) == [Sent.FULL, Sent.SENT]


class LetterCases:
    """A letter lies there until a commit of its receiver takes it out."""

    @scenario
    async def test_reading_takes_nothing_out(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        await a.put("i")
        await a.send("i", "m")
        claimed = await a.claim_one()
        assert [letter.id for letter in claimed.letters] == ["m"]
        assert await a.mail_ids("i") == ["m"]
        await a.release(claimed)
        again = await b.claim_one()
        assert again.letters == claimed.letters

    @scenario
    async def test_a_commit_takes_out_what_it_names_and_no_more(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        for id_ in ("m1", "m2", "m3", "m4"):
            await a.send("i", id_)
        letters = {letter.id: letter.number for letter in await a.mail("i")}
        # The later ones first: nothing is skipped by a place that was passed.
        held = await a.advance(held, consumed=(letters["m4"], letters["m2"]))
        assert await a.mail_ids("i") == ["m1", "m3"]
        held = await a.advance(held, consumed=(letters["m1"],))
        assert await a.mail_ids("i") == ["m3"]
        await a.advance(held, release=True)
        claimed = await a.claim_one()
        assert [letter.id for letter in claimed.letters] == ["m3"]

    @scenario
    async def test_numbers_of_nothing_are_nothing(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        await a.put("j")
        await a.send("i", "m")
        await a.send("j", "m")
        (of_j,) = await a.mail("j")
        (of_i,) = await a.mail("i")
        foreign = {of_j.number, 2**40} - {of_i.number}
        await a.advance(held, consumed=tuple(foreign))
        assert await a.mail_ids("i") == ["m"]
        assert await a.mail_ids("j") == ["m"]

    @scenario
    async def test_numbers_grow_after_all_were_read(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        last = 0
        for turn in range(3):
            await a.send("i", f"m{turn}")
            (letter,) = await a.mail("i")
            assert letter.number > last
            last = letter.number
            held = await a.advance(held, consumed=(last,))

    @scenario
    async def test_a_letter_that_came_before_the_parking_wakes_it(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        held = await a.own("i")
        await b.send("i", "m")
        await a.advance(held, release=True)
        assert await b.ids() == ["i"]

    @scenario
    async def test_a_parked_one_without_letters_sleeps_on(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        held = await a.own("i")
        await b.send("i", "m")
        (letter,) = await a.mail("i")
        await a.advance(held, release=True, consumed=(letter.number,))
        assert await b.ids() == []

    @scenario
    async def test_a_mailbox_is_read_page_by_page(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("i")
        names = [f"m{number:03}" for number in range(LETTERS_MAX + 30)]
        await a.instances.send([message("i", name) for name in names])
        first = await a.mail("i")
        assert [letter.id for letter in first] == names[:LETTERS_MAX]
        second = await a.mail("i", after=first[-1].number)
        assert [letter.id for letter in second] == names[LETTERS_MAX:]
        assert [letter.id for letter in await a.mail("i", limit=3)] == names[:3]
        assert await a.mail("i", after=second[-1].number) == []
        assert await a.mail("i", limit=0) == []

    @scenario
    async def test_a_mailbox_survives_its_owners(self, lab: Lab) -> None:
        a, b, gone = await runners(lab, 3)
        held = await gone.own("i")
        await a.send("i", "m1")
        (letter,) = await gone.mail("i")
        await gone.advance(held, consumed=(letter.number,))
        await a.send("i", "m2")
        assert await gone.mail_ids("i") == ["m2"]
        await gone.end()
        await a.send("i", "m3")
        assert await a.reclaim() == ["i"]
        claimed = await b.claim_one()
        assert [found.id for found in claimed.letters] == ["m2", "m3"]
