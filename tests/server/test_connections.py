"""Connections of strangers: none is held for long, and none grows, before there is a request."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import ClassVar

import msgspec
import pytest
import uvicorn

from outlive.client import http
from outlive.errors import ConfigurationError
from outlive.server import bodies, limits
from outlive.server import serving as serving_module
from outlive.server.problems import Problem
from outlive.server.serving import ServePlan, serve
from tests.server.api import application

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
REFUSED = b"POST /no/such/path HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture
async def port(request, monkeypatch):
    """A real server that has little patience."""
    monkeypatch.setattr(limits, "HEAD_TIMEOUT_S", 0.5)
    address = asyncio.get_running_loop().create_future()
    plan = ServePlan(url=f"memory://{request.node.name[:30]}", namespaces=("default",), port=0)
    serving = asyncio.create_task(serve(plan, started=lambda at, _: address.set_result(at)))
    yield int((await address).rpartition(":")[2])
    serving.cancel()
    await asyncio.wait([serving])


async def test_a_server_behind_a_proxy_is_not_open_to_whom_the_proxy_lets_in():
    plan = ServePlan(
        url="memory://proxied", namespaces=("default",), port=0, allowed_hosts=("work.example",)
    )
    with pytest.raises(ConfigurationError, match=r"work\.example.*outlive token create"):
        async with asyncio.timeout(5):
            await serve(plan, started=lambda *_: None)


@asynccontextmanager
async def connected(port: int):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(10):
            yield reader, writer
    finally:
        writer.close()


async def ended(reader: asyncio.StreamReader) -> bytes:
    """Everything until the server hangs up."""
    found = b""
    try:
        while part := await reader.read(65536):
            found += part
    except ConnectionError:
        pass
    return found


async def drip(writer: asyncio.StreamWriter, data: bytes) -> None:
    try:
        while True:
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(0.05)
    except ConnectionError:
        return


@pytest.mark.parametrize("begin", [b"", HEALTH], ids=["silent", "half a head"])
async def test_a_head_that_does_not_come_ends_the_connection(port, begin):
    async with connected(port) as (reader, writer):
        writer.write(begin)
        assert await ended(reader) == b""


@pytest.mark.parametrize("first", [b"", HEALTH + b"\r\n"], ids=["first", "second"])
async def test_a_head_that_drips_ends_the_connection(port, first):
    async with connected(port) as (reader, writer):
        writer.write(first + HEALTH + b"X: ")
        dripping = asyncio.create_task(drip(writer, b"a"))
        assert (await ended(reader)).count(b"HTTP/1.1") == bool(first)
        await dripping


async def test_a_head_that_never_ends_is_cut_off(port, monkeypatch):
    monkeypatch.setattr(limits, "HEAD_TIMEOUT_S", 60.0)
    async with connected(port) as (reader, writer):
        writer.write(HEALTH + b"X: ")
        dripping = asyncio.create_task(drip(writer, b"a" * limits.HEAD_BYTES_MAX))
        assert await ended(reader) == b""
        await dripping


async def test_a_head_that_grows_behind_a_waiting_request_is_cut_off(port, monkeypatch):
    monkeypatch.setattr(limits, "HEAD_TIMEOUT_S", 60.0)
    async with connected(port) as (reader, writer):
        wait = b"GET /worker/next?worker_id=w&queues=q&wait=50 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        writer.write(wait + HEALTH + b"X: ")
        dripping = asyncio.create_task(drip(writer, b"a" * limits.HEAD_BYTES_MAX))
        assert await ended(reader) == b""
        await dripping


@pytest.mark.parametrize("begin", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nA b: c\r\n\r\n"])
async def test_what_is_not_http_is_refused_by_a_problem_document(port, begin, caplog):
    async with connected(port) as (reader, writer):
        writer.write(begin)
        head, _, body = (await ended(reader)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"Content-Type: application/problem+json" in head
    assert msgspec.json.decode(body)["code"] == "invalid-request"
    (record,) = caplog.records
    assert record.getMessage() == "a request from 127.0.0.1 is not valid HTTP"


async def test_a_head_that_is_too_large_is_refused_though_it_came_in_time(port):
    async with connected(port) as (reader, writer):
        writer.write(HEALTH + b"X: %s\r\n\r\n" % (b"a" * 100_000))
        assert (await ended(reader)).startswith(b"HTTP/1.1 431 ")


async def test_a_health_check_may_ask_for_the_head_alone(port):
    async with connected(port) as (reader, writer):
        writer.write(b"HEAD" + HEALTH[3:] + b"Connection: close\r\n\r\n")
        head, _, body = (await ended(reader)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body == b""


async def test_a_refused_request_is_no_way_to_go_on_sending(port):
    async with connected(port) as (reader, writer):
        writer.write(REFUSED % 10**12)
        dripping = asyncio.create_task(drip(writer, b"a" * 100))
        assert b"404" in await ended(reader)
        await dripping


async def test_a_refused_body_of_any_allowed_size_is_taken_to_its_end(port):
    async with connected(port) as (reader, writer):
        writer.write(REFUSED % limits.BODY_BYTES_MAX + b"a" * limits.BODY_BYTES_MAX)
        writer.write(HEALTH + b"Connection: close\r\n\r\n")
        found = await ended(reader)
        assert b"HTTP/1.1 404" in found
        assert b"HTTP/1.1 200" in found


@pytest.mark.parametrize("part", [1000, 100_000, 1_000_000])
async def test_a_large_body_is_taken_in_parts_of_any_size(port, part):
    body = b'{"payload": "' + b"a" * 1_000_000 + b'"}'
    async with connected(port) as (reader, writer):
        writer.write(b"POST /queues/mail/items HTTP/1.1\r\nHost: localhost\r\n")
        writer.write(b"Connection: close\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n" % len(body))
        for start in range(0, len(body), part):
            await writer.drain()
            await asyncio.sleep(0)
            writer.write(body[start : start + part])
        assert b"HTTP/1.1 201" in await ended(reader)


async def test_a_request_may_wait_for_longer_than_a_head(port):
    async with connected(port) as (reader, writer):
        path = b"/worker/next?worker_id=w&queues=q&wait=1"
        writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"HTTP/1.1 204" in await ended(reader)


POST = b"POST /queues/mail/items HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "in chunks"])
async def test_who_sends_too_much_hears_it_though_it_goes_on_sending(port, declared):
    size = 5_000_000
    length = b"Content-Length: %d" % size if declared else b"Transfer-Encoding: chunked"
    async with connected(port) as (reader, writer):
        writer.write(POST + length + b"\r\n\r\n")
        if not declared:
            writer.write(b"%x\r\n" % size)
        for _ in range(size // 50_000):
            writer.write(b"a" * 50_000)
            await writer.drain()
            await asyncio.sleep(0.001)
        if not declared:
            writer.write(b"\r\n0\r\n\r\n")
        found = await ended(reader)
        assert b"HTTP/1.1 413" in found
        assert b"too-large" in found


async def test_who_sends_without_end_is_cut_off(port):
    async with connected(port) as (reader, writer):
        writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        dripping = asyncio.create_task(drip(writer, b"100000\r\n" + b"a" * 0x100000 + b"\r\n"))
        found = await ended(reader)
        assert b"HTTP/1.1 413" in found or found == b""
        await dripping


async def test_who_asks_before_sending_too_much_is_answered_at_once(port):
    async with connected(port) as (reader, writer):
        writer.write(POST + b"Content-Length: 2000000\r\nExpect: 100-continue\r\n\r\n")
        assert (await ended(reader)).startswith(b"HTTP/1.1 413")


async def test_a_body_that_is_not_there_when_the_server_stops_is_asked_for_again(
    monkeypatch, caplog
):
    monkeypatch.setattr(bodies, "STOP_BODY_S", 0.3)
    address = asyncio.get_running_loop().create_future()
    plan = ServePlan(url="memory://stopping", namespaces=("default",), port=0)
    serving = asyncio.create_task(serve(plan, started=lambda at, _: address.set_result(at)))
    async with connected(int((await address).rpartition(":")[2])) as (reader, writer):
        writer.write(HEALTH + b"\r\n")
        await reader.readuntil(b'"ok"}')
        writer.write(POST + b"Content-Length: 100\r\n\r\n{")
        await asyncio.sleep(0.2)
        serving.cancel()
        found = await ended(reader)
    await asyncio.wait([serving])
    assert found.startswith(b"HTTP/1.1 503")
    assert b"application/problem+json" in found
    assert b"server-stopping" in found
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_stop_bears_a_body_whose_time_is_just_running_out(monkeypatch):
    monkeypatch.setattr(bodies, "BODY_TIMEOUT_S", 0.1)
    reading = bodies.Bodies(1000)
    stopped = asyncio.get_running_loop().create_future()

    def stop() -> None:
        try:
            reading.stop()
        except RuntimeError as error:
            stopped.set_exception(error)
        else:
            stopped.set_result(None)

    class Slow:
        headers: ClassVar = {"content-type": "application/json"}

        async def stream(self):
            (timeout,) = reading._reading
            # In the turn of the loop in which the time is over, and behind that.
            asyncio.get_running_loop().call_at(timeout.when() + 1e-7, stop)
            yield b"{"
            await asyncio.sleep(60)

    with pytest.raises(Problem):
        await reading.read(Slow())
    await stopped


async def test_a_server_ends_though_its_application_cannot_be_closed(request, monkeypatch):
    def broken(_) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(bodies.Bodies, "stop", broken)
    address = asyncio.get_running_loop().create_future()
    plan = ServePlan(url=f"memory://{request.node.name[:30]}", namespaces=("default",), port=0)
    ended = asyncio.Event()
    real = uvicorn.Server.serve

    async def served(self, sockets) -> None:
        await real(self, sockets)
        ended.set()

    monkeypatch.setattr(uvicorn.Server, "serve", served)
    serving = asyncio.create_task(serve(plan, started=lambda at, _: address.set_result(at)))
    await address
    serving.cancel()
    await asyncio.wait_for(ended.wait(), 10)
    with pytest.raises(RuntimeError):
        await serving


def test_a_client_is_done_with_an_idle_connection_before_its_server_is(request):
    with contextlib.closing(application({})) as app:
        kept_s = serving_module._config(app).timeout_keep_alive
    assert kept_s > limits.TTL_DEFAULT_S / 3
    # A proxy between them may close one after five seconds.
    assert http._IDLE_S < 5.0 < kept_s
