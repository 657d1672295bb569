"""The writer: nothing is reported before it is committed, and nothing is lost when one fails."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sqlite3
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from outlive.clock import SystemClock
from outlive.drivers.sqlite.connection import open_writer
from outlive.drivers.sqlite.driver import SqliteDriver
from outlive.drivers.sqlite.transaction import Transactions, Turn
from outlive.drivers.sqlite.writer import _CHECKPOINT_PAGES, _INLINE_COMMIT_MAX_S, Writer
from outlive.errors import OutcomeUnknown, StoreUnavailable, UsageError
from outlive.testing import ManualClock
from tests.unit.drivers.sqlite.support import ask, open_store

pytestmark = pytest.mark.whitebox

SETUP = """
CREATE TABLE note (text TEXT NOT NULL);
CREATE TABLE bomb (text TEXT NOT NULL);
CREATE TRIGGER bomb_goes_off BEFORE INSERT ON bomb
BEGIN SELECT RAISE(ROLLBACK, 'boom'); END;
CREATE TRIGGER note_refused BEFORE INSERT ON note WHEN NEW.text = 'refused'
BEGIN SELECT RAISE(ABORT, 'refused'); END;
"""


class CarelessTransactions(Transactions):
    """The planted defect: never looks whether the transaction is still there."""

    def rolled_back(self) -> bool:
        return False


class DeferredTransactions(Transactions):
    """The planted defect: the write lock is taken by the first write, and not at the beginning."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._turn.cursor = _Deferred(self._turn.cursor)


class _Deferred:
    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return self._cursor.execute(statement.replace("BEGIN IMMEDIATE", "BEGIN"), *values)


class Bench:
    """A writer on a file of its own, and a second connection that sees what is committed."""

    def __init__(self, path: Path, kind: type[Transactions] = Transactions) -> None:
        self.connection = open_writer(path, synchronous="NORMAL")
        self.connection.executescript(SETUP)
        self.other = sqlite3.connect(path, isolation_level=None, timeout=0)
        dice = random.Random(1)
        self.transactions = kind(
            self.connection, SystemClock(), dice, path=path, busy_timeout_s=0.2
        )
        self.writer = Writer(
            self.transactions, name="writer-under-test", logger=logging.getLogger("test")
        )

    def committed(self) -> list[str]:
        return [row[0] for row in self.other.execute("SELECT text FROM note ORDER BY rowid")]

    async def close(self) -> None:
        await self.writer.close()
        self.other.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[Bench, None]:
    made = Bench(tmp_path / "bench.db")
    yield made
    await made.close()


def note(turn: Turn, text: str) -> str:
    turn.cursor.execute("INSERT INTO note VALUES (?)", (text,))
    return text


def note_twice(turn: Turn, text: str) -> str:
    turn.savepoint()
    turn.cursor.execute("INSERT INTO note VALUES (?)", (text + " once",))
    turn.cursor.execute("INSERT INTO note VALUES (?)", (text,))
    return text


def explode(turn: Turn, text: str) -> None:
    turn.cursor.execute("INSERT INTO bomb VALUES (?)", (text,))


def fill(turn: Turn, text: str) -> None:
    turn.cursor.execute("INSERT INTO note VALUES (?)", (text * 1_000_000,))


async def results(*futures: asyncio.Future[Any]) -> list[Any]:
    return await asyncio.gather(*futures, return_exceptions=True)


async def test_a_lone_operation_runs_without_a_thread(bench: Bench) -> None:
    assert await bench.writer.submit(note, "a") == "a"
    assert bench.writer._thread is None
    assert bench.committed() == ["a"]


async def test_operations_of_one_turn_share_one_transaction(bench: Bench) -> None:
    seen: list[int] = []

    def count(turn: Turn, text: str) -> None:
        note(turn, text)
        seen.append(turn.now_us)

    await asyncio.gather(*(bench.writer.submit(count, str(n)) for n in range(100)))
    assert len(set(seen)) == 1
    assert len(bench.committed()) == 100


async def test_a_future_is_resolved_only_after_commit(bench: Bench) -> None:
    visible: list[bool] = []
    loop = asyncio.get_running_loop()
    running = asyncio.Event()

    def slow(turn: Turn, text: str) -> None:
        note(turn, text)
        loop.call_soon_threadsafe(running.set)

    futures = [bench.writer.submit(slow, str(n)) for n in range(50)]
    for number, future in enumerate(futures):
        future.add_done_callback(lambda _, n=number: visible.append(str(n) in bench.committed()))
    await running.wait()
    await asyncio.gather(*futures)
    # Who gathers what has ended need not wait, also not for their callbacks.
    await asyncio.sleep(0)
    assert visible == [True] * 50


async def test_more_than_a_batch_is_done_in_pieces(bench: Bench) -> None:
    await asyncio.gather(*(bench.writer.submit(note, str(n)) for n in range(1300)))
    assert len(bench.committed()) == 1300


async def test_an_operation_that_fails_takes_nobody_with_it(bench: Bench) -> None:
    submit = bench.writer.submit
    done = await results(submit(note, "a"), submit(note, "refused"), submit(note_twice, "b"))
    assert done[0] == "a"
    assert isinstance(done[1], StoreUnavailable)
    assert bench.committed() == ["a", "b once", "b"]


async def test_half_an_operation_is_undone(bench: Bench) -> None:
    submit = bench.writer.submit
    done = await results(submit(note_twice, "refused"), submit(note, "b"))
    assert isinstance(done[0], StoreUnavailable)
    assert bench.committed() == ["b"]


@pytest.mark.parametrize("large", [False, True])
async def test_half_an_operation_that_is_alone_is_undone(bench: Bench, large: bool) -> None:
    with pytest.raises(StoreUnavailable):
        await bench.writer.submit(note_twice, "refused", large=large)
    assert bench.committed() == []
    assert await bench.writer.submit(note_twice, "b", large=large) == "b"
    assert bench.committed() == ["b once", "b"]


async def test_an_operation_that_is_alone_needs_no_savepoint(bench: Bench) -> None:
    said: list[str] = []
    bench.connection.set_trace_callback(said.append)
    await bench.writer.submit(note_twice, "b")
    assert said[-1] == "COMMIT"
    assert not any("SAVEPOINT" in text for text in said)


async def test_a_bug_in_one_operation_reaches_its_caller_alone(bench: Bench) -> None:
    def buggy(turn: Turn, argument: None) -> None:
        raise ZeroDivisionError

    done = await results(bench.writer.submit(buggy, None), bench.writer.submit(note, "a"))
    assert isinstance(done[0], ZeroDivisionError)
    assert bench.committed() == ["a"]


@pytest.mark.parametrize("saboteur", [explode, fill])
async def test_a_rollback_of_all_makes_the_others_run_again(bench: Bench, saboteur: Any) -> None:
    bench.connection.execute("PRAGMA max_page_count=12")
    submit = bench.writer.submit
    futures = [submit(note, "a"), submit(note_twice, "b"), submit(saboteur, "x"), submit(note, "c")]
    done = await results(*futures)
    assert done[0] == "a"
    assert done[1] == "b"
    assert isinstance(done[2], StoreUnavailable)
    assert done[3] == "c"
    assert bench.committed() == ["a", "b once", "b", "c"]


async def test_without_the_check_reports_and_file_disagree(tmp_path: Path) -> None:
    """The planted defect of the writer: what was reported is not what was stored."""
    bench = Bench(tmp_path / "careless.db", CarelessTransactions)
    submit = bench.writer.submit
    done = await results(submit(note, "a"), submit(explode, "x"), submit(note, "b"))
    reported = [value for value in done if isinstance(value, str)]
    assert reported != bench.committed()
    await bench.close()


def note_the_count(turn: Turn, other: sqlite3.Connection) -> bool:
    """Read, let another connection write if it can, and write the count."""
    (count,) = turn.cursor.execute("SELECT count(*) FROM note").fetchone()
    try:
        other.execute("INSERT INTO note VALUES ('between')")
    except sqlite3.OperationalError:
        kept_out = True
    else:
        kept_out = False
    turn.cursor.execute("INSERT INTO note VALUES (?)", (f"behind {count}",))
    return kept_out


async def test_no_write_comes_between_the_read_and_the_write_of_an_operation(bench: Bench) -> None:
    assert await bench.writer.submit(note_the_count, bench.other) is True
    assert bench.committed() == ["behind 0"]


async def test_a_transaction_that_takes_the_lock_late_is_found(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "deferred.db", DeferredTransactions)
    with pytest.raises(StoreUnavailable):
        await bench.writer.submit(note_the_count, bench.other)
    assert bench.committed() == ["between"]
    await bench.close()


async def test_a_failing_commit_fails_the_whole_batch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.connection.executescript(
        "PRAGMA foreign_keys=ON; CREATE TABLE parent (id INTEGER PRIMARY KEY);"
        "CREATE TABLE child (id REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED);"
    )

    def orphan(turn: Turn, argument: None) -> None:
        turn.cursor.execute("INSERT INTO child VALUES (7)")

    done = await results(bench.writer.submit(note, "a"), bench.writer.submit(orphan, None))
    assert [type(error) for error in done] == [StoreUnavailable, StoreUnavailable]
    assert bench.committed() == []
    assert await bench.writer.submit(note, "b") == "b"


async def test_an_io_error_at_commit_is_an_unknown_outcome(bench: Bench) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC

    class Failing:
        def __init__(self, cursor: sqlite3.Cursor) -> None:
            self.cursor = cursor

        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
            if statement == "COMMIT":
                raise error
            return self.cursor.execute(statement, *values)

    cursor = bench.transactions._turn.cursor
    bench.transactions._turn.cursor = Failing(cursor)  # type: ignore[assignment]
    with pytest.raises(OutcomeUnknown):
        await bench.writer.submit(note, "a")
    bench.transactions._turn.cursor = cursor
    assert await bench.writer.submit(note, "b") == "b"


async def test_a_cancelled_operation_that_has_not_begun_is_left_out(bench: Bench) -> None:
    kept, dropped = bench.writer.submit(note, "a"), bench.writer.submit(note, "b")
    dropped.cancel()
    await kept
    assert bench.committed() == ["a"]


async def test_a_held_lock_is_waited_for_off_the_loop(bench: Bench) -> None:
    bench.other.execute("BEGIN IMMEDIATE")
    future = bench.writer.submit(note, "a")
    turns = 0
    while turns < 20:
        await asyncio.sleep(0.001)
        turns += 1
    assert not future.done()
    bench.other.execute("COMMIT")
    assert await future == "a"


async def test_a_lock_held_too_long_is_named_with_its_usual_cause(bench: Bench) -> None:
    bench.other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="this same task"):
        await bench.writer.submit(note, "a")
    bench.other.execute("ROLLBACK")
    assert await bench.writer.submit(note, "b") == "b"


async def test_closing_ends_what_waits(bench: Bench) -> None:
    bench.other.execute("BEGIN IMMEDIATE")
    future = bench.writer.submit(note, "a")
    await asyncio.sleep(0.01)
    await bench.writer.close()
    await bench.writer.close()
    with pytest.raises(StoreUnavailable):
        await future
    with pytest.raises(StoreUnavailable):
        bench.writer.submit(note, "b")
    bench.other.execute("ROLLBACK")


async def test_who_gets_no_thread_is_told_and_the_next_one_is_served(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        first = [bench.writer.submit(note, text) for text in "ab"]
        for future in first:
            with pytest.raises(
                StoreUnavailable, match="could not start a thread for the SQLite writer"
            ):
                await future
    assert bench.committed() == []
    await asyncio.gather(*(bench.writer.submit(note, text) for text in "cd"))
    assert bench.committed() == ["c", "d"]


async def test_the_log_is_checkpointed(bench: Bench, tmp_path: Path) -> None:
    for number in range(600):
        await bench.writer.submit(note, f"{number}" * 100)
    assert (tmp_path / "bench.db-wal").stat().st_size < 4_500_000
    assert bench.committed()[-1].startswith("599")


async def test_the_event_loop_writing_on_does_not_bring_the_thread_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = bench.writer
    report, told = writer._report, list[int]()

    def report_and_write_on(outcomes: list[Any], handed_over: int) -> None:
        report(outcomes, handed_over)
        told.append(handed_over)
        # As the event loop does between this report and the thread's next line.
        writer._pages += _CHECKPOINT_PAGES

    monkeypatch.setattr(writer, "_report", report_and_write_on)
    await writer.submit(note, "a", large=True)
    await writer.close()
    # Told twice, the event loop would take a thread that writes for one that rests.
    assert told == [1]


def note_many(turn: Turn, count: int) -> None:
    turn.cursor.executemany("INSERT INTO note VALUES (?)", [("x" * 500,)] * count)


async def test_the_log_is_checkpointed_by_rows_and_not_only_by_operations(
    bench: Bench, tmp_path: Path
) -> None:
    for _ in range(20):
        await bench.writer.submit(note_many, 5000, large=True)
    # All of it together would be some 55 MB.
    assert (tmp_path / "bench.db-wal").stat().st_size < 15_000_000


async def test_a_statement_on_many_rows_needs_no_file_to_be_undone(bench: Bench) -> None:
    def temporary_files() -> int:
        # The one that lists them is gone by then, which resolving tolerates.
        open_files = [*Path("/proc/self/fd").iterdir()]
        return sum("etilqs" in str(entry.resolve()) for entry in open_files)

    connection = bench.connection
    connection.create_function("temporary_files", 0, temporary_files)
    connection.executemany("INSERT INTO note VALUES (?)", [("x" * 2000,)] * 200)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE note SET text = temporary_files()")
    connection.execute("COMMIT")
    assert set(bench.committed()) == {"0"}


async def test_a_large_operation_leaves_the_event_loop_alone(bench: Bench) -> None:
    bench.transactions._clock = ManualClock()
    await bench.writer.submit(note, "a", large=True)
    assert bench.writer._thread is not None
    # The next lone one need not go where the large one went.
    ran_on: list[str] = []
    await bench.writer.submit(lambda *_: ran_on.append(threading.current_thread().name), None)
    assert ran_on == [threading.current_thread().name]


async def test_one_slow_transaction_does_not_banish_the_next_ones(bench: Bench) -> None:
    clock = ManualClock()
    bench.transactions._clock = clock
    await bench.writer.submit(lambda *_: clock.advance(5), None)
    for _ in range(3):
        await bench.writer.submit(note, "quick")
    assert bench.transactions.commit_s < _INLINE_COMMIT_MAX_S


def refused_in_a_child(driver: SqliteDriver) -> bool:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            driver.leases.acquire(ask("after")).send(None)
        except UsageError:
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_child_of_a_fork_is_refused(tmp_path: Path) -> None:
    driver = await open_store(tmp_path)
    await driver.leases.acquire(ask("before"))
    assert refused_in_a_child(driver)
    await driver.leases.acquire(ask("after"))
    await driver.close()
