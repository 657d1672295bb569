"""The Cosmos DB driver on its bad days: throttled, unanswered, restarted empty, shown the past."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from azure.cosmos.aio import CosmosClient

import outlive
from outlive.clock import SystemClock
from outlive.drivers.cosmos import CosmosFactory
from outlive.drivers.cosmos.driver import CosmosDriver
from outlive.errors import (
    ConfigurationError,
    Fenced,
    LeaseExpired,
    OutcomeUnknown,
    StoreUnavailable,
)
from outlive.model.lease import AcquireRequest, Grant, Held
from outlive.model.location import parse_url
from outlive.names import HostId, Owner
from outlive.ports.driver import DriverContext
from outlive.testing import ManualClock
from tests.plugins.service_tests import Services
from tests.services.cosmos import CosmosEmulator
from tests.services.http_faults import LOST, HttpFaults
from tests.services.proxy import FaultProxy

pytestmark = [pytest.mark.service, pytest.mark.process]

Opener = Callable[..., asyncio.Future[CosmosDriver]]

# After how long a driver gives up what a test lets fail. What comes before that must work in the
# same time: on a busy machine the emulator takes more than half a second for a new container.
SOON_S = 2.0


def request(key: str, owner: str, ttl_s: float = 30.0) -> AcquireRequest:
    return AcquireRequest(key, Owner(owner), round(ttl_s * 1e6), "{}", HostId(owner))


async def own(driver: CosmosDriver, key: str, owner: str, ttl_s: float = 30.0) -> Grant:
    outcome = await driver.leases.acquire(request(key, owner, ttl_s))
    assert isinstance(outcome, Grant), outcome
    return outcome


@pytest.fixture
async def opened() -> AsyncIterator[Opener]:
    drivers: list[CosmosDriver] = []

    async def open_driver(url: str, host: str = "a", **more: object) -> CosmosDriver:
        # What is not meant to time out has time on a busy machine, too.
        options = {"request_timeout": 60, "connect_timeout": 60}
        options |= {name: more.pop(name) for name in sorted(CosmosFactory().options & set(more))}
        context = DriverContext(
            clock=more.pop("clock", None) or SystemClock(),
            random=random.Random(1),
            namespace="default",
            host=HostId(host),
            options=options,
            **more,
        )
        driver = await CosmosFactory().open(parse_url(url), context)
        drivers.append(driver)
        return driver

    yield open_driver
    for driver in drivers:
        await driver.close()


@pytest.fixture
def url(cosmos_emulator: CosmosEmulator) -> str:
    return cosmos_emulator.new_url()


@pytest.fixture
def faults(cosmos_emulator: CosmosEmulator) -> Iterator[HttpFaults]:
    with HttpFaults(cosmos_emulator.endpoint) as running:
        yield running


@pytest.fixture
def faulty_url(cosmos_emulator: CosmosEmulator, faults: HttpFaults) -> str:
    name = cosmos_emulator.new_url().partition("?")[0].rpartition("/")[2]
    return cosmos_emulator.url_of(name, endpoint=faults.endpoint)


# -- throttled and unavailable --------------------------------------------------------------------


async def test_a_throttled_request_is_sent_again_when_the_service_says(opened, faulty_url, faults):
    driver = await opened(faulty_url)
    for method in ("GET", "POST"):
        faults.answer(method, 429, times=2, headers={"x-ms-retry-after-ms": "20"})
    grant = await own(driver, "k", "a/1")
    faults.answer("PUT", 429, headers={"x-ms-retry-after-ms": "20"})
    await driver.leases.release(grant)
    assert (faults.count("GET", 429), faults.count("POST", 429)) == (2, 2)
    assert faults.count("PUT", 429) == 1


async def test_throttling_that_outlasts_the_caller_is_said_at_once(opened, faulty_url, faults):
    driver = await opened(faulty_url, request_timeout=2)
    faults.answer("GET", 429, times=100, headers={"x-ms-retry-after-ms": "60000"})
    with pytest.raises(StoreUnavailable, match="request units"):
        await driver.leases.acquire(request("k", "a/1"))
    assert faults.count("GET", 429) == 1


async def test_throttled_writes_are_not_applied_and_not_unknown(opened, faulty_url, faults):
    driver = await opened(faulty_url, request_timeout=SOON_S)
    faults.answer("POST", 429, times=100, headers={"x-ms-retry-after-ms": "100"})
    with pytest.raises(StoreUnavailable):
        await driver.leases.acquire(request("k", "a/1"))
    assert faults.count("POST", 429) > 1
    faults.heal()
    assert list(await driver.leases.get("k")) == []


async def test_an_outage_that_passes_is_waited_out(opened, faulty_url, faults):
    driver = await opened(faulty_url)
    faults.answer("POST", 503, times=2, headers={"Retry-After": "0.02"})
    grant = await own(driver, "k", "a/1")
    faults.answer("PUT", 503, headers={"x-ms-retry-after-ms": "20"})
    renewed = await driver.leases.renew(grant, 30_000_000)
    assert renewed.token == grant.token
    assert (faults.count("POST", 503), faults.count("PUT", 503)) == (2, 1)


async def test_an_outage_that_stays_leaves_writes_unknown_and_reads_unavailable(
    opened, faulty_url, faults
):
    driver = await opened(faulty_url, request_timeout=SOON_S)
    await driver.leases.acquire(request("k", "a/1"))
    faults.answer("PUT", 503, times=100)
    with pytest.raises(OutcomeUnknown):
        await driver.leases.acquire(request("k", "a/1"))
    faults.answer("GET", 503, times=100)
    with pytest.raises(StoreUnavailable):
        await driver.leases.get("k")


async def test_a_write_that_an_unsure_attempt_preceded_stays_unknown(opened, faulty_url, faults):
    driver = await opened(faulty_url, request_timeout=SOON_S)
    faults.answer("POST", 503, times=1, headers={"x-ms-retry-after-ms": "10"})
    faults.answer("POST", 429, times=100, headers={"x-ms-retry-after-ms": "100"})
    with pytest.raises(OutcomeUnknown):
        await driver.leases.acquire(request("k", "a/1"))


# -- replies that are lost ------------------------------------------------------------------------


async def test_a_replace_whose_reply_is_lost_is_found_and_adopted(opened, faulty_url, faults):
    driver = await opened(faulty_url)
    grant = await own(driver, "k", "a/1")
    # Each repetition of the client library is lost as well.
    faults.lose_replies("PUT", times=3)
    renewed = await driver.leases.renew(grant, 30_000_000, state="page 7")
    assert (renewed.token, renewed.version) == (grant.token, grant.version + 1)
    assert renewed.state == "page 7"
    assert faults.count("PUT", LOST) >= 1
    faults.heal()
    # Its new ETag is known: the release takes one request.
    before = len(faults.seen)
    await driver.leases.release(renewed)
    assert [(seen.method, seen.status) for seen in faults.seen[before:]] == [("PUT", 200)]


async def test_a_first_grant_whose_reply_is_lost_is_found_and_adopted(opened, faulty_url, faults):
    driver = await opened(faulty_url)
    faults.lose_replies("POST", times=3)
    grant = await own(driver, "k", "a/1")
    assert faults.count("POST", LOST) >= 1
    again = await own(driver, "k", "a/1")
    assert again.token == grant.token


async def test_a_takeover_whose_reply_is_lost_names_the_former_owner(opened, faulty_url, faults):
    clock = ManualClock()
    a, b = [await opened(faulty_url, host, clock=clock) for host in "ab"]
    old = await own(a, "k", "a/1", 10.0)
    assert isinstance(await b.leases.acquire(request("k", "b/1")), Held)
    clock.advance(11)
    faults.lose_replies("PUT", times=3)
    new = await own(b, "k", "b/1")
    assert (new.previous_owner, new.token > old.token) == ("a/1", True)
    with pytest.raises(Fenced):
        await a.leases.renew(old, 10_000_000)


async def test_a_release_whose_reply_is_lost_is_no_error(opened, faulty_url, faults):
    driver = await opened(faulty_url)
    grant = await own(driver, "k", "a/1")
    faults.lose_replies("PUT", times=3)
    await driver.leases.release(grant)
    (record,) = await driver.leases.get("k")
    assert (record.owner, record.token) == (None, grant.token)


async def test_a_write_that_nobody_can_look_up_is_unknown(opened, faulty_url, faults):
    driver = await opened(faulty_url, request_timeout=SOON_S)
    grant = await own(driver, "k", "a/1")
    faults.lose_replies("PUT", times=3)
    faults.answer("GET", 503, times=100)
    with pytest.raises(OutcomeUnknown):
        await driver.leases.renew(grant, 30_000_000)
    faults.heal()
    # The same owner asks again, and the grant it had is still good.
    assert (await own(driver, "k", "a/1")).token == grant.token


# -- reads that show the past ---------------------------------------------------------------------


async def test_a_stale_read_never_takes_a_key_from_a_living_owner(
    opened, url, faulty_url, faults, cosmos_emulator
):
    clock = ManualClock()
    a = await opened(faulty_url.replace(_endpoint(faulty_url), _endpoint(url)), "a", clock=clock)
    b = await opened(faulty_url, "b", clock=clock)
    grant = await own(a, "k", "a/1", 10.0)
    faults.show_the_past()
    assert isinstance(await b.leases.acquire(request("k", "b/1")), Held)
    for _ in range(3):
        clock.advance(5)
        grant = await a.leases.renew(grant, 10_000_000)
        # What it sees has stood still for long enough; the store refuses the ETag.
        outcome = await b.leases.acquire(request("k", "b/1"))
        assert isinstance(outcome, Held)
    assert faults.count("PUT", 412) >= 1
    await a.leases.renew(grant, 10_000_000)


async def test_a_stale_read_is_not_taken_for_a_lost_lease(opened, url, faulty_url, faults):
    # A keeper asks by a connection of its own, and may be shown what its host has replaced.
    clock = ManualClock()
    direct = faulty_url.replace(_endpoint(faulty_url), _endpoint(url))
    host = await opened(direct, "a", clock=clock)
    keeper = await opened(faulty_url, "a", clock=clock, role="keeper")
    await host.leases.release(await own(host, "k", "a/1", 10.0))
    faults.show_the_past()
    await keeper.leases.get("k")
    grant = await own(host, "k", "a/2", 10.0)
    with pytest.raises(StoreUnavailable, match="behind"):
        await keeper.leases.renew(grant, 10_000_000)
    faults.heal()
    grant = await keeper.leases.renew(grant, 10_000_000)
    # Now the past is a grant of our own that has run out since; its successors have not.
    faults.show_the_past()
    other = await opened(faulty_url, "a", clock=clock, role="keeper")
    await other.leases.get("k")
    for _ in range(2):
        clock.advance(8)
        grant = await host.leases.renew(grant, 10_000_000)
    with pytest.raises(StoreUnavailable, match="behind"):
        await other.leases.renew(grant, 10_000_000)


def _endpoint(url: str) -> str:
    return url.partition("endpoint=")[2].partition("&")[0]


# -- a server that dies ---------------------------------------------------------------------------


async def test_a_record_that_is_lost_fences_its_owner_and_tokens_still_grow(
    opened, services: Services
):
    emulator = services.start(CosmosEmulator())
    driver = await opened(emulator.url_of(), request_timeout=2)
    grant = await own(driver, "k", "a/1")
    emulator.kill()
    with pytest.raises(StoreUnavailable):
        await driver.leases.get("k")
    with pytest.raises((StoreUnavailable, OutcomeUnknown)):
        await driver.leases.renew(grant, 30_000_000)
    emulator.revive()
    # Empty: not even the container is there until a host connects.
    again = await opened(emulator.url_of(), "b")
    with pytest.raises(Fenced):
        await driver.leases.renew(grant, 30_000_000)
    # The token is the service's clock, which tells whole seconds.
    await asyncio.sleep(1.0)
    assert (await own(again, "k", "b/1")).token > grant.token


async def test_a_server_that_swallows_packets_is_given_up_in_time(opened, cosmos_emulator, url):
    with FaultProxy("127.0.0.1", cosmos_emulator.port) as proxy:
        endpoint = f"http%3A%2F%2F127.0.0.1%3A{proxy.port}%2F"
        driver = await opened(url.replace(_endpoint(url), endpoint), request_timeout=SOON_S)
        grant = await own(driver, "k", "a/1")
        proxy.black_hole()
        async with asyncio.timeout(4 * SOON_S):
            with pytest.raises(OutcomeUnknown):
                await driver.leases.renew(grant, 30_000_000)
            with pytest.raises(StoreUnavailable):
                await driver.leases.get("k")
        proxy.pass_through()
        assert (await driver.leases.renew(grant, 30_000_000)).token == grant.token


async def test_closing_ends_what_is_under_way(opened, cosmos_emulator, url):
    with FaultProxy("127.0.0.1", cosmos_emulator.port) as proxy:
        endpoint = f"http%3A%2F%2F127.0.0.1%3A{proxy.port}%2F"
        driver = await opened(url.replace(_endpoint(url), endpoint), request_timeout=60)
        grant = await own(driver, "k", "a/1")
        await asyncio.to_thread(proxy.black_hole)
        reading = asyncio.create_task(driver.leases.get("k"))
        writing = asyncio.create_task(driver.leases.renew(grant, 30_000_000))
        held = proxy.counters.held
        await asyncio.to_thread(proxy.wait_for, lambda counters: counters.held >= held + 2)
        await driver.close()
        async with asyncio.timeout(5):
            with pytest.raises(StoreUnavailable):
                await reading
            with pytest.raises(OutcomeUnknown):
                await writing


async def test_the_keeper_gives_up_a_hung_renewal_and_keeps_the_lease(cosmos_emulator, url):
    with FaultProxy("127.0.0.1", cosmos_emulator.port) as proxy:
        endpoint = f"http%3A%2F%2F127.0.0.1%3A{proxy.port}%2F"
        async with (
            outlive.connect(url.replace(_endpoint(url), endpoint), name="a") as host,
            host.leases.hold("k", ttl=15) as lease,
        ):
            failed = asyncio.Event()
            lease.on(outlive.RenewFailed, lambda _: failed.set())
            renewed = asyncio.Event()
            lease.on(outlive.Renewed, lambda _: renewed.set())
            await asyncio.to_thread(proxy.black_hole)
            await asyncio.wait_for(failed.wait(), 60)
            await asyncio.to_thread(proxy.pass_through)
            await asyncio.wait_for(renewed.wait(), 60)
            assert lease.is_held


# -- clocks ---------------------------------------------------------------------------------------


async def test_hosts_whose_clocks_are_an_hour_apart_agree(opened, url):
    late, early = ManualClock(), ManualClock()
    early.jump_wall(3600)
    early.advance(5000)
    a, b = await opened(url, "a", clock=late), await opened(url, "b", clock=early)
    grant = await own(a, "k", "a/1", 10.0)
    assert isinstance(await b.leases.acquire(request("k", "b/1")), Held)
    for _ in range(4):
        late.advance(4)
        early.advance(4)
        grant = await a.leases.renew(grant, 10_000_000)
        assert isinstance(await b.leases.acquire(request("k", "b/1")), Held)
    late.advance(10)
    with pytest.raises(LeaseExpired):
        await a.leases.renew(grant, 10_000_000)
    assert isinstance(await b.leases.acquire(request("k", "b/1")), Held)
    early.advance(10.6)
    assert (await own(b, "k", "b/1")).token > grant.token


async def test_the_clocks_of_the_service_end_a_silence_that_nobody_observed(opened, url):
    # Clocks that stand still: whatever ends the owner's time, it is not observation.
    await own(await opened(url, "a"), "k", "a/1", 0.5)
    fast = await opened(url, "b", clock=ManualClock(), max_server_skew=1)
    careful = await opened(url, "c", clock=ManualClock(), fast_takeover=False)
    async with asyncio.timeout(20):
        while isinstance(taken := await fast.leases.acquire(request("k", "b/1")), Held):
            assert isinstance(await careful.leases.acquire(request("k", "c/1")), Held)
            await asyncio.sleep(0.1)
    assert taken.previous_owner == "a/1"


# -- who may not come in --------------------------------------------------------------------------


async def test_a_wrong_key_is_named_without_showing_it(opened, cosmos_emulator):
    wrong = "d3Jvbmcta2V5LWNhbmFyeQ%3D%3D"
    url = cosmos_emulator.url_of().partition("account_key=")[0] + f"account_key={wrong}"
    with pytest.raises(ConfigurationError, match="az cosmosdb keys list") as raised:
        await opened(url)
    assert "d3Jvbmct" not in repr(raised.value)


async def test_a_client_of_the_caller_says_where_and_who(cosmos_emulator):
    container = cosmos_emulator.new_url().partition("?")[0].rpartition("/")[2]
    async with (
        CosmosClient(
            cosmos_emulator.endpoint, cosmos_emulator.key, enable_endpoint_discovery=False
        ) as client,
        outlive.connect(
            f"cosmos:///DistributedLeasing/{container}",
            name="us-east-1",
            options={"credential": client},
        ) as host,
        host.leases.hold("k") as lease,
    ):
        items = client.get_database_client("DistributedLeasing").get_container_client(container)
        query = 'SELECT * FROM c WHERE c.ownerId = "us-east-1"'
        found = [item async for item in items.query_items(query)]
        assert [(item["leaseKey"], item["leaseId"]) for item in found] == [("k", lease.id)]
        # A host, or a whole owner.
        for owner in ("us-east-1", lease.owner):
            assert [each.key for each in await host.leases.list(owner=owner)] == ["k"]
        assert await host.leases.list(owner="us-east-1/another") == []


async def test_the_key_is_never_logged(opened, cosmos_emulator, faulty_url, faults, caplog):
    with caplog.at_level(logging.DEBUG):
        driver = await opened(faulty_url)
        grant = await own(driver, "k", "a/1")
        faults.answer("PUT", 429, headers={"x-ms-retry-after-ms": "10"})
        await driver.leases.release(grant)
        await driver.check()
    assert cosmos_emulator.key not in caplog.text
    assert cosmos_emulator.key not in repr(driver.__dict__)


async def test_an_endpoint_where_nobody_listens_is_unavailable(opened, cosmos_emulator):
    with FaultProxy("127.0.0.1", cosmos_emulator.port) as proxy:
        proxy.refuse()
        url = cosmos_emulator.url_of(endpoint=f"http://127.0.0.1:{proxy.port}/")
        with pytest.raises(StoreUnavailable, match="cannot connect"):
            await opened(url, connect_timeout=1)


async def test_an_endpoint_that_is_no_cosmos_is_refused(opened, cosmos_emulator, faults):
    faults.answer("GET", 200, path="/", times=50, body="<html>")
    with pytest.raises(outlive.StoreError):
        await opened(cosmos_emulator.url_of(endpoint=faults.endpoint), request_timeout=1)


async def test_a_proxy_is_one_that_was_named_and_never_the_environment(
    opened, url, cosmos_emulator, monkeypatch
):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    await opened(url)
    with FaultProxy("127.0.0.1", cosmos_emulator.port) as proxy:
        await opened(url, "b", proxy=f"http://127.0.0.1:{proxy.port}")
        assert proxy.counters.accepted > 0


async def test_a_forbidden_caller_is_told_the_role(opened, faulty_url, faults):
    driver = await opened(faulty_url)
    faults.answer("GET", 403)
    with pytest.raises(ConfigurationError, match="Cosmos DB Built-in Data Contributor"):
        await driver.leases.get("k")


async def test_after_a_fork_the_child_must_connect_anew(cosmos_emulator, url):
    program = """
import asyncio, os, random, sys
from outlive.clock import SystemClock
from outlive.drivers.cosmos import CosmosFactory
from outlive.errors import UsageError
from outlive.model.location import parse_url
from outlive.ports.driver import DriverContext

async def main():
    context = DriverContext(
        clock=SystemClock(), random=random.Random(1), namespace="default", host="h"
    )
    driver = await CosmosFactory().open(parse_url(sys.argv[1]), context)
    child = os.fork()
    if child == 0:
        try:
            driver.leases.get("k").send(None)
        except UsageError:
            os._exit(7)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    await driver.leases.get("k")
    await driver.close()
    return os.waitstatus_to_exitcode(status)

sys.exit(asyncio.run(main()))
"""
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program, url], check=False, env=os.environ.copy()
    )
    assert done.returncode == 7
