"""Redis on its bad days: lost replies, silence, refusals of every kind, a hostile neighbour."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from outlive.drivers.redis.driver import RedisDriver
from outlive.errors import (
    ConfigurationError,
    Fenced,
    OutcomeUnknown,
    OutliveError,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from outlive.model.lease import Grant, Held
from outlive.ports.wakeups import MISSED, Wakeup
from tests.process.redis_drivers import Drivers, request
from tests.process.redis_workers import RedisWorker, use_every_right
from tests.services import Unavailable
from tests.services.proxy import FaultProxy
from tests.services.redis import RedisServer

pytestmark = [pytest.mark.service, pytest.mark.process]


@pytest.fixture
async def drivers() -> AsyncIterator[Drivers]:
    found = Drivers()
    yield found
    await found.close()


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", redis_server.port) as running:
        yield running


# -- the network ------------------------------------------------------------------------------


async def test_a_lost_reply_is_unknown_and_the_repeat_has_the_same_token(
    drivers, proxy, redis_url
) -> None:
    driver = await drivers.open(proxy.url_of(redis_url))
    await driver.leases.acquire(request("warm", "a/0"))
    proxy.drop_reply_after(b"a/lost")
    with pytest.raises(OutcomeUnknown):
        await driver.leases.acquire(request("k", "a/lost"))
    (record,) = await driver.leases.get("k")
    again = await driver.leases.acquire(request("k", "a/lost"))
    assert isinstance(again, Grant)
    assert (again.token, again.version) == (record.token, 2)


async def test_a_release_whose_reply_was_lost_has_happened_once(drivers, proxy, redis_url) -> None:
    driver = await drivers.open(proxy.url_of(redis_url))
    await driver.leases.release(await driver.leases.acquire(request("warm", "a/0")))
    granted = await driver.leases.acquire(request("k", "a/lost"))
    proxy.drop_reply_after(b"a/lost")
    with pytest.raises(OutcomeUnknown):
        await driver.leases.release(granted)
    with pytest.raises(Fenced):
        await driver.leases.release(granted)
    assert len(await driver.leases.history("k", limit=10)) == 1


async def test_a_lost_reply_to_a_read_is_no_mystery(drivers, proxy, redis_url) -> None:
    driver = await drivers.open(proxy.url_of(redis_url))
    await driver.leases.get("warm")
    proxy.drop_reply_after(b"lease:looked-for")
    with pytest.raises(StoreUnavailable):
        await driver.leases.get("looked-for")
    assert await driver.leases.get("looked-for") == []


async def test_all_who_share_a_lost_connection_learn_it(drivers, proxy, redis_url) -> None:
    driver = await drivers.open(proxy.url_of(redis_url))
    await driver.leases.acquire(request("warm", "a/0"))
    proxy.drop_reply_after(b"a/lost")
    owners = ["a/1", "a/lost", "a/2", "a/3"]
    outcomes = await asyncio.gather(
        *(driver.leases.acquire(request(owner, owner)) for owner in owners),
        return_exceptions=True,
    )
    assert any(isinstance(outcome, OutcomeUnknown) for outcome in outcomes)
    assert all(isinstance(outcome, (Grant, OutcomeUnknown)) for outcome in outcomes)
    for owner in owners:
        assert isinstance(await driver.leases.acquire(request(owner, owner)), Grant)


async def test_a_renewal_into_a_black_hole_ends_at_its_deadline(drivers, proxy, redis_url) -> None:
    keeper = await drivers.open(proxy.url_of(redis_url), role="keeper")
    granted = await keeper.leases.acquire(request("k", "a/1"))
    proxy.black_hole()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await keeper.leases.renew(granted, 30_000_000)
    proxy.pass_through()
    # The next does not stand behind the one that was given up.
    assert (await keeper.leases.renew(granted, 30_000_000)).token == granted.token


async def test_a_renewal_does_not_wait_for_a_connection_that_another_gave_up(
    drivers, proxy, redis_url
) -> None:
    keeper = await drivers.open(proxy.url_of(redis_url), role="keeper")
    granted = await keeper.leases.acquire(request("k", "a/1"))
    proxy.refuse()
    proxy.reset()
    with pytest.raises(StoreUnavailable):
        await keeper.leases.get("k")
    proxy.black_hole()
    before = proxy.counters.accepted
    other = asyncio.create_task(keeper.leases.get("k"))
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await keeper.leases.renew(granted, 30_000_000)
    assert proxy.counters.accepted == before + 2
    # Who shared the connection is told, and not cancelled for another's sake.
    with pytest.raises(StoreUnavailable):
        await other


async def test_a_command_into_a_black_hole_ends_by_itself(drivers, proxy, redis_url) -> None:
    options = {"command_timeout": 0.3, "connect_timeout": 0.3}
    driver = await drivers.open(proxy.url_of(redis_url), options=options)
    granted = await driver.leases.acquire(request("k", "a/1"))
    proxy.black_hole()
    with pytest.raises(OutcomeUnknown):
        await driver.leases.renew(granted, 30_000_000)
    with pytest.raises(StoreUnavailable):
        await driver.leases.get("k")
    proxy.pass_through()
    await driver.leases.renew(granted, 30_000_000)


async def test_a_refused_connection_is_unavailable_and_nothing_applied(
    drivers, proxy, redis_url
) -> None:
    driver = await drivers.open(proxy.url_of(redis_url))
    proxy.refuse()
    proxy.reset()
    with pytest.raises(StoreUnavailable):
        for _ in range(20):
            # A connection may learn of its reset only when it is used.
            try:
                await driver.leases.acquire(request("k", "a/1"))
            except OutcomeUnknown:
                continue
    proxy.pass_through()
    assert isinstance(await driver.leases.acquire(request("k", "a/1")), Grant)


async def test_hints_arrive_again_after_the_listener_was_cut(drivers, proxy, redis_url) -> None:
    driver = await drivers.open(proxy.url_of(redis_url))
    assert not driver.wakeups.deaf
    told: asyncio.Queue[Wakeup] = asyncio.Queue()
    driver.wakeups.subscribe(told.put_nowait)
    proxy.refuse()
    proxy.reset()
    async with asyncio.timeout(10):
        assert await told.get() == MISSED
    assert driver.wakeups.deaf
    proxy.pass_through()
    async with asyncio.timeout(10):
        assert await told.get() == MISSED
    assert not driver.wakeups.deaf


@pytest.mark.parametrize("step", ["Link._open", "RedisWakeups._listen"])
async def test_opening_that_is_cancelled_leaves_nothing_behind(
    drivers, redis_server, redis_url, step
) -> None:
    before = asyncio.all_tasks()

    def begun() -> list[str]:
        tasks = asyncio.all_tasks() - before - {opening}
        return [task.get_coro().__qualname__ for task in tasks]

    opening = asyncio.create_task(drivers.open(redis_url))
    while step not in begun():  # noqa: ASYNC110 - there is no signal to wait for
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert begun() == []
    assert "name=outlive-h0" not in redis_server.command("CLIENT", "LIST")


async def test_closing_ends_what_is_under_way(drivers, proxy, redis_url) -> None:
    driver = await drivers.open(proxy.url_of(redis_url))
    proxy.black_hole()
    under_way = asyncio.ensure_future(driver.leases.acquire(request("k", "a/1")))
    await asyncio.sleep(0)
    await driver.close()
    with pytest.raises(StoreError):
        await under_way


# -- the server refuses -----------------------------------------------------------------------


async def test_a_forgotten_script_is_sent_again_and_applied_once(
    drivers, redis_server, redis_url
) -> None:
    driver = await drivers.open(redis_url)
    granted = await driver.leases.acquire(request("k", "a/1"))
    redis_server.command("SCRIPT", "FLUSH")
    renewed = await asyncio.gather(*(driver.leases.renew(granted, 30_000_000) for _ in range(5)))
    assert sorted(grant.version for grant in renewed) == [2, 3, 4, 5, 6]


async def test_a_full_server_grants_nothing_and_costs_no_lease(drivers, services) -> None:
    server = services.start(RedisServer())
    driver = await drivers.open(server.url)
    granted = await driver.leases.acquire(request("k", "a/1"))
    server.command("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreUnavailable, match="memory is full"):
        await driver.leases.acquire(request("other", "b/1"))
    granted = await driver.leases.renew(granted, 30_000_000, state="kept")
    await driver.leases.release(granted)
    assert await driver.leases.get("other") == []
    server.command("CONFIG", "SET", "maxmemory", "0")
    again = await driver.leases.acquire(request("k", "a/2"))
    assert isinstance(again, Grant)
    assert again.state == "kept"


async def test_a_server_kept_busy_by_a_script_is_unavailable(drivers, services) -> None:
    server = services.start(RedisServer(settings={"lua-time-limit": "20"}))
    driver = await drivers.open(server.url)
    with socket.create_connection(("127.0.0.1", server.port)) as rude:
        rude.sendall(b"EVAL 'while true do end' 0\r\n")
        with pytest.raises(StoreUnavailable, match="BUSY"):
            async with asyncio.timeout(10):
                while True:
                    await driver.leases.get("k")
        server.command("SCRIPT", "KILL")
        rude.recv(1024)
    assert isinstance(await driver.leases.acquire(request("k", "a/1")), Grant)


async def test_a_server_that_loads_its_data_is_unavailable(drivers, services) -> None:
    server = services.start(RedisServer(settings={"appendonly": "no", "rdbcompression": "no"}))
    # A server that loads answers after every two megabytes.
    for number in range(100):
        server.command("SET", f"ballast-{number}", "x" * 100_000)
    server.command("SAVE")
    server.crash()
    # Ten milliseconds for each key.
    server.slow_down("key-load-delay", "10000")
    server.revive(loaded=False)
    with pytest.raises(StoreUnavailable, match="LOADING"):
        await drivers.open(server.url)


async def test_a_replica_takes_no_leases(drivers, services, redis_server) -> None:
    settings = {"replicaof": f"127.0.0.1 {redis_server.port}"}
    replica = services.start(RedisServer(settings=settings))
    with pytest.raises(StoreUnavailable, match="READONLY"):
        await drivers.open(replica.url)


async def test_a_demoted_primary_refuses_and_its_connection_is_given_up(drivers, services) -> None:
    server = services.start(RedisServer())
    driver = await drivers.open(server.url)
    granted = await driver.leases.acquire(request("k", "a/1"))
    server.command("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(StoreUnavailable, match="READONLY"):
        await driver.leases.renew(granted, 30_000_000)
    server.command("REPLICAOF", "NO", "ONE")
    assert (await driver.leases.renew(granted, 30_000_000)).token == granted.token


async def test_a_server_without_room_for_another_client_is_unavailable(drivers, services) -> None:
    server = services.start(RedisServer(settings={"maxclients": "1"}))
    with socket.create_connection(("127.0.0.1", server.port)) as first:
        first.sendall(b"PING\r\n")
        first.recv(1024)
        with pytest.raises(StoreUnavailable, match="too many clients"):
            await drivers.open(server.url)


async def test_a_cluster_is_refused_plainly(drivers, services) -> None:
    server = services.start(RedisServer(settings={"cluster-enabled": "yes"}))
    with pytest.raises(ConfigurationError, match="Redis Cluster"):
        await drivers.open(server.url)


async def test_a_flushed_store_fences_its_owner_and_tokens_still_grow(
    drivers, redis_server, redis_url
) -> None:
    driver = await drivers.open(redis_url)
    granted = await driver.leases.acquire(request("k", "a/1", 0.6))
    redis_server.command("FLUSHALL")
    with pytest.raises(Fenced):
        await driver.leases.renew(granted, 600_000)
    # Who knows of a loss keeps the keys from being granted while others may believe in theirs.
    held = await driver.leases.acquire(request("k", "b/1", 0.6))
    assert isinstance(held, Held)
    assert (held.owner, 25 < held.retry_in_s <= 30) == (None, True)
    redis_server.command("HSET", "outlive:{default}:epoch", "until", "0")
    again = await driver.leases.acquire(request("k", "b/1"))
    assert isinstance(again, Grant)
    assert again.token > granted.token


async def test_a_strangers_key_at_our_name_is_an_error_and_stays(
    drivers, redis_server, redis_url
) -> None:
    driver = await drivers.open(redis_url)
    redis_server.command("SET", "outlive:{default}:lease:k", "a stranger")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await driver.leases.acquire(request("k", "a/1"))
    assert "a stranger" in redis_server.command("GET", "outlive:{default}:lease:k")
    assert isinstance(await driver.leases.acquire(request("other", "a/1")), Grant)


# -- who may come in --------------------------------------------------------------------------

CANARY = "c4nary-s3cret"


@pytest.mark.parametrize(
    ("user", "code"),
    [("", "NOAUTH"), ("app:wrong@", "WRONGPASS"), (":wrong@", "WRONGPASS")],
)
async def test_a_server_with_a_password_refuses_strangers(drivers, services, user, code) -> None:
    server = services.start(RedisServer(settings={"requirepass": CANARY}))
    with pytest.raises(ConfigurationError, match=code) as raised:
        await drivers.open(server.url.replace("//", f"//{user}"))
    assert "wrong" not in str(raised.value)
    driver = await drivers.open(server.url.replace("//", f"//:{CANARY}@"))
    assert isinstance(await driver.leases.acquire(request("k", "a/1")), Grant)


def _documented_rule() -> str:
    page = Path("docs/reference/drivers/redis.md").read_text(encoding="utf-8")
    _, start, rest = page.partition("ACL SETUSER")
    return start + rest.partition("```")[0]


async def test_a_user_needs_the_rights_on_the_drivers_page_and_no_more(drivers, services) -> None:
    server = services.start(RedisServer())
    server.command(*_documented_rule().replace("app-password", CANARY).split())
    server.command("ACL", "SETUSER", "poor", "on", f">{CANARY}", "+info", "+client", "~*")
    url = server.url.replace("//", f"//app:{CANARY}@")
    driver = await drivers.open(url)
    assert not driver.wakeups.deaf
    granted = await driver.leases.acquire(request("k", "a/1"))
    await driver.leases.acquire(request("k", "b/1", queue_us=1_000_000))
    await driver.leases.renew(granted, 30_000_000)
    await driver.leases.release(granted)
    await driver.leases.history("k", limit=10)
    await driver.leases.raw("k")
    await use_every_right(await RedisWorker(driver).open())
    assert "error" not in {finding.level for finding in await driver.check()}
    with pytest.raises(ConfigurationError, match="NOPERM"):
        await drivers.open(server.url.replace("//", f"//poor:{CANARY}@"))


async def test_no_message_shows_the_password(drivers, services, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    server = services.start(RedisServer())
    good = server.url.replace("//", f"//nobody:{CANARY}@")
    bad = [
        good,
        good.replace(f":{server.port}", ":1"),
        good + "?command_timeout=never",
        good.replace("/0", "/many"),
        good.replace("redis:", "rediss:"),
    ]
    for url in bad:
        with pytest.raises(OutliveError) as raised:
            await drivers.open(url, options={"connect_timeout": 0.5})
        shown: BaseException | None = raised.value
        while shown is not None:
            assert CANARY not in f"{shown!r} {shown}"
            shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
    assert CANARY not in caplog.text


async def test_an_address_where_something_else_answers_is_no_store(drivers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1024)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                peer.recv(1024)

        thread = threading.Thread(target=answer)
        thread.start()
        port = listener.getsockname()[1]
        with pytest.raises(StoreUnavailable, match="it is a Redis server"):
            await drivers.open(f"redis://127.0.0.1:{port}")
        thread.join()


async def test_an_address_that_says_nothing_is_given_up(drivers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(StoreUnavailable, match="no answer in time"):
            await drivers.open(url, options={"connect_timeout": 0.2})


def _make_certificate(program: Path, folder: Path) -> tuple[Path, Path]:
    key, certificate = folder / "key.pem", folder / "cert.pem"
    kind = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([program, *kind, *names, *files], check=True, capture_output=True)
    return key, certificate


@pytest.fixture
def tls(redis_server: RedisServer, openssl: Path, tmp_path) -> Iterator[tuple[str, str]]:
    """The URL of a server with TLS, and the file of its certificate."""
    key, certificate = _make_certificate(openssl, tmp_path)
    files = {"tls-cert-file": certificate, "tls-key-file": key, "tls-ca-cert-file": certificate}
    settings = {name: str(path) for name, path in files.items()}
    server = RedisServer(settings={**settings, "tls-auth-clients": "no"}, tls=True)
    try:
        server.start()
    except Unavailable as error:
        pytest.skip(f"Redis {redis_server.version} was built without TLS: {error.reason}")
    yield f"rediss://127.0.0.1:{server.port}", str(certificate)
    server.stop()


async def test_tls_is_spoken_and_the_certificate_checked(drivers, tls, tmp_path) -> None:
    url, certificate = tls
    driver = await drivers.open(url, options={"tls_ca": certificate})
    assert isinstance(await driver.leases.acquire(request("k", "a/1")), Grant)
    with pytest.raises(ConfigurationError, match="TLS failed"):
        await drivers.open(url)
    unchecked = await drivers.open(f"{url}?tls_verify=false")
    assert isinstance(await unchecked.leases.acquire(request("k", "b/1")), Held)
    with pytest.raises(StoreUnavailable, match="rediss://"):
        await drivers.open(url.replace("rediss", "redis"))
    with pytest.raises(ConfigurationError, match="tls_ca"):
        await drivers.open(url, options={"tls_ca": str(tmp_path / "missing.pem")})


def _refusals(driver: RedisDriver, granted: Grant) -> int:
    """7 if a child is refused and may close. The parent's loop must not run: one step each."""
    try:
        driver.leases.renew(granted, 1_000_000).send(None)
    except UsageError:
        pass
    else:
        return 1
    try:
        driver.close().send(None)
    except StopIteration:
        return 7
    except BaseException:
        # The child must not go on as a second pytest.
        return 2
    return 3


async def test_a_child_of_a_fork_is_refused(drivers, redis_url) -> None:
    driver = await drivers.open(redis_url)
    granted = await driver.leases.acquire(request("k", "a/1"))
    child = os.fork()
    if child == 0:
        os._exit(_refusals(driver, granted))
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    await driver.leases.renew(granted, 30_000_000)
