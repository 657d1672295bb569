"""One connection: who gets which reply, what is sent together, and how it ends.

A scripted peer answers, so that a test decides when.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from outlive.drivers.redis.wire import PENDING_MAX, Lost, Wire
from outlive.errors import StoreUnavailable, UsageError

pytestmark = pytest.mark.whitebox


class Peer:
    """A server that says what the test tells it to."""

    def __init__(self) -> None:
        self.chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self.writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        while data := await reader.read(65536):
            self.chunks.put_nowait(data)
        writer.close()

    def say(self, data: bytes) -> None:
        assert self.writer is not None
        self.writer.write(data)

    def hang_up(self) -> None:
        assert self.writer is not None
        self.writer.close()


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Wire, Peer]]:
    peer = Peer()
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    _, wire = await asyncio.get_running_loop().create_connection(lambda: Wire(0.3), host, port)
    yield wire, peer
    wire.abandon("the test is over")
    await wire.ended()
    server.close()
    await server.wait_closed()


async def test_replies_come_in_the_order_of_requests(pair) -> None:
    wire, peer = pair
    replies = [wire.send("GET", str(number)) for number in range(3)]
    await peer.chunks.get()
    peer.say(b"$1\r\na\r\n:7\r\n")
    assert await asyncio.gather(*replies[:2]) == ["a", 7]
    peer.say(b"*2\r\n$-1\r\n+x\r\n")
    assert await replies[2] == [None, "x"]


async def test_a_lone_request_goes_at_once_and_a_crowd_together(pair) -> None:
    wire, peer = pair
    replies = [wire.send("GET", str(number)) for number in range(50)]
    first = await peer.chunks.get()
    # The first did not wait for the others; what came behind it left in one piece.
    rest = b""
    while (first + rest).count(b"GET") < 50:
        rest += await peer.chunks.get()
    peer.say(b"+ok\r\n" * 50)
    assert await asyncio.gather(*replies) == ["ok"] * 50
    assert peer.chunks.empty()


async def test_an_error_reaches_the_one_who_caused_it(pair) -> None:
    wire, peer = pair
    bad, good = wire.send("A"), wire.send("B")
    await peer.chunks.get()
    peer.say(b"-ERR no\r\n+yes\r\n")
    with pytest.raises(wire.reply_error, match="ERR no"):
        await bad
    assert await good == "yes"


async def test_a_caller_who_gave_up_disturbs_nobody(pair) -> None:
    wire, peer = pair
    gone, stays = wire.send("A"), wire.send("B")
    gone.cancel()
    await peer.chunks.get()
    peer.say(b"+a\r\n+b\r\n")
    assert await stays == "b"


async def test_the_end_tells_what_was_sent_and_what_was_not(pair) -> None:
    wire, _ = pair
    sent, unsent = wire.send("A"), wire.send("B")
    wire.abandon("cut")
    with pytest.raises(Lost) as first:
        await sent
    with pytest.raises(Lost) as second:
        await unsent
    assert (first.value.sent, second.value.sent) == (True, False)
    assert not wire.usable
    with pytest.raises(Lost) as third:
        wire.send("C")
    assert not third.value.sent


async def test_a_peer_that_hangs_up_ends_it_for_all(pair) -> None:
    wire, peer = pair
    replies = [wire.send("A") for _ in range(3)]
    await peer.chunks.get()
    peer.hang_up()
    outcomes = await asyncio.gather(*replies, return_exceptions=True)
    assert all(isinstance(outcome, Lost) for outcome in outcomes)
    await wire.ended()


async def test_silence_ends_it_and_talk_does_not(pair) -> None:
    wire, peer = pair
    for _ in range(3):
        # Longer in all than the limit, but never silent for so long.
        reply = wire.send("A")
        await peer.chunks.get()
        await asyncio.sleep(0.15)
        peer.say(b"+a\r\n")
        assert await reply == "a"
    with pytest.raises(Lost, match="no reply in time"):
        await wire.send("B")


async def test_what_is_not_the_protocol_ends_it(pair) -> None:
    wire, peer = pair
    reply = wire.send("A")
    await peer.chunks.get()
    peer.say(b"HTTP/1.1 200 OK\r\n")
    with pytest.raises(Lost, match="protocol"):
        await reply


async def test_an_answer_that_nobody_asked_for_ends_it(pair) -> None:
    wire, peer = pair
    assert await _one(wire, peer) == "a"
    peer.say(b"+surprise\r\n")
    await wire.ended()
    assert not wire.usable


async def _one(wire: Wire, peer: Peer) -> object:
    reply = wire.send("A")
    await peer.chunks.get()
    peer.say(b"+a\r\n")
    return await reply


async def test_a_line_too_long_is_refused(pair) -> None:
    wire, _ = pair
    replies = [wire.send("A") for _ in range(PENDING_MAX)]
    with pytest.raises(StoreUnavailable, match="already waiting"):
        wire.send("A")
    wire.abandon("enough")
    await asyncio.gather(*replies, return_exceptions=True)


async def test_text_that_is_not_unicode_is_refused_and_nothing_sent(pair) -> None:
    wire, peer = pair
    with pytest.raises(UsageError, match="not valid Unicode"):
        wire.send("SET", "k", "\ud800")
    assert await _one(wire, peer) == "a"


async def test_a_damaged_text_does_not_end_the_connection(pair) -> None:
    wire, peer = pair
    reply = wire.send("A")
    await peer.chunks.get()
    peer.say(b"$2\r\n\xff\xfe\r\n")
    assert await reply == "\\xff\\xfe"
