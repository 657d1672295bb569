"""What a driver remembers: sightings of free keys, folders, who waits, answers to renewals."""

from __future__ import annotations

import asyncio
import gc

import pytest

from outlive.drivers.etcd.interest import Interest
from outlive.drivers.etcd.operations import Term
from outlive.drivers.etcd.renewals import KeepAlive
from outlive.drivers.etcd.sightings import Sightings
from outlive.drivers.etcd.translate import CallFailed
from outlive.testing import ManualClock
from tests.unit.drivers.etcd.folders_by_hand import folder, slot


def test_a_key_is_free_since_it_was_seen_free() -> None:
    sightings = Sightings()
    free = folder(slot(0, None, 9))
    assert sightings.free_since_us(free, 1_000) == 1_000
    assert sightings.free_since_us(free, 5_000) == 1_000


def test_what_was_seen_of_an_earlier_grant_does_not_count() -> None:
    sightings = Sightings()
    sightings.freed("k", 0, 50, 1_000)
    assert sightings.free_since_us(folder(slot(0, None, 40)), 5_000) == 1_000
    # Granted at 60 and free again: the sighting at 50 was of another time.
    assert sightings.free_since_us(folder(slot(0, None, 60)), 5_000) == 5_000


def test_a_resume_does_not_count_as_the_end_of_the_grant_that_it_made() -> None:
    sightings = Sightings()
    # The transaction at 50 deleted the live key of the former self and made the next grant.
    sightings.freed("k", 0, 50, 1_000)
    ran_out = folder(slot(0, "a/2", 50, live=False))
    assert sightings.free_since_us(ran_out, 60_000) == 60_000
    assert sightings.free_since_us(ran_out, 70_000) == 60_000
    # A break leaves a token that may be its own revision, and that one was the end.
    sightings.freed("x", 0, 50, 1_000)
    broken = folder(slot(0, None, 50))._replace(key="x")
    assert sightings.free_since_us(broken, 60_000) == 1_000


def test_an_older_sighting_does_not_replace_a_newer_one() -> None:
    sightings = Sightings()
    sightings.freed("k", 0, 50, 1_000)
    sightings.freed("k", 0, 45, 9_000)
    assert sightings.free_since_us(folder(slot(0, None, 40)), 9_000) == 1_000


def test_the_newest_folder_is_remembered() -> None:
    sightings = Sightings()
    newest = folder(slot(0, None, 9))
    sightings.saw(newest)
    sightings.saw(newest._replace(revision=50))
    assert sightings.folder("k") is newest


def test_who_waits_is_forgotten_when_served_or_silent() -> None:
    clock = ManualClock()
    waiting = Interest(clock)
    waiting.begin("k", "a/1")
    waiting.begin("k", "a/2")
    waiting.end("k", "a/1")
    waiting.end("k", "a/1")
    assert "k" in waiting
    clock.advance(20)
    waiting.forget_silent("k")
    assert list(waiting) == ["k"]
    clock.advance(20)
    waiting.forget_silent("k")
    assert "k" not in waiting


class Stream:
    """The far end of a stream of renewals, by hand; also the wire it runs on."""

    closed = False

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.answers: asyncio.Queue[Term | CallFailed] = asyncio.Queue()

    def renewals(self) -> Stream:
        return self

    async def send(self, lease: int) -> None:
        self.asked.append(lease)

    async def next(self) -> Term:
        answer = await self.answers.get()
        if isinstance(answer, CallFailed):
            raise answer
        return answer

    def close(self) -> None:
        return None


async def test_each_answer_finds_its_question() -> None:
    stream, keep_alive = Stream(), KeepAlive()
    asking = [asyncio.ensure_future(keep_alive.ask(stream, lease)) for lease in (1, 2, 1)]
    await asyncio.sleep(0)
    asking[0].cancel()
    for term in (Term(2, 30), Term(1, 5), Term(1, 0)):
        stream.answers.put_nowait(term)
    assert await asking[1] == 30
    # The answer to the question that was given up is not taken for that of the next.
    assert await asking[2] == 0
    keep_alive.forget()


async def test_a_question_on_a_wire_that_was_left_does_not_break_the_next() -> None:
    left, present, keep_alive = Stream(), Stream(), KeepAlive()
    asking = asyncio.ensure_future(keep_alive.ask(present, 1))
    await asyncio.sleep(0)
    left.closed = True
    with pytest.raises(CallFailed) as raised:
        await keep_alive.ask(left, 2)
    assert not raised.value.sent
    present.answers.put_nowait(Term(1, 30))
    assert await asking == 30
    keep_alive.forget()


async def test_a_failure_that_nobody_waits_for_is_no_noise() -> None:
    noise: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context))
    stream, keep_alive = Stream(), KeepAlive()
    sending = asyncio.Event()

    async def send(_: int) -> None:
        sending.set()
        await asyncio.sleep(60)

    stream.send = send
    asking = asyncio.ensure_future(keep_alive.ask(stream, 1))
    await sending.wait()
    stream.answers.put_nowait(CallFailed("UNAVAILABLE", "gone"))
    await asyncio.sleep(0.01)
    asking.cancel()
    await asyncio.wait({asking})
    del asking
    gc.collect()
    await asyncio.sleep(0)
    assert noise == []


async def test_a_broken_stream_fails_all_who_wait_and_is_opened_anew() -> None:
    stream, keep_alive = Stream(), KeepAlive()
    asking = [asyncio.ensure_future(keep_alive.ask(stream, lease)) for lease in (1, 2)]
    await asyncio.sleep(0)
    stream.answers.put_nowait(CallFailed("UNAVAILABLE", "gone"))
    for question in asking:
        with pytest.raises(CallFailed):
            await question
    stream.answers.put_nowait(Term(3, 30))
    assert await keep_alive.ask(stream, 3) == 30
    keep_alive.forget()
