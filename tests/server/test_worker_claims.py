"""The Python worker never keeps a claim that it does not work on, whatever happened to a request.

Its session lives on with it, so that no ttl would end such a claim: the item would be nobody's for
as long as the worker lives.
"""

from __future__ import annotations

import asyncio
import contextlib
from urllib.parse import urlsplit

import pytest

from outlive.client import Client, HttpWorker, worker
from outlive.model.bearer import Scope
from outlive.server.serving import ServePlan, serve
from tests.server.api import make_token, open_memory

# Far above what a test takes: whatever comes back sooner was given back.
TTL_S = 300.0


class Relay:
    """Passes requests on; those to ``deaf`` paths are lost, or only their answers are."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self.deaf: set[str] = set()
        self.mute: set[str] = set()
        self.delays: dict[str, float] = {}
        self.lost = asyncio.Event()
        self.tasks: set[asyncio.Task] = set()

    async def __call__(self, reader, writer) -> None:
        self.tasks.add(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            message = await self._message(reader)
            path = message.split(b" ", 2)[1].decode()
            if path in self.deaf:
                self.lost.set()
            else:
                answer = await self._ask(message)
                await asyncio.sleep(self.delays.pop(path, 0))
                if path in self.mute:
                    self.lost.set()
                else:
                    writer.write(answer)
        writer.close()

    async def _ask(self, message: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(self._target.hostname, self._target.port)
        try:
            writer.write(message)
            return await self._message(reader)
        finally:
            writer.close()

    async def _message(self, reader) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        lengths = [line for line in lines if line.startswith(b"content-length:")]
        length = int(lengths[0].split(b":")[1]) if lengths else 0
        return head + await reader.readexactly(length)


@pytest.fixture
async def shop(request):
    driver = await open_memory(request.node.name[:30], "shop")
    yield driver
    await driver.close()


@pytest.fixture
async def relay(request, shop, monkeypatch):
    """A real server behind a relay, and a client that is patient for a short time only."""
    monkeypatch.setattr(worker, "_WAIT_S", 0.1)
    address = asyncio.get_running_loop().create_future()
    plan = ServePlan(url=f"memory://{request.node.name[:30]}", namespaces=("shop",), port=0)
    serving = asyncio.create_task(serve(plan, started=lambda at, _: address.set_result(at)))
    between = Relay(await address)
    listener = await asyncio.start_server(between, "127.0.0.1", 0)
    between.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    yield between
    listener.close()
    serving.cancel()
    await asyncio.wait([serving, *between.tasks])


@contextlib.asynccontextmanager
async def working(relay, shop, work, ttl=TTL_S):
    _, token = await make_token(shop, "shop", *Scope)
    async with Client(relay.url, token, worker_id="w1", ttl=ttl, patience=0.2) as speaking:
        worked = HttpWorker(speaking, ["mail"], work, grace=0)
        running = asyncio.create_task(worked.run())
        yield speaking
        worked.stop()
        await asyncio.wait_for(running, 20)


async def until_state(shop, item: str, *states: str) -> None:
    async with asyncio.timeout(10):
        # What others do sets no event here.
        while (await shop.jobs.get(item)).state not in states:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "result", [object(), "x" * 2_000_000, "\ud800"], ids=["no JSON", "too large", "no Unicode"]
)
async def test_a_result_that_cannot_be_kept_is_a_failure_of_the_item(relay, shop, result):
    async def work(_):
        return result

    async with working(relay, shop, work) as speaking:
        item = await speaking.enqueue("mail", 1)
        # Done, and not to be done twice.
        await until_state(shop, item, "dead")


async def test_an_error_whose_text_is_no_unicode_is_told_all_the_same(relay, shop):
    async def work(_):
        raise OSError("no such file: \udcff")

    async with working(relay, shop, work) as speaking:
        item = await speaking.enqueue("mail", 1)
        await until_state(shop, item, "retrying")
        assert "no such file" in (await shop.jobs.get(item)).error


async def test_an_item_that_could_not_be_settled_is_given_back(relay, shop):
    began = 0

    async def work(_):
        nonlocal began
        began += 1

    relay.deaf.add("/worker/complete")
    async with working(relay, shop, work) as speaking:
        item = await speaking.enqueue("mail", 1)
        await asyncio.wait_for(relay.lost.wait(), 10)
        async with asyncio.timeout(10):
            while began < 2:  # noqa: ASYNC110 - what others do sets no event here
                await asyncio.sleep(0.02)
        relay.deaf.clear()
        await until_state(shop, item, "done")


async def test_an_item_whose_answer_was_lost_is_asked_for_until_it_comes(relay, shop):
    async def work(_):
        return "worked"

    relay.mute.add("/worker/next")
    async with working(relay, shop, work) as speaking:
        item = await speaking.enqueue("mail", 1)
        await until_state(shop, item, "claimed")
        # Longer than the client is patient: the worker begins anew.
        await asyncio.sleep(1.0)
        relay.mute.clear()
        await until_state(shop, item, "done")


async def test_an_item_that_was_cancelled_before_it_was_begun_ends(relay, shop):
    async def work(_):
        await asyncio.sleep(600)

    relay.delays["/worker/next"] = 2.0
    _, token = await make_token(shop, "shop", *Scope)
    async with Client(relay.url, token, patience=0.2) as asking:
        item = await asking.enqueue("mail", 1)
    async with working(relay, shop, work, ttl=5.0):
        await until_state(shop, item, "claimed")
        await shop.jobs.cancel([item], reason="not needed")
        await until_state(shop, item, "cancelled")
