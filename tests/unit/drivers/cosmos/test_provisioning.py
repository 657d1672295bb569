"""Connecting: what is created, what is refused, and what ``doctor`` says, on a real account."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

import outlive
from outlive.clock import SystemClock
from outlive.drivers.cosmos import CosmosFactory
from outlive.drivers.cosmos.driver import CosmosDriver
from outlive.errors import ConfigurationError, LeaseHeld, SchemaMismatch
from outlive.model.lease import AcquireRequest, Grant
from outlive.model.location import parse_url
from outlive.names import HostId, Owner
from outlive.ports.driver import DriverContext
from tests.plugins.service_tests import Services
from tests.services.cosmos import CosmosEmulator
from tests.services.http_faults import HttpFaults

pytestmark = [pytest.mark.service, pytest.mark.whitebox]

Opener = Callable[..., asyncio.Future[CosmosDriver]]


@pytest.fixture
async def opened() -> AsyncIterator[Opener]:
    drivers: list[CosmosDriver] = []

    async def open_driver(url: str, **more: object) -> CosmosDriver:
        context = DriverContext(
            clock=SystemClock(),
            random=random.Random(1),
            namespace="default",
            host=HostId("h"),
            **more,
        )
        driver = await CosmosFactory().open(parse_url(url), context)
        drivers.append(driver)
        return driver

    yield open_driver
    for driver in drivers:
        await driver.close()


def name_of(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


async def test_hosts_that_start_together_create_one_container(opened, cosmos_emulator):
    url = cosmos_emulator.new_url()
    drivers = await asyncio.gather(*(opened(url) for _ in range(5)))
    outcomes = [
        await driver.leases.acquire(AcquireRequest("k", Owner("a/1"), 10**7, "{}", HostId("h")))
        for driver in drivers
    ]
    assert len({outcome.token for outcome in outcomes if isinstance(outcome, Grant)}) == 1


async def test_a_container_with_another_partition_key_is_refused(opened, cosmos_emulator):
    url = cosmos_emulator.new_url()
    async with CosmosClient(
        cosmos_emulator.endpoint, cosmos_emulator.key, enable_endpoint_discovery=False
    ) as client:
        database = await client.create_database_if_not_exists("DistributedLeasing")
        await database.create_container(name_of(url), PartitionKey(path="/id"))
    with pytest.raises(ConfigurationError, match=r"/id.*need /leaseKey.*--partition-key-path"):
        await opened(url)


async def test_an_account_that_writes_in_several_regions_is_refused(opened, services: Services):
    emulator = services.start(CosmosEmulator(multi_write=True))
    with pytest.raises(ConfigurationError, match="enable-multiple-write-locations false"):
        await opened(emulator.url_of())


async def test_who_only_looks_makes_no_container(opened, cosmos_emulator):
    url = cosmos_emulator.new_url()
    for _ in range(2):
        with pytest.raises(SchemaMismatch, match="outlive provision cosmos") as raised:
            await opened(url, create=False)
        assert raised.value.found == 0
    await opened(url)
    await opened(url, create=False)


async def test_who_may_not_create_is_told_how_and_why(opened, cosmos_emulator):
    with HttpFaults(cosmos_emulator.endpoint) as faults:
        url = cosmos_emulator.url_of(name_of(cosmos_emulator.new_url()), endpoint=faults.endpoint)
        faults.answer("POST", 403, path="/colls", times=9)
        with pytest.raises(ConfigurationError, match="create it once by hand") as raised:
            await opened(url)
    assert "az cosmosdb sql container create" in str(raised.value)


async def test_who_may_not_even_look_is_told_the_role(opened, cosmos_emulator):
    with HttpFaults(cosmos_emulator.endpoint) as faults:
        faults.answer("GET", 403, path="/colls", times=9)
        with pytest.raises(ConfigurationError, match="az cosmosdb sql role assignment create"):
            await opened(cosmos_emulator.url_of(endpoint=faults.endpoint))


async def test_a_service_that_ignores_a_stale_etag_is_refused(opened, cosmos_emulator):
    with HttpFaults(cosmos_emulator.endpoint) as faults:
        url = cosmos_emulator.url_of(name_of(cosmos_emulator.new_url()), endpoint=faults.endpoint)
        faults.answer("PUT", 200, times=9, body='{"id": "outlive-probe", "_etag": "e"}')
        with pytest.raises(ConfigurationError, match="stale ETag"):
            await opened(url)


async def test_a_keeper_checks_nothing_that_its_host_has_checked(opened, cosmos_emulator):
    with HttpFaults(cosmos_emulator.endpoint) as faults:
        url = cosmos_emulator.url_of(name_of(cosmos_emulator.new_url()), endpoint=faults.endpoint)
        await opened(url)
        before = len(faults.seen)
        await opened(url, role="keeper")
        assert all(seen.path == "/" for seen in faults.seen[before:])


async def test_connecting_again_changes_nothing(opened, cosmos_emulator):
    with HttpFaults(cosmos_emulator.endpoint) as faults:
        url = cosmos_emulator.url_of(name_of(cosmos_emulator.new_url()), endpoint=faults.endpoint)
        await opened(url)
        before = len(faults.seen)
        await opened(url)
        later = [(seen.method, seen.status) for seen in faults.seen[before:]]
    assert ("PUT", 412) in later
    assert not any(method == "POST" for method, _ in later)


async def test_doctor_tells_the_account_the_container_and_the_cost(opened, cosmos_emulator):
    spent: list[tuple[str, float]] = []
    driver = await opened(
        cosmos_emulator.url_of(), measure=lambda unit, amount: spent.append((unit, amount))
    )
    findings = await driver.check()
    said = " ".join(finding.what for finding in findings)
    assert {finding.level for finding in findings} == {"ok"}
    for words in ("/leaseKey", "South Central US only", "Session", "request units", "of margin"):
        assert words in said
    assert {unit for unit, _ in spent} == {"request_units"}
    assert sum(amount for _, amount in spent) > 0


async def test_migrating_creates_the_container_and_nothing_more(cosmos_emulator):
    context = DriverContext(
        clock=SystemClock(), random=random.Random(1), namespace="default", host=HostId("h")
    )
    location = parse_url(cosmos_emulator.new_url())
    for _ in range(2):
        done = await CosmosFactory().migrate(location, context)
        assert done.before == done.after == 1


async def test_requests_are_few(opened, cosmos_emulator):
    with HttpFaults(cosmos_emulator.endpoint) as faults:
        url = cosmos_emulator.url_of(name_of(cosmos_emulator.new_url()), endpoint=faults.endpoint)
        driver, keeper = await opened(url), await opened(url, role="keeper")

        async def asked(work) -> list[tuple[str, int]]:
            before = len(faults.seen)
            asked.result = await work
            return [
                (seen.method, seen.status) for seen in faults.seen[before:] if "/docs" in seen.path
            ]

        def ask(number: int) -> AcquireRequest:
            return AcquireRequest("k", Owner(f"a/{number}"), 30_000_000, "{}", HostId("h"))

        assert await asked(driver.leases.acquire(ask(1))) == [("GET", 404), ("POST", 201)]
        grant = asked.result
        assert await asked(driver.leases.release(grant)) == [("PUT", 200)]
        assert await asked(driver.leases.acquire(ask(2))) == [("PUT", 200)]
        grant = asked.result
        assert await asked(keeper.leases.renew(grant, 30_000_000)) == [("GET", 200), ("PUT", 200)]
        grant = asked.result
        assert await asked(keeper.leases.renew(grant, 30_000_000)) == [("PUT", 200)]
        grant = asked.result
        assert await asked(driver.leases.acquire(ask(3))) == [("GET", 200)]
        assert await asked(driver.leases.release(grant)) == [("PUT", 200)]


async def test_the_whole_library_works_on_it(cosmos_emulator):
    url = cosmos_emulator.new_url()
    async with outlive.connect(url, name="a") as a, outlive.connect(url, name="b") as b:
        async with a.leases.hold("orders/1", metadata={"region": "eu"}) as lease:
            token = lease.token
            with pytest.raises(LeaseHeld):
                await b.leases.acquire("orders/1", timeout=0)
            waiting = asyncio.create_task(b.leases.acquire("orders/1", acquire_retry=(0.05, 0.1)))
            (found,) = await b.leases.list(prefix="orders/")
            assert (found.owner, found.metadata["region"]) == (lease.owner, "eu")
        successor = await asyncio.wait_for(waiting, 10)
        assert successor.token > token
        await successor.release()
