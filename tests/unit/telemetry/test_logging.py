"""Log lines: each says which host it comes from, and the JSON form is safe whatever is logged."""

from __future__ import annotations

import ast
import asyncio
import gc
import json
import logging
import sys
import uuid
from pathlib import Path

import pytest

import outlive
from outlive.charts import Chart
from outlive.charts.orchestrator import Orchestrator
from outlive.connect import connect
from outlive.drivers.memory.host_store import MemoryHostStore
from outlive.drivers.memory.lease_store import MemoryLeaseStore
from outlive.errors import Fenced, LeaseLost, StoreUnavailable
from outlive.leases.events import Released, RenewFailed
from outlive.runtime.keeper import Keeper
from outlive.runtime.runtime import Runtime
from outlive.serialization.failures import masked
from outlive.telemetry import logging as logs
from outlive.telemetry.logging import JsonFormatter, bind_host

CANARY = "canary-8f1d"


def away(*args, **kwargs):
    raise StoreUnavailable(f"postgresql://me:{CANARY}@db is away")


class Lines(logging.Handler):
    """Keeps what was logged, and says when a line with certain words came."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.records = []

    def emit(self, record):
        self.records.append(record)

    async def said(self, words):
        async with asyncio.timeout(10):
            while True:
                for record in list(self.records):
                    if words in record.getMessage():
                        return record
                await asyncio.sleep(0.005)


@pytest.fixture
def lines():
    handler, logger = Lines(), logging.getLogger("outlive")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.fixture
async def host(lines):
    """The host that the lines come from, beside another one that must not be named."""
    url = f"memory://{uuid.uuid4().hex}"
    async with connect(url, name="other"), connect(url, name="speaker") as host:
        lines.records.clear()
        yield host
    silent = [r.getMessage() for r in lines.records if vars(r).get("host") is None]
    assert silent == []
    # The other host closes last.
    assert lines.records.pop().getMessage() == "host other left"
    assert {vars(r)["host"] for r in lines.records} == {"speaker"}


async def test_losses_say_their_host(host, lines):
    lease = await host.leases.acquire("k")
    await host.leases.break_lease("k", reason="test")
    with pytest.raises(LeaseLost):
        await lease.renew()
    record = await lines.said("was lost")
    assert (record.key, record.token, record.reason) == ("k", 1, "broken")


async def test_dropped_handles_say_their_host(host, lines):
    lease = await host.leases.acquire("k")
    del lease
    gc.collect()
    assert "test_logging.py" in (await lines.said("dropped without release")).getMessage()


async def test_failed_renewals_say_their_host(host, lines, monkeypatch):
    failed = asyncio.Event()
    host.leases.on(RenewFailed, lambda _event: failed.set())
    monkeypatch.setattr(MemoryLeaseStore, "renew", away)
    lease = await host.leases.acquire("k", ttl=0.3)
    await failed.wait()
    await lease.release()
    assert (await lines.said("renewal 1 of lease")).attempt == 1


async def test_late_releases_say_their_host(host, lines):
    lease = await host.leases.acquire("k")
    await host.leases.break_lease("k", reason="test")
    await lease.release()
    await lines.said("was lost (broken: ")


async def test_releases_left_to_the_ttl_say_their_host(host, lines, monkeypatch):
    lease = await host.leases.acquire("k", ttl=0.1)
    begun = asyncio.Event()

    async def slow(self, grant):
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        raise StoreUnavailable("away")

    monkeypatch.setattr(MemoryLeaseStore, "release", slow)
    task = asyncio.create_task(lease.release())
    await begun.wait()
    task.cancel()
    await lines.said("expires by its ttl")


async def test_waiting_for_a_store_that_is_away_says_its_host(host, lines, monkeypatch):
    monkeypatch.setattr(MemoryLeaseStore, "acquire", away)
    with pytest.raises(StoreUnavailable):
        await host.leases.acquire("k", timeout=0.05)
    assert (await lines.said("could not acquire lease")).key == "k"


async def test_withdrawing_and_leaving_say_their_host(host, lines, monkeypatch):
    held = await host.leases.acquire("k")
    monkeypatch.setattr(MemoryLeaseStore, "leave", away)
    task = asyncio.create_task(host.leases.acquire("k", timeout=0.02))
    with pytest.raises(TimeoutError):
        await task
    await lines.said("could not leave the queue")
    await held.release()
    begun = asyncio.Event()

    async def hang(self, request):
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        raise StoreUnavailable("away")

    monkeypatch.setattr(MemoryLeaseStore, "acquire", hang)
    task = asyncio.create_task(host.leases.try_acquire("k"))
    await begun.wait()
    task.cancel()
    await lines.said("could not withdraw")


async def test_failing_handlers_say_their_host(host, lines):
    async def later(event):
        raise ValueError("later")

    def at_once(event):
        raise ValueError("at once")

    host.leases.on(Released, at_once)
    host.leases.on(Released, later)
    await (await host.leases.acquire("k")).release()
    while len(lines.records) < 2:
        await lines.said("an event handler of Released failed")


async def test_elections_say_their_host(host, lines, monkeypatch):
    async def fail(lease):
        raise ValueError("leader")

    task = asyncio.create_task(host.leases.lead("boss", fail))
    assert (await lines.said("won the leadership")).key == "boss"
    await lines.said("the leader function of")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_lost_leadership_says_its_host(host, lines):
    async def body(lease):
        await host.leases.break_lease("boss", reason="test")
        await lease.renew()

    task = asyncio.create_task(host.leases.lead("boss", body))
    await lines.said("leadership lost")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_periodic_functions_say_their_host(host, lines):
    def fail():
        raise ValueError("tick")

    task = asyncio.create_task(host.leases.every(0.1, fail, key="t"))
    await lines.said("periodic function")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_heartbeats_say_their_host(lines, monkeypatch):
    async with connect("memory://", name="speaker", session_ttl=0.3):
        monkeypatch.setattr(MemoryHostStore, "renew", away)
        assert (await lines.said("heartbeat failed")).host == "speaker"
        monkeypatch.undo()
        again = await lines.said("heartbeats succeed again")
        assert (again.host, again.levelname) == ("speaker", "WARNING")

        async def ended(self, host, ttl_us):
            raise Fenced("session")

        monkeypatch.setattr(MemoryHostStore, "renew", ended)
        assert (await lines.said("lost its session")).host == "speaker"


class FailingChore:
    def tick(self, now, driver):
        raise ValueError("chore")

    async def stop(self):
        pass


class NoDriver:
    async def close(self):
        pass


async def test_a_failing_chore_says_its_host(lines):
    async def open_driver():
        return NoDriver()

    log = bind_host("speaker", "ns").logger("outlive.host")
    keeper = Keeper(Runtime(), open_driver, log=log)
    keeper.add(FailingChore())
    await keeper.start()
    record = await lines.said("a task of the renewal thread failed")
    await keeper.stop()
    assert (record.host, record.namespace) == ("speaker", "ns")


async def test_a_keeper_that_cannot_start_says_its_host(lines):
    async def open_nothing():
        raise ZeroDivisionError

    log = bind_host("speaker", "ns").logger("outlive.host")
    keeper = Keeper(Runtime(), open_nothing, log=log)
    with pytest.raises(outlive.UsageError):
        await keeper.start()
    with pytest.raises(ZeroDivisionError):
        await keeper.stop()
    record = await lines.said("the renewal thread ended")
    assert (record.host, record.namespace) == ("speaker", "ns")


SOURCE = Path(logs.__file__).parents[1]
LEVELS = {"debug", "info", "warning", "error", "exception"}


@pytest.mark.parametrize("folder", ["leases", "runtime"])
def test_every_log_call_names_its_host_or_uses_a_bound_logger(folder):
    """A call on the module's own ``_log`` passes fields; others go through a bound logger."""
    silent, seen = [], 0
    for path in sorted((SOURCE / folder).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr not in LEVELS or not ast.unparse(node.func.value).endswith("log"):
                continue
            seen += 1
            fields = [ast.unparse(word.value) for word in node.keywords if word.arg == "extra"]
            bound = ast.unparse(node.func.value) != "_log"
            if not bound and not any("host" in text or text == "fields" for text in fields):
                silent.append(f"{path.name}:{node.lineno}")
    assert seen > 3
    assert silent == []


def test_a_flood_below_warning_is_limited_and_said(lines):
    log = bind_host("h", "ns").logger("outlive.test-flood")

    def tell(level: int, second: int) -> None:
        record = log.makeRecord(log.name, level, __file__, 1, "it happened", (), None)
        record.created = second + 0.5
        log.handle(record)

    for _ in range(logs.RECORDS_PER_S_MAX + 50):
        tell(logging.DEBUG, 100)
    tell(logging.WARNING, 100)
    assert len(lines.records) == logs.RECORDS_PER_S_MAX + 1
    tell(logging.INFO, 101)
    said = [record.getMessage() for record in lines.records[-2:]]
    assert said[0] == (
        f"left out 50 records of this logger: at most {logs.RECORDS_PER_S_MAX} a second are "
        "written below WARNING"
    )
    assert said[1] == "it happened"
    assert vars(lines.records[-2])["host"] == "h"


async def test_records_of_charts_say_the_host_that_connected_first(lines):
    fields = logs._process
    before = dict(fields)
    fields.clear()
    try:
        async with connect("memory://", name="first"), connect("memory://", name="second"):
            hub = Orchestrator()
            await hub.start(Chart.load({"id": "light"}))
            record = await lines.said("machine light")
            assert record.host == "first"
            await hub.force_cleanup()
    finally:
        fields.clear()
        fields.update(before)


def test_a_bound_logger_obeys_the_registered_one(lines):
    target = logging.getLogger("outlive.test-bound")
    bound = bind_host("h", "ns").logger("outlive.test-bound")
    bound.info("one", extra={"host": "nearer", "key": "k"})
    target.setLevel(logging.ERROR)
    bound.info("two")
    target.setLevel(logging.NOTSET)
    target.addFilter(lambda record: "three" not in record.getMessage())
    bound.info("three")
    bound.info("four")
    target.disabled = True
    bound.error("five")
    assert [record.getMessage() for record in lines.records] == ["one", "four"]
    one, four = lines.records
    assert (one.host, one.namespace, one.key) == ("nearer", "ns", "k")
    assert (four.host, four.name, four.funcName) == (
        "h",
        "outlive.test-bound",
        "test_a_bound_logger_obeys_the_registered_one",
    )


def test_binding_leaves_nothing_behind():
    before = set(logging.Logger.manager.loggerDict)
    for number in range(50):
        bind_host(f"host-{number}").logger("outlive.leases").debug("hello")
    assert set(logging.Logger.manager.loggerDict) - before <= {"outlive", "outlive.leases"}


def written(message, *args, extra=None, exc_info=None):
    """What the formatter makes of one record, as parsed JSON."""
    # Made by hand and shown to nobody else: pytest's own handlers choke on the hostile ones.
    record = logging.getLogger("outlive.example").makeRecord(
        "outlive.example", logging.WARNING, __file__, 1, message, args, exc_info, extra=extra
    )
    text = JsonFormatter().format(record)
    assert "\n" not in text
    return json.loads(text)


def test_a_line_is_one_object_with_the_fields_people_filter_by():
    line = written("lost %r\nsecond line", "k", extra={"host": "h", "key": "k", "token": 7})
    time = line.pop("time")
    assert time.endswith("+00:00")
    assert line == {
        "level": "WARNING",
        "logger": "outlive.example",
        "message": "lost 'k'\nsecond line",
        "host": "h",
        "key": "k",
        "token": 7,
    }


def test_host_is_always_there():
    assert written("hello")["host"] is None


def test_a_traceback_is_a_field():
    try:
        raise ValueError(f"at postgresql://me:{CANARY}@db/app")
    except ValueError:
        line = written("failed", exc_info=sys.exc_info())
    assert "ValueError: at postgresql://me:***@db/app" in line["exception"]


def test_a_long_traceback_keeps_its_end():
    try:
        raise ValueError("x\n" * 50_000 + "the end")
    except ValueError:
        line = written("failed", exc_info=sys.exc_info())
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("the end")
    assert len(line["exception"]) <= logs.TRACEBACK_CHARS_MAX


class Hostile:
    def __str__(self):
        raise RuntimeError("no")

    __repr__ = __str__


class HostileList(list):
    def __iter__(self):
        raise RuntimeError("no")


def test_nothing_that_is_logged_makes_it_raise():
    loop = []
    loop.append(loop)
    fields = {
        "hostile": Hostile(),
        "several": HostileList([1]),
        "circle": loop,
        "deep": [[[[[[1]]]]]],
        "nan": float("nan"),
        "huge": 10**400,
        "bytes": b"\xff",
        "lone": "\ud800",
        "mapping": {Hostile(): 1, ("a",): {"b"}},
        "level": "mine",
        "time": "mine",
    }
    line = written("%s and %d", Hostile(), extra=fields)
    assert line["level"] == "WARNING"
    assert line["level_"] == "mine"
    assert line["nan"] == "nan"
    assert "unprintable" in line["hostile"]
    assert written("%d", "no number")["message"].startswith("%d")
    assert written("plain", "argument too many")["message"].startswith("plain")


def test_huge_values_are_cut():
    line = written("m" * 1_000_000, extra={"big": "v" * 1_000_000, "many": list(range(10_000))})
    assert len(line["message"]) < logs.MESSAGE_CHARS_MAX + 100
    assert len(line["big"]) < logs.VALUE_CHARS_MAX + 100
    assert len(line["many"]) == 50
    extra = {f"field{number}": number for number in range(1000)}
    assert written("m", extra=extra)["fields_left_out"] is True


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://me:{CANARY}@db:5432/app",
        f"redis://:{CANARY}@cache",
        f"at postgresql://me:p@ss/{CANARY}@db, again",
        f"dsn host=db password={CANARY} user=me",
        f"sqlite:///x?secret={CANARY}&a=b",
        "x" * (logs.MESSAGE_CHARS_MAX - 10) + f"postgresql://me:{CANARY}@db/" + "y" * 100,
    ],
)
def test_secrets_never_reach_a_line(text):
    line = written("%s", text, extra={"url": text, "nested": {"deep": [text]}, "password": CANARY})
    assert CANARY not in json.dumps(line)


def test_what_is_no_secret_stays():
    for text in (
        "postgresql://me@db:5432/app",
        "http://localhost:8000/path",
        "lease 'k' token=7",
        "mail me@example.com",
    ):
        assert masked(text, 1000) == text


async def test_a_connection_that_fails_shows_no_password(lines):
    with pytest.raises(outlive.OutliveError) as caught:
        await connect(f"nosuch://me:{CANARY}@db/app")
    assert CANARY not in str(caught.value)
    assert CANARY not in "".join(record.getMessage() for record in lines.records)
