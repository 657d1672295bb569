"""The Python client against a server in the same process, over real sockets that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import msgspec
import pytest

from outlive.client import Client, HttpWorker
from outlive.client import http as http_module
from outlive.client import worker as worker_module
from outlive.client.http import Http
from outlive.errors import (
    ConfigurationError,
    Conflict,
    NotFound,
    OutcomeUnknown,
    StoreUnavailable,
    UsageError,
)
from outlive.model.bearer import Scope
from tests.server.api import make_token


@contextlib.asynccontextmanager
async def listening(answers) -> AsyncGenerator[tuple[str, list[bytes]], None]:
    """A server that gives these raw answers, one for each request; ``None`` hangs up."""
    heard: list[bytes] = []
    left = list(answers)

    async def serve(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while left:
                head = await reader.readuntil(b"\r\n\r\n")
                length = 0
                for line in head.split(b"\r\n"):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                heard.append(head + await reader.readexactly(length))
                answer = left.pop(0)
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard


def answer(status: int, body: bytes = b"", *headers: bytes, kind: bytes = b"application/json"):
    lines = [b"HTTP/1.1 %d X" % status, b"Content-Length: %d" % len(body), *headers]
    if body:
        lines.append(b"Content-Type: " + kind)
    return b"\r\n".join([*lines, b"", body])


def problem(status: int, code: str):
    body = b'{"detail": "words", "code": "%s"}' % code.encode()
    return answer(status, body, kind=b"application/problem+json")


CREATED = answer(201, b'{"id": "i1", "outcome": "created"}')


async def test_an_enqueue_whose_answer_was_lost_is_sent_again_under_the_same_id():
    answers = [None, problem(503, "store-unavailable"), CREATED]
    async with listening(answers) as (url, heard), Client(url, "olt_x") as client:
        assert await client.enqueue("mail", {"a": 1}) == "i1"
    bodies = {request.partition(b"\r\n\r\n")[2] for request in heard}
    assert (len(heard), len(bodies)) == (3, 1)
    assert all(b"Authorization: Bearer olt_x\r\n" in request for request in heard)


async def test_what_is_too_large_is_not_sent():
    async with listening([CREATED]) as (url, heard), Client(url) as client:
        with pytest.raises(UsageError, match="too large"):
            await client.enqueue("mail", "x" * 1_100_000)
        assert heard == []


async def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch):
    ends: list[int] = []
    connect = Http._connect

    async def connecting(self):
        ends.append(len(ends))
        return await connect(self)

    monkeypatch.setattr(Http, "_connect", connecting)
    async with listening([CREATED] * 3) as (url, _), Client(url) as client:
        await client.enqueue("mail", 1)
        await client.enqueue("mail", 1)
        assert len(ends) == 1
        monkeypatch.setattr(http_module, "_IDLE_S", 0.0)
        await asyncio.sleep(0.01)
        await client.enqueue("mail", 1)
    assert len(ends) == 2


async def test_one_connection_serves_many_requests_and_a_closed_one_is_replaced():
    answers = [CREATED, CREATED, None, CREATED]
    async with listening(answers) as (url, heard), Client(url) as client:
        for _ in range(3):
            assert await client.enqueue("mail", 1) == "i1"
    assert len(heard) == 4


async def test_a_chunked_answer_of_a_proxy_is_understood():
    body = b'5\r\n{"id"\r\n10;x=y\r\n: "i1", "n": 12}\r\n0\r\n\r\n'
    head = (
        b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n"
    )
    async with listening([head + b"\r\n" + body]) as (url, _), Client(url) as client:
        assert await client.enqueue("mail", 1) == "i1"


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (400, "invalid-request", UsageError),
        (401, "unauthenticated", ConfigurationError),
        (403, "forbidden", ConfigurationError),
        (404, "not-found", NotFound),
        (409, "duplicate", Conflict),
        (413, "too-large", UsageError),
        (500, "internal", OutcomeUnknown),
    ],
)
async def test_a_refusal_is_the_error_that_says_what_to_do(status, code, error):
    async with listening([problem(status, code)]) as (url, _), Client(url) as client:
        with pytest.raises(error, match="words"):
            await client.enqueue("mail", 1)


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n{{{",
        b"x" * 100_000,
    ],
)
async def test_what_is_no_answer_is_an_unknown_outcome(raw):
    async with listening([raw]) as (url, _):
        http = Http(url, None)
        with pytest.raises(OutcomeUnknown):
            await http.request("POST", "/worker/next", {}, timeout=5)
        await http.close()


async def test_a_silent_server_is_an_unknown_outcome_and_a_missing_one_is_unavailable():
    async with listening([b"", b""]) as (url, _):
        http = Http(url, None)
        with pytest.raises(OutcomeUnknown, match=r"within 0\.1 s"):
            await http.request("GET", "/queues", timeout=0.1)
    with pytest.raises(StoreUnavailable):
        await http.request("GET", "/queues", timeout=5)
    await http.close()


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("ftp://x", None),
        ("localhost:8420", None),
        ("http://", None),
        ("http://user:secret@x", None),
        ("http://x?token=secret", None),
        ("http://x", "two\r\nlines"),
        ("http://x", ""),
    ],
)
async def test_a_wrong_address_or_token_is_refused_without_showing_it(url, token):
    with pytest.raises(ConfigurationError) as refused:
        Client(url, token)
    assert "secret" not in str(refused.value)
    assert "two" not in str(refused.value)


async def test_a_client_shows_no_token():
    client = Client("http://x", "olt_canary")
    assert "canary" not in repr(client) + repr(vars(client))


async def test_a_worker_without_a_queue_or_a_slot_is_refused():
    client = Client("http://x")
    with pytest.raises(UsageError):
        HttpWorker(client, [], print)
    with pytest.raises(UsageError):
        HttpWorker(client, ["mail"], print, concurrency=0)


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": True},
        {"concurrency": 0.5},
        {"concurrency": -1},
        {"grace": -1},
        {"grace": float("nan")},
        {"grace": "long"},
    ],
)
async def test_a_slot_or_a_grace_that_is_none_is_refused(options):
    with pytest.raises(UsageError, match=next(iter(options))):
        HttpWorker(Client("http://x"), "mail", print, **options)


async def test_one_queue_may_be_named_by_itself(real):
    url, token, _ = real
    async with Client(url, token) as client:
        item = await client.enqueue("mail", 1)
        assert (await client.next("mail")).id == item
        done = asyncio.Event()
        worker = HttpWorker(client, "post", lambda _: done.set() or asyncio.sleep(0))
        running = asyncio.create_task(worker.run())
        await client.enqueue("post", 2)
        await until(lambda: worker.done == 1)
        worker.stop()
        await running


@pytest.mark.parametrize("queues", [[], "", ["mail", "\ud800"], "a\ud800", [1]])
async def test_what_names_no_queue_is_refused_before_it_is_sent(queues):
    async with listening([]) as (url, heard), Client(url) as client:
        with pytest.raises(UsageError):
            await client.next(queues)
        with pytest.raises(UsageError):
            await client.enqueue(queues[-1] if queues else "", 1)
    assert heard == []


@dataclass
class Priced:
    price: float


@pytest.mark.parametrize(
    "payload",
    [float("nan"), {"price": float("inf")}, Priced(float("-inf")), "\ud800", {"\udfff": None}],
)
async def test_what_json_cannot_say_is_refused_before_it_is_sent(payload):
    async with listening([]) as (url, heard), Client(url) as client:
        with pytest.raises(UsageError, match=r"JSON|Unicode"):
            await client.enqueue("mail", payload)
        with pytest.raises(UsageError, match=r"JSON|Unicode"):
            await client.enqueue_many("mail", [{"payload": 1}, {"payload": payload}])
    assert heard == []


async def test_what_json_can_say_is_sent_as_it_is():
    async with listening([CREATED]) as (url, heard), Client(url) as client:
        await client.enqueue("mail", {"none": None, "list": [1.5, Priced(2.0)]})
    assert b'{"none":null,"list":[1.5,{"price":2.0}]}' in heard[0]


async def test_an_id_that_is_none_is_chosen_as_one_that_is_left_out():
    many = answer(200, b'{"items": [{"id": "i1", "outcome": "created"}]}')
    async with listening([None, CREATED, None, many]) as (url, heard), Client(url) as client:
        await client.enqueue("mail", 1, id=None)
        await client.enqueue_many("mail", [{"payload": 1, "id": None}])
    sent = [msgspec.json.decode(each.partition(b"\r\n\r\n")[2]) for each in heard]
    assert sent[0] == sent[1]
    assert sent[2] == sent[3]
    assert sent[0]["id"]
    assert sent[2][0]["id"]


async def test_a_worker_whose_token_is_wrong_says_so_and_ends():
    async with listening([problem(401, "unauthenticated")]) as (url, _), Client(url) as client:
        with pytest.raises(ConfigurationError, match="words"):
            await HttpWorker(client, ["mail"], print).run()


@pytest.fixture
async def real(drivers):
    """A real server on a real socket, in this process."""
    import uvicorn

    from tests.server.api import application

    app = application(drivers)
    _, token = await make_token(drivers["shop"], "shop", *Scope)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off", ws="none"))
    server.capture_signals = contextlib.nullcontext
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}", token, drivers["shop"].jobs
    app.close()
    server.should_exit = True
    await serving


async def until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what others do sets no event here
            await asyncio.sleep(0.01)


async def test_items_are_worked_on_several_at_a_time_and_settled(real):
    url, token, jobs = real
    together, failed = asyncio.Barrier(3), asyncio.Event()

    async def work(item):
        if item.payload == "bad":
            failed.set()
            raise ValueError("no good")
        await together.wait()
        return item.payload * 2

    async with Client(url, token, worker_id="w1") as client:
        queued = await client.enqueue_many(
            "mail", [{"payload": 1}, {"payload": 2}, {"payload": 3}, {"payload": "bad"}]
        )
        worker = HttpWorker(client, ["mail"], work, concurrency=3)
        running = asyncio.create_task(worker.run())
        await until(lambda: worker.done == 3)
        await asyncio.wait_for(failed.wait(), 20)
        worker.stop()
        await running
    records = [await jobs.get(job) for job, _ in queued]
    assert [record.state for record in records[:3]] == ["done", "done", "done"]
    assert records[3].attempts == 1
    assert [record.result for record in records[:3]] == ["2", "4", "6"]
    assert "no good" in records[3].error


async def test_a_cancelled_item_stops_the_task_that_works_on_it(real):
    url, token, jobs = real
    began, ended = asyncio.Event(), asyncio.Event()

    async def work(_):
        began.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    async with Client(url, token, worker_id="w1", ttl=5) as client:
        item = await client.enqueue("mail", 1)
        worker = HttpWorker(client, ["mail"], work)
        running = asyncio.create_task(worker.run())
        await asyncio.wait_for(began.wait(), 10)
        await jobs.cancel([item], reason="not needed")
        await asyncio.wait_for(ended.wait(), 10)
        worker.stop()
        await running
    assert (await jobs.get(item)).state == "cancelled"


async def test_a_stop_during_a_wait_leaves_nothing_claimed(real):
    url, token, jobs = real
    for _ in range(5):
        async with Client(url, token, worker_id="w1") as client:
            worker = HttpWorker(client, ["mail"], lambda _: asyncio.sleep(600), grace=0)
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(0.05)
            item = await client.enqueue("mail", 1)
            worker.stop()
            await asyncio.wait_for(running, 20)
        record = await jobs.get(item)
        assert record.state == "ready"
        await jobs.cancel([item], reason="next round")


async def test_a_worker_that_never_reached_its_server_ends_at_once_and_fears_nothing(
    monkeypatch, caplog
):
    async with listening([]) as (url, _):
        pass
    monkeypatch.setattr(worker_module, "_LAST_WORD_S", 600.0)
    async with Client(url) as client:
        worker = HttpWorker(client, ["mail"], print)
        running = asyncio.create_task(worker.run())
        await until(lambda: worker._request is not None)
        worker.stop()
        await asyncio.wait_for(running, 20)
    assert "may be claimed and not released" not in caplog.text


async def test_a_worker_whose_server_fell_silent_says_how_long_it_asked(monkeypatch, caplog):
    monkeypatch.setattr(worker_module, "_LAST_WORD_S", 0.1)
    async with listening([b"", b""]) as (url, heard), Client(url) as client:
        worker = HttpWorker(client, ["mail"], print)
        running = asyncio.create_task(worker.run())
        await until(lambda: heard)
        worker.stop()
        await asyncio.wait_for(running, 20)
    assert "not released: no answer within 0.1 s" in caplog.text


def test_what_a_worker_says_of_an_error_shows_no_secret_and_never_fails():
    said = worker_module._said(ValueError("postgresql://ann:s3cret@db/x is away \udcff"))
    assert "s3cret" not in said
    assert said.startswith("postgresql://ann:***@db/x")
    said.encode()

    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert worker_module._said(Odd()) == "(unprintable: RuntimeError)"
    assert worker_module._said(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_a_name_that_no_policy_can_know_is_not_sent():
    assert worker_module._type_of(ValueError()) == "ValueError"
    assert worker_module._type_of(type("x" * 200, (Exception,), {})()) is None
    assert worker_module._type_of(type("a\nb", (Exception,), {})()) is None


async def test_a_request_is_repeated_for_as_long_as_the_client_has_patience(caplog):
    async with Client("http://127.0.0.1:1", patience=0.3) as client:
        begun = asyncio.get_running_loop().time()
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1"):
            await client.enqueue("mail", 1)
        assert asyncio.get_running_loop().time() - begun < 5
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("POST /queues/mail/items: no answer, repeating for up to")


async def test_a_worker_logs_what_fails_with_its_traceback(real, caplog):
    url, token, _ = real

    async def fails(item):
        raise ValueError("no such mailbox")

    async with Client(url, token) as client:
        worker = HttpWorker(client, "mail", fails)
        working = asyncio.create_task(worker.run())
        item = await client.enqueue("mail", 1, max_attempts=1)
        await until(lambda: caplog.records)
        worker.stop()
        await working
    (record,) = caplog.records
    assert (record.levelname, record.job, record.queue) == ("WARNING", item, "mail")
    assert record.getMessage().startswith(f"item {item} of queue 'mail' failed in attempt 1:\n")
    assert "ValueError: no such mailbox" in record.getMessage()
    assert "in fails" in record.getMessage()
