"""An HTTP worker without a server: what it tells of its claims, and when it lets go of them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time

import pytest

from outlive.client import Client, HttpWorker, Item
from outlive.errors import ConfigurationError, StoreUnavailable

PATIENCE_S = 20.0


class Fake(Client):
    """A client whose server is the test: gives one item, and notes what is said."""

    def __init__(self, ttl: float, left_s: float | None = None) -> None:
        super().__init__("http://127.0.0.1:1", worker_id="w1", ttl=ttl)
        self.left_s = ttl if left_s is None else left_s
        self.items = 1
        self.deadline = 0.0
        self.beats: list[tuple[list[str], bool]] = []
        self.released: list[str] = []
        self.beaten = asyncio.Event()
        self.numbers = itertools.count(1)

    async def next(self, queues, *, wait=0.0, **_):
        if not self.items:
            return await asyncio.sleep(wait * 100)
        self.items -= 1
        self.deadline = time.monotonic() + self.left_s
        name = f"i{next(self.numbers)}"
        return Item(
            id=name,
            queue=queues[0],
            token=1,
            payload=None,
            attempt=1,
            headers={},
            deadline=self.deadline,
            claim_id="c",
        )

    async def heartbeat(self, items, progress=None, *, complete=False):
        self.beats.append(([item.id for item in items], complete))
        self.beaten.set()
        return await self.answer(items)

    async def answer(self, items):
        return time.monotonic() + self.ttl, {item.id: "ok" for item in items}

    async def release(self, item, *, delay=0.0):
        self.released.append(item.id)

    async def complete(self, item, result=None):
        return None


@contextlib.asynccontextmanager
async def working(client, work=asyncio.sleep, **options):
    worker = HttpWorker(client, ["mail"], work, grace=0, **options)
    running = asyncio.create_task(worker.run())
    yield worker, running
    worker.stop()
    await asyncio.wait_for(asyncio.wait([running]), PATIENCE_S)


async def forever(_) -> None:
    await asyncio.sleep(600)


async def test_a_worker_that_has_nothing_says_so_at_a_third_of_its_ttl():
    client = Fake(ttl=0.3)
    client.items = 0
    async with working(client):
        begun = time.monotonic()
        while len(client.beats) < 3:
            client.beaten.clear()
            await asyncio.wait_for(client.beaten.wait(), PATIENCE_S)
        assert time.monotonic() - begun >= 0.29
    assert client.beats[0] == ([], True)


async def test_a_worker_that_has_nothing_is_no_burden_in_an_outage():
    class Away(Fake):
        async def answer(self, items):
            raise StoreUnavailable("away")

    client = Away(ttl=6.0)
    client.items = 0
    async with working(client) as (worker, _):
        await asyncio.wait_for(client.beaten.wait(), PATIENCE_S)
        worker.outage = True
        # A worker that had claims would try again each second.
        assert worker._beat_pause_s(0.5) == 2.0


@pytest.mark.parametrize("delay_s", [0.0, 0.13])
async def test_a_worker_in_an_outage_never_outstays_its_claim(delay_s):
    ended: list[float] = []
    over = asyncio.Event()

    class Away(Fake):
        async def answer(self, items):
            await asyncio.sleep(delay_s)
            raise StoreUnavailable("away")

    async def work(_):
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(time.monotonic())
            over.set()

    client = Away(ttl=4.0, left_s=3.0)
    async with working(client, work):
        await asyncio.wait_for(client.beaten.wait(), PATIENCE_S)
        await asyncio.wait_for(over.wait(), PATIENCE_S)
    # A margin of a tenth of the ttl; the rest is for a machine that is busy.
    assert ended[0] <= client.deadline - 0.2
    assert ended[0] >= client.deadline - 1.0
    assert client.released == ["i1"]


async def test_what_lost_its_claim_is_not_told_to_stop_twice_nor_named():
    told: list[str] = []
    over = asyncio.Event()

    class Lost(Fake):
        async def answer(self, items):
            return time.monotonic() + self.ttl, {item.id: "lost" for item in items}

    async def work(_):
        try:
            await asyncio.sleep(600)
        finally:
            told.append("stop")
            await asyncio.sleep(0.5)
            over.set()

    client = Lost(ttl=0.3)
    async with working(client, work):
        await asyncio.wait_for(over.wait(), PATIENCE_S)
    assert told == ["stop"]
    assert client.beats[:3] == [(["i1"], True), ([], True), ([], True)]


async def test_a_worker_that_is_cancelled_before_it_began_an_item_gives_it_back():
    class Slow(Fake):
        async def answer(self, items):
            return await asyncio.sleep(600)

    client = Slow(ttl=30.0, left_s=15.0)
    async with working(client, forever) as (_, running):
        await asyncio.wait_for(client.beaten.wait(), PATIENCE_S)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
    assert client.released == ["i1"]


async def test_a_worker_that_is_refused_before_it_began_an_item_gives_it_back():
    class Refusing(Fake):
        async def answer(self, items):
            raise ConfigurationError("the token was revoked")

    client = Refusing(ttl=30.0, left_s=15.0)
    async with working(client, forever) as (_, running):
        with pytest.raises(ConfigurationError):
            await asyncio.wait_for(running, PATIENCE_S)
    assert client.released == ["i1"]


async def test_an_item_that_comes_in_the_moment_of_a_cancel_is_given_back():
    came = asyncio.Event()

    class Sudden(Fake):
        async def next(self, queues, **more):
            if running.cancelling():
                return None
            await came.wait()
            # Before whoever waits for this has had a turn.
            running.cancel()
            return await super().next(queues, **more)

    client = Sudden(ttl=30.0)
    async with working(client, forever) as (_, running):
        await asyncio.sleep(0.05)
        came.set()
        await asyncio.wait([running])
    assert client.released == ["i1"]
