"""The etcd driver on its bad days: lost replies, black holes, crashes, cut watches, real expiry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from outlive.drivers.etcd import acquiring
from outlive.drivers.etcd.driver import EtcdDriver
from outlive.errors import (
    Fenced,
    LeaseExpired,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
)
from outlive.model.lease import Ended, Grant, Held
from outlive.ports.wakeups import Wakeup
from tests.process.etcd_drivers import IMPATIENT, Bell, Drivers, owned, request, until
from tests.services import free_port
from tests.services.etcd import EtcdCluster, EtcdServer
from tests.services.etcd_leases import compact, revision
from tests.services.proxy import FaultProxy

pytestmark = [pytest.mark.service, pytest.mark.process]


@pytest.fixture
async def drivers() -> AsyncIterator[Drivers]:
    opened = Drivers()
    yield opened
    await opened.close()


@pytest.fixture
def proxy(etcd_server):
    with FaultProxy("127.0.0.1", etcd_server.port) as running:
        yield running


async def queued(driver: EtcdDriver, key: str, owner: str, queue_s: float = 15.0) -> Held:
    held = await driver.leases.acquire(request(key, owner, queue_us=round(queue_s * 1e6)))
    assert isinstance(held, Held)
    assert held.waiter is not None
    return held


# -- lost replies ---------------------------------------------------------------------------------


async def test_a_lost_reply_is_unknown_and_the_repeat_has_the_same_token(
    drivers, proxy, etcd_server
) -> None:
    driver = await drivers.open(proxy.url_of(etcd_server.url), options=IMPATIENT)
    witness = await drivers.open(etcd_server.url, "w")
    # A free lease of etcd and a known folder are at hand: the attempt is one transaction.
    await driver.leases.release(await owned(driver, "k", "a/0"))
    proxy.swallow_replies()
    with pytest.raises(OutcomeUnknown):
        await driver.leases.acquire(request("k", "a/1"))
    (record,) = await witness.leases.get("k")
    assert record.owner == "a/1"
    proxy.pass_through()
    proxy.reset()
    again = await _insist(lambda: driver.leases.acquire(request("k", "a/1")))
    assert isinstance(again, Grant)
    assert again.token == record.token
    assert again.version > record.version
    await driver.leases.renew(again, again.ttl_us)


async def test_a_lost_reply_of_a_release_is_unknown_and_its_repeat_fenced(
    drivers, proxy, etcd_server
) -> None:
    driver = await drivers.open(proxy.url_of(etcd_server.url), options=IMPATIENT)
    granted = await owned(driver, "k", "a/1")
    proxy.swallow_replies()
    with pytest.raises(OutcomeUnknown):
        await driver.leases.release(granted)
    proxy.pass_through()
    proxy.reset()
    with pytest.raises(Fenced):
        await _insist(lambda: driver.leases.release(granted))


async def _insist(call):
    """Repeat what was surely not applied, as callers do."""
    for _ in range(20):
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(0.05)
    raise AssertionError("the store never came back")


# -- black holes and dead servers -----------------------------------------------------------------


async def test_a_renewal_into_a_black_hole_ends_at_its_deadline(
    drivers, proxy, etcd_server
) -> None:
    driver = await drivers.open(proxy.url_of(etcd_server.url), role="keeper")
    granted = await owned(driver, "k", "a/1")
    accepted = proxy.counters.accepted
    proxy.black_hole()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await driver.leases.renew(granted, granted.ttl_us)
    proxy.pass_through()
    renewed = await driver.leases.renew(granted, granted.ttl_us)
    assert renewed.token == granted.token
    # The keeper did not wait for the connection that hung.
    assert proxy.counters.accepted > accepted


async def test_calls_that_are_given_up_half_way_do_not_end_the_server(drivers, etcd_server) -> None:
    # etcd before 3.5.5 dies of a transaction that only reads and whose caller has gone.
    driver = await drivers.open(etcd_server.url)
    granted = await owned(driver, "k", "a/1")

    def calls():
        for _ in range(25):
            yield driver.leases.renew(granted, granted.ttl_us)
            yield driver.leases.history("k", limit=10)

    given_up = 0
    for number in range(100):
        tasks = [asyncio.ensure_future(call) for call in calls()]
        _, late = await asyncio.wait(tasks, timeout=0.0005 * (number % 20))
        for task in late:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        given_up += sum(isinstance(end, asyncio.CancelledError) for end in ends)
    assert given_up > 500
    assert not etcd_server.has_died
    await driver.leases.renew(granted, granted.ttl_us)


@pytest.mark.parametrize("connected", [True, False], ids=["in use", "to be connected"])
async def test_a_keeper_leaves_a_silent_member_sooner_than_it_is_given_up(
    drivers, proxy, etcd_server, connected
) -> None:
    # The time-outs of the driver are longer than the renewals of a short lease can wait.
    url = f"etcd://127.0.0.1:{proxy.port},127.0.0.1:{etcd_server.port}"
    keeper = await drivers.open(url, role="keeper")
    granted = await owned(keeper, "k", "a/1", 5)
    if not connected:
        proxy.reset()
    proxy.black_hole()
    tries = 0
    async with asyncio.timeout(5):
        while True:
            tries += 1
            try:
                async with asyncio.timeout(0.5):
                    renewed = await keeper.leases.renew(granted, 5_000_000)
                break
            except (TimeoutError, StoreError):
                continue
    assert renewed.token == granted.token
    assert tries <= 3
    # A lease that runs out is a write, which other tests on this server would count.
    await keeper.leases.release(renewed)


async def test_a_call_into_a_black_hole_ends_by_itself(drivers, proxy, etcd_server) -> None:
    driver = await drivers.open(proxy.url_of(etcd_server.url), options=IMPATIENT)
    granted = await owned(driver, "k", "a/1")
    proxy.black_hole()
    with pytest.raises(StoreError):
        await driver.leases.renew(granted, granted.ttl_us)
    with pytest.raises(StoreUnavailable):
        await driver.leases.get("k")
    proxy.pass_through()
    renewed = await _insist(lambda: driver.leases.renew(granted, granted.ttl_us))
    assert renewed.token == granted.token


async def test_a_write_that_closing_cuts_off_is_unknown(drivers, proxy, etcd_server) -> None:
    driver = await drivers.open(proxy.url_of(etcd_server.url), role="keeper")
    witness = await drivers.open(etcd_server.url, "w")
    granted = await owned(driver, "k", "a/1")
    proxy.swallow_replies()
    releasing = asyncio.create_task(driver.leases.release(granted))

    async def released() -> bool:
        (record,) = await witness.leases.get("k")
        return record.owner is None

    await until(released)
    await driver.close()
    with pytest.raises(OutcomeUnknown):
        await releasing


async def test_opening_that_is_cancelled_leaves_nothing_behind(drivers, etcd_server) -> None:
    before = asyncio.all_tasks()

    def begun() -> list[str]:
        tasks = asyncio.all_tasks() - before - {opening}
        return [task.get_coro().__qualname__ for task in tasks]

    opening = asyncio.create_task(drivers.open(etcd_server.url))
    while "EtcdWakeups._listen" not in begun():  # noqa: ASYNC110 - there is no signal to wait for
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await until(lambda: not begun())


async def test_a_refused_connection_is_unavailable_and_nothing_applied(
    drivers, proxy, etcd_server
) -> None:
    driver = await drivers.open(proxy.url_of(etcd_server.url), options=IMPATIENT)
    proxy.refuse()
    proxy.reset()
    # A connection may learn of its reset only when it is used, by a write or by a read.
    with pytest.raises(StoreUnavailable, match=r"cannot reach etcd|did not answer"):
        for _ in range(20):
            try:
                await driver.leases.acquire(request("k", "a/1"))
            except OutcomeUnknown:
                continue
    proxy.pass_through()
    granted = await _insist(lambda: driver.leases.acquire(request("k", "a/1")))
    assert isinstance(granted, Grant)


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
async def test_a_wrong_endpoint_is_named(drivers, host) -> None:
    with pytest.raises(StoreUnavailable, match=f"cannot reach etcd at etcd://{host}"):
        await drivers.open(f"etcd://{host}:{free_port()}", options=IMPATIENT)


async def test_a_server_that_is_no_etcd_is_an_error_and_not_a_hang(drivers) -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as web:
        port = web.sockets[0].getsockname()[1]
        with pytest.raises(StoreUnavailable, match="cannot reach etcd"):
            await drivers.open(f"etcd://127.0.0.1:{port}", options=IMPATIENT)


async def test_a_crash_under_load_is_survived(drivers, services) -> None:
    server = services.start(EtcdServer())
    driver = await drivers.open(server.url, options={"connect_timeout": 0.5})
    kept = await owned(driver, "kept", "a/kept", 60.0)
    tokens: dict[str, list[int]] = {}
    stop = asyncio.Event()
    met: set[str] = set()

    async def work(worker: int) -> None:
        key, turn = f"k{worker % 3}", 0
        while not stop.is_set():
            turn += 1
            try:
                granted = await driver.leases.acquire(request(key, f"a/{worker}-{turn}", 1.0))
                if isinstance(granted, Grant):
                    tokens.setdefault(key, []).append(granted.token)
                    await driver.leases.release(granted)
            except (StoreUnavailable, OutcomeUnknown, Fenced) as error:
                met.add(type(error).__name__)
            await asyncio.sleep(0.005)

    workers = [asyncio.create_task(work(number)) for number in range(6)]
    await until(lambda: len(tokens) == 3)
    server.kill()
    await until(lambda: "StoreUnavailable" in met)
    await asyncio.to_thread(server.revive)
    before = {key: len(found) for key, found in tokens.items()}
    await until(lambda: all(len(tokens[key]) > before[key] + 2 for key in before))
    stop.set()
    await asyncio.gather(*workers)
    for found in tokens.values():
        assert found == sorted(set(found))
    # A lease that is longer than the outage outlives it, under the same token.
    assert (await driver.leases.renew(kept, kept.ttl_us)).token == kept.token


async def test_a_paused_server_costs_time_and_no_promise(drivers, services) -> None:
    server = services.start(EtcdServer())
    driver = await drivers.open(server.url, options=IMPATIENT)
    first = await owned(driver, "k", "a/1", 1.0)
    server.pause()
    with pytest.raises((OutcomeUnknown, StoreUnavailable)):
        await driver.leases.acquire(request("other", "a/2"))
    with pytest.raises((OutcomeUnknown, StoreUnavailable)):
        await driver.leases.renew(first, first.ttl_us)
    server.resume()

    second: Grant | Held | None = None

    async def taken() -> bool:
        nonlocal second
        second = await _settled(lambda: driver.leases.acquire(request("k", "a/3")))
        return isinstance(second, Grant)

    await until(taken)
    assert isinstance(second, Grant)
    assert second.token > first.token
    with pytest.raises(Fenced):
        await driver.leases.renew(first, first.ttl_us)


# -- expiry ---------------------------------------------------------------------------------------


async def test_a_real_expiry_wakes_the_next_and_is_told_as_one(drivers, etcd_server) -> None:
    dying = await drivers.open(etcd_server.url, "dying")
    heir = await drivers.open(etcd_server.url, "heir")
    bell = Bell(heir)
    first = await owned(dying, "k", "dying/1", 1.0)
    place = (await queued(heir, "k", "heir/1")).waiter
    assert await bell.next() == Wakeup("lease/k", place, 0)
    for _ in range(2):
        with pytest.raises(LeaseExpired):
            await dying.leases.renew(first, first.ttl_us, state="late")
    second = await heir.leases.acquire(request("k", "heir/1", queue_us=15_000_000))
    assert isinstance(second, Grant)
    assert second.token > first.token
    assert second.previous_owner == "dying/1"
    assert second.state is None
    with pytest.raises(Fenced):
        await dying.leases.renew(first, first.ttl_us)
    entries = await heir.leases.history("k", limit=10)
    assert [(entry.owner, entry.ended) for entry in entries] == [
        ("heir/1", None),
        ("dying/1", Ended.EXPIRED),
    ]


async def test_a_grant_lasts_as_long_as_it_is_renewed(drivers, etcd_server) -> None:
    driver = await drivers.open(etcd_server.url)
    keeper = await drivers.open(etcd_server.url, role="keeper")
    granted = await owned(driver, "k", "a/1", 1.0)
    written = await revision(etcd_server.endpoint)
    for _ in range(6):
        await asyncio.sleep(0.4)
        granted = await keeper.leases.renew(granted, granted.ttl_us)
    assert isinstance(await driver.leases.acquire(request("k", "a/2")), Held)
    # Renewals are keep-alives: none of them was a write.
    assert await revision(etcd_server.endpoint) == written


async def test_who_finds_the_queue_full_is_refused_and_forgotten(
    drivers, etcd_server, monkeypatch
) -> None:
    driver = await drivers.open(etcd_server.url)
    await owned(driver, "k", "a/1")
    await queued(driver, "k", "a/2")
    monkeypatch.setattr(acquiring, "PLACES_MAX", 1)
    with pytest.raises(StoreUnavailable, match="come back later"):
        await driver.leases.acquire(request("k", "a/3", queue_us=15_000_000))
    waiting = driver.wakeups._waiting
    waiting.end("k", "a/2")
    assert list(waiting) == []


async def test_a_place_that_nobody_keeps_runs_out(drivers, etcd_server) -> None:
    driver = await drivers.open(etcd_server.url)
    await owned(driver, "k", "a/1")
    await queued(driver, "k", "a/2", queue_s=1.0)

    async def nobody_waits() -> bool:
        return (await driver.leases.get("k"))[0].waiters == 0

    await until(nobody_waits)


async def test_the_ttl_that_the_server_gives_is_honoured(drivers, services) -> None:
    # The defaults of etcd, with which no lease is shorter than 2 s.
    slow = ("--heartbeat-interval", "100", "--election-timeout", "1000")
    server = services.start(EtcdServer(*slow))
    driver = await drivers.open(server.url)
    keeper = await drivers.open(server.url, role="keeper")
    granted = await owned(driver, "k", "a/1", 1.0)
    assert granted.ttl_us == 2_000_000
    renewed = await keeper.leases.renew(granted, 1_000_000)
    assert renewed.ttl_us == 2_000_000
    written = await revision(server.endpoint)
    assert (await keeper.leases.renew(renewed, 1_000_000)).ttl_us == 2_000_000
    assert await revision(server.endpoint) == written


# -- the watch ------------------------------------------------------------------------------------


async def test_a_cut_watch_is_deaf_then_hears_what_it_missed(drivers, proxy, etcd_server) -> None:
    owner = await drivers.open(etcd_server.url, "owner")
    waiter = await drivers.open(proxy.url_of(etcd_server.url), "waiter", options=IMPATIENT)
    bell = Bell(waiter)
    granted = await owned(owner, "k", "owner/1")
    place = (await queued(waiter, "k", "waiter/1")).waiter
    assert not waiter.wakeups.deaf
    proxy.refuse()
    proxy.reset()
    await until(lambda: waiter.wakeups.deaf)
    await owner.leases.release(granted)
    proxy.pass_through()
    assert await bell.next() == Wakeup("lease/k", place, 0)
    assert not waiter.wakeups.deaf


async def test_a_compaction_under_a_watch_loses_nothing(drivers, etcd_server) -> None:
    owner = await drivers.open(etcd_server.url, "owner")
    waiter = await drivers.open(etcd_server.url, "waiter")
    bell = Bell(waiter)
    for number in range(3):
        granted = await owned(owner, "k", f"owner/{number}")
        place = (await queued(waiter, "k", f"waiter/{number}")).waiter
        await compact(etcd_server.endpoint)
        await owner.leases.release(granted)
        assert await bell.next() == Wakeup("lease/k", place, 0)
        taken = await waiter.leases.acquire(request("k", f"waiter/{number}"))
        assert isinstance(taken, Grant)
        await waiter.leases.release(taken)


async def test_a_listing_survives_a_compaction(drivers, etcd_server) -> None:
    driver = await drivers.open(etcd_server.url)
    for number in range(5):
        await owned(driver, f"k{number}", "a/1")
    await compact(etcd_server.endpoint)
    page = await driver.leases.list(prefix="k", owner=None, active=True, after="k1", limit=2)
    assert [record.key for record in page] == ["k2", "k3"]


# -- clusters and processes -----------------------------------------------------------------------


async def test_a_cluster_survives_the_death_of_its_leader(drivers, services) -> None:
    cluster = services.start(EtcdCluster())
    options = {"command_timeout": 2.0, "connect_timeout": 0.5}
    owner = await drivers.open(cluster.url, "owner", options=options)
    waiter = await drivers.open(cluster.url, "waiter", options=options)
    bell = Bell(waiter)
    granted = await owned(owner, "k", "owner/1", 2.0)
    place = (await queued(waiter, "k", "waiter/1")).waiter
    (await asyncio.to_thread(cluster.leader)).kill()
    # A new leader extends what it finds, and never shortens it.
    renewed = await _settled(lambda: owner.leases.renew(granted, granted.ttl_us))
    assert renewed.token == granted.token
    held = await _settled(lambda: waiter.leases.acquire(request("k", "w/2")))
    assert isinstance(held, Held)
    await until(lambda: not waiter.wakeups.deaf)
    await _settled(lambda: owner.leases.release(renewed))
    assert await bell.next() == Wakeup("lease/k", place, 0)
    taken = await _settled(lambda: waiter.leases.acquire(request("k", "waiter/1")))
    assert isinstance(taken, Grant)
    assert taken.token > granted.token


async def _settled(call):
    """Repeat until there is an answer; each of these is safe to repeat."""
    async with asyncio.timeout(10):
        while True:
            try:
                return await call()
            except (StoreUnavailable, OutcomeUnknown):
                await asyncio.sleep(0.05)
