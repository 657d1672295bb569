"""etcd as a user meets it: leases through ``connect``, guarded transactions, doctor, raw keys."""

from __future__ import annotations

import asyncio

import aetcd
import pytest
from aetcd import rpc

import outlive
from outlive.connect import find_factory
from outlive.errors import LeaseLost, StoreError, UnsupportedByDriver, UsageError
from tests.process.etcd_drivers import Drivers, fresh_namespace, owned, request
from tests.services.etcd_leases import channel

pytestmark = [pytest.mark.service, pytest.mark.process]


@pytest.fixture
async def drivers():
    opened = Drivers()
    yield opened
    await opened.close()


@pytest.fixture
async def client(etcd_server):
    async with aetcd.Client("127.0.0.1", etcd_server.port) as connected:
        yield connected


async def test_a_lease_is_renewed_and_handed_over(etcd_server) -> None:
    space = fresh_namespace()
    order: list[str] = []
    async with (
        outlive.connect(etcd_server.url, name="one", namespace=space) as one,
        outlive.connect(etcd_server.url, name="two", namespace=space) as two,
    ):

        async def wait_behind() -> None:
            async with two.leases.hold("k", ttl=1.5) as lease:
                order.append(f"two {lease.token > token}")

        async with one.leases.hold("k", ttl=1.5) as first:
            token = first.token
            waiting = asyncio.create_task(wait_behind())
            # Longer than the ttl: without the keeper it would be gone.
            await asyncio.sleep(3.2)
            assert first.is_held
            order.append("one")
        await waiting
        (info,) = await one.leases.list(active=False)
        assert (info.key, info.owner) == ("k", None)
    assert order == ["one", "two True"]


async def test_a_ttl_below_a_second_is_refused(etcd_server) -> None:
    async with outlive.connect(etcd_server.url, namespace=fresh_namespace()) as host:
        with pytest.raises(UsageError, match="outside what etcd offers"):
            await host.leases.try_acquire("k", ttl=0.5)


async def test_a_guarded_transaction_commits_only_while_the_lease_lasts(
    etcd_server, client
) -> None:
    space = fresh_namespace()
    stock = f"stock/{space}".encode()
    async with outlive.connect(etcd_server.url, namespace=space) as host:
        lease = await host.leases.acquire("k")
        compare: list[object] = []
        await lease.guard(compare)
        put = [client.transactions.put(stock, b"1")]
        done, _ = await client.transaction(compare=compare, success=put, failure=[])
        assert done
        await host.leases.break_lease("k", reason="test")
        # The same condition, written while the lease lasted, and sent too late.
        late = [client.transactions.put(stock, b"2")]
        done, _ = await client.transaction(compare=compare, success=late, failure=[])
        assert not done
        assert (await client.get(stock)).value == b"1"


async def test_a_request_of_the_stubs_is_guarded_as_well(etcd_server) -> None:
    space = fresh_namespace()
    async with (
        outlive.connect(etcd_server.url, namespace=space) as host,
        channel(etcd_server.endpoint) as opened,
    ):
        lease = await host.leases.acquire("k")
        put = rpc.PutRequest(key=f"stock/{space}".encode(), value=b"1")
        tx = rpc.TxnRequest(success=[rpc.RequestOp(request_put=put)])
        await lease.guard(tx)
        assert (await rpc.KVStub(opened).Txn(tx)).succeeded
        await lease.release()
        assert not (await rpc.KVStub(opened).Txn(tx)).succeeded
        with pytest.raises(LeaseLost):
            await lease.guard(tx)


async def test_a_guard_of_something_else_is_a_mistake(drivers, etcd_server) -> None:
    driver = await drivers.open(etcd_server.url)
    granted = await owned(driver, "k", "a/1")
    for strange in ({}, object(), "tx", None):
        with pytest.raises(UsageError, match="compare"):
            await driver.leases.guard(granted, strange)


async def test_a_guard_by_a_driver_that_did_not_acquire(drivers, etcd_server) -> None:
    granted = await owned(await drivers.open(etcd_server.url), "k", "a/1")
    other = await drivers.open(etcd_server.url, "b")
    compare: list[object] = []
    await other.leases.guard(granted, compare)
    assert len(compare) == 1
    await other.leases.break_lease("k", reason="test")
    third = await drivers.open(etcd_server.url, "c")
    with pytest.raises(LeaseLost):
        await third.leases.guard(granted, compare)


async def test_doctor_names_the_server(drivers, etcd_server) -> None:
    driver = await drivers.open(etcd_server.url)
    findings = await driver.check()
    assert findings[0].what.startswith(f"etcd {etcd_server.version} at etcd://127.0.0.1")
    # Only one whose version may forget grants is warned of.
    worrying = [finding.what for finding in findings if finding.level != "ok"]
    assert all("may forget grants" in what for what in worrying)


async def test_raw_shows_what_etcd_holds(drivers, etcd_server) -> None:
    driver = await drivers.open(etcd_server.url)
    assert list(await driver.leases.raw("k")) == []
    granted = await owned(driver, "k", "a/1")
    (shown,) = await driver.leases.raw("k")
    folder = f"outlive/{drivers.namespace}/lease/k"
    live = shown[f"{folder}\tlive\t0000.0"]
    assert live["create_revision"] == granted.token
    assert live["value"] == "a/1"
    assert live["lease"]
    assert {f"{folder}\tslot\t0000", f"{folder}\trecord"} < set(shown)


async def test_a_semaphore_beyond_what_etcd_commits_at_once_is_refused(
    drivers, etcd_server
) -> None:
    driver = await drivers.open(etcd_server.url)
    with pytest.raises(UnsupportedByDriver, match="at most 60 slots"):
        await driver.leases.acquire(request("k", "a/1", limit=61))
    grants = [
        await driver.leases.acquire(request("k", f"a/{number}", limit=60)) for number in range(60)
    ]
    assert len({grant.token for grant in grants}) == 60
    assert len(await driver.leases.break_lease("k", reason="all of them")) == 60
    assert not any(record.active for record in await driver.leases.get("k"))


async def test_what_a_stranger_put_into_a_folder_is_told(drivers, etcd_server, client) -> None:
    driver = await drivers.open(etcd_server.url)
    for number, (kind, value) in enumerate(
        [("record", b"{}"), ("slot\t0000", b"no json"), ("live\tx", b"a/1"), ("state", b"\xff")]
    ):
        key = f"k{number}"
        await client.put(f"outlive/{drivers.namespace}/lease/{key}\t{kind}".encode(), value)
        with pytest.raises(StoreError, match="no Outlive wrote"):
            await driver.leases.get(key)


@pytest.mark.parametrize("scheme", ["etcd", "etcds"])
def test_both_schemes_are_known(scheme) -> None:
    assert find_factory(scheme).capabilities.backend == "etcd"
