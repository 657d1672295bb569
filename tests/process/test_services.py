"""The harness itself: servers start, crash and come back; the proxy's faults really happen."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import asyncpg
import psycopg
import pytest

from tests.conformance.moved_time import server_time
from tests.services import wall_clock
from tests.services.postgres import PostgresServer
from tests.services.proxy import FaultProxy

pytestmark = [pytest.mark.service, pytest.mark.process]


@pytest.fixture
def proxy(postgres_url):
    with FaultProxy.for_url(postgres_url) as running:
        yield running


@pytest.fixture
def proxied(proxy, postgres_url):
    return proxy.url_of(postgres_url)


def values(url):
    with psycopg.connect(url) as connection:
        return [value for (value,) in connection.execute("SELECT v FROM t ORDER BY v")]


def create_table(url):
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE t (v integer)")


def test_each_test_has_an_empty_database_of_its_own(postgres_server, postgres_url):
    other = postgres_server.create_database()
    assert other != postgres_url
    create_table(postgres_url)
    create_table(other)
    postgres_server.drop_database(other)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(other)


@pytest.mark.parametrize("durable", [True, False])
def test_committed_work_survives_a_crash_of_the_server(services, durable):
    server = services.start(PostgresServer(durable=durable))
    url = server.create_database()
    create_table(url)
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO t VALUES (1)")
    port, pid = server.port, server.pid
    server.kill_immediate()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    server.revive()
    assert server.port == port
    assert server.pid != pid
    assert "automatic recovery in progress" in server.log()
    assert values(url) == [1]
    server.restart()
    assert values(url) == [1]
    server.stop()
    server.stop()


def test_settings_of_a_durable_server_wait_for_the_disk(services, postgres_url):
    server = services.start(PostgresServer())
    for url, expected in ((server.url, "on"), (postgres_url, "off")):
        with psycopg.connect(url) as connection:
            assert connection.execute("SHOW fsync").fetchone() == (expected,)
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
            assert connection.execute("SHOW max_connections").fetchone() == ("200",)


def test_pgbouncer_gives_one_client_several_server_connections(pgbouncer_url):
    def backend(connection):
        return connection.execute("SELECT pg_backend_pid()").fetchone()

    with psycopg.connect(pgbouncer_url) as first, psycopg.connect(pgbouncer_url) as second:
        mine = backend(first)
        theirs = backend(second)
        assert mine != theirs
        first.commit()
        second.commit()
        # A transaction takes whichever server connection is free: the last one given back.
        assert backend(second) == theirs
        assert backend(first) == mine
        first.commit()
        second.commit()
        assert backend(first) == theirs


async def test_asyncpg_works_through_pgbouncer(pgbouncer_url):
    connection = await asyncpg.connect(pgbouncer_url, statement_cache_size=0)
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


def test_a_shifted_wall_clock_leaves_the_monotonic_one_alone(compiler, tmp_path):
    script = "import time; print(time.time(), time.monotonic())"
    file = tmp_path / "offset"
    shifted = os.environ | wall_clock.environment(file, 3600)
    seen = []
    for offset_s in (3600, -3600):
        wall_clock.shift(file, offset_s)
        output = subprocess.check_output([sys.executable, "-c", script], env=shifted)
        wall, monotonic = map(float, output.split())
        seen.append(wall - time.time())
        assert abs(monotonic - time.monotonic()) < 60
    assert seen == pytest.approx([3600, -3600], abs=60)


def test_a_server_with_a_shifted_clock_survives_alarms_at_any_moment(services, compiler):
    """Its handler of alarms reads the clock, which must be safe wherever it interrupts."""
    allocating = "SELECT string_agg(x::text, ',') FROM generate_series(1, 20000) x GROUP BY x % 100"
    with server_time() as clock:
        server = services.start(PostgresServer(durable=False, environment=clock.environment))
        with psycopg.connect(server.url, autocommit=True) as connection:
            # The handler does nothing while there is no time limit.
            connection.execute("SET statement_timeout = '1h'")
            pid, ends = connection.info.backend_pid, time.monotonic() + 3.0
            over = threading.Event()
            alarms = threading.Thread(target=send_alarms, args=(pid, over))
            alarms.start()
            try:
                while time.monotonic() < ends:
                    assert len(connection.execute(allocating).fetchall()) == 100
            finally:
                over.set()
                alarms.join()


def send_alarms(pid, over):
    with contextlib.suppress(ProcessLookupError):
        while not over.wait(0.0005):
            os.kill(pid, signal.SIGALRM)


async def test_pass_through_changes_nothing(proxy, proxied):
    connection = await asyncpg.connect(proxied)
    assert await connection.fetchval("SELECT repeat('x', 300000)") == "x" * 300_000
    await connection.close()
    assert proxy.counters.accepted == 1
    assert proxy.counters.reset == proxy.counters.cut == proxy.counters.held == 0


async def test_delay_holds_each_message_back(proxy, proxied):
    connection = await asyncpg.connect(proxied)
    proxy.delay(0.2)
    began = time.monotonic()
    await connection.execute("SELECT 1")
    assert time.monotonic() - began >= 0.4
    assert proxy.counters.delayed >= 2
    proxy.pass_through()
    await connection.close()


async def test_black_hole_answers_nothing_and_loses_nothing(proxy, proxied):
    connection = await asyncpg.connect(proxied)
    proxy.black_hole()
    query = asyncio.create_task(connection.fetchval("SELECT 42"))
    await asyncio.to_thread(proxy.wait_for, lambda counters: counters.held == 1)
    assert not query.done()
    proxy.pass_through()
    assert await query == 42
    await connection.close()


async def test_black_hole_swallows_new_connections(proxy, proxied):
    proxy.black_hole()
    attempt = asyncio.create_task(asyncpg.connect(proxied))
    await asyncio.to_thread(proxy.wait_for, lambda counters: counters.accepted == 1)
    assert not attempt.done()
    proxy.pass_through()
    await (await attempt).close()


async def test_reset_breaks_open_connections_and_welcomes_new_ones(proxy, proxied):
    connection = await asyncpg.connect(proxied)
    proxy.reset()
    assert proxy.counters.reset == 1
    with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)):
        await connection.execute("SELECT 1")
    await (await asyncpg.connect(proxied)).close()


def test_reset_reaches_the_client_as_rst(proxy):
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        proxy.wait_for(lambda counters: counters.accepted == 1)
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_refuse_turns_new_clients_away_and_keeps_the_old(proxy, proxied):
    with psycopg.connect(proxied, autocommit=True) as connection:
        for _ in range(2):
            proxy.refuse()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", proxy.port))
            assert connection.execute("SELECT 1").fetchone() == (1,)
            proxy.pass_through()
            socket.create_connection(("127.0.0.1", proxy.port)).close()


async def test_commit_happens_though_its_reply_is_lost(proxy, proxied, postgres_url):
    create_table(postgres_url)
    connection = await asyncpg.connect(proxied)
    proxy.drop_reply_after(b"COMMIT")
    with pytest.raises((asyncpg.PostgresConnectionError, OSError)):
        async with connection.transaction():
            await connection.execute("INSERT INTO t VALUES ($1)", 7)
    assert proxy.counters.triggered == proxy.counters.cut == 1
    assert proxy.counters.bytes_dropped > 0
    assert values(postgres_url) == [7]
    # It fires once: the retry of a careful client passes.
    assert values(proxied) == [7]


async def test_reply_to_a_statement_prepared_earlier_is_lost(proxy, proxied, postgres_url):
    create_table(postgres_url)
    connection = await asyncpg.connect(proxied)
    insert = await connection.prepare("insert into t values ($1)")
    await insert.fetch(1)
    proxy.drop_reply_after(b"INSERT INTO t")
    assert await connection.fetchval("SELECT 1") == 1
    assert proxy.counters.triggered == 0
    with pytest.raises((asyncpg.PostgresConnectionError, OSError)):
        await insert.fetch(2)
    assert proxy.counters.triggered == proxy.counters.cut == 1
    assert values(postgres_url) == [1, 2]


async def test_preparing_alone_does_not_fire(proxy, proxied, postgres_url):
    create_table(postgres_url)
    connection = await asyncpg.connect(proxied)
    proxy.drop_reply_after(b"INSERT")
    await connection.prepare("INSERT INTO t VALUES (1)")
    assert proxy.counters.triggered == 0
    await connection.close()


def test_raw_needle_is_found_across_two_chunks():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        FaultProxy(*server.getsockname()) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)) as client,
        server.accept()[0] as upstream,
    ):
        proxy.drop_reply_after(b"needle")
        for part in (b"a nee", b"dle"):
            client.sendall(part)
            assert upstream.recv(100) == part
        upstream.sendall(b"reply")
        proxy.wait_for(lambda counters: counters.cut == 1)
        with pytest.raises(ConnectionResetError):
            client.recv(100)
        assert proxy.counters.bytes_dropped == 5
