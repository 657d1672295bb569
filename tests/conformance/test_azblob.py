"""Azure Blob Storage keeps the port, on the emulator Azurite.

All labs share one container, because namespaces keep them apart as well. The shortest lease is of
15 seconds, so that the suite breaks what it would let expire; what only an expiry can show is shown
by one test, for all of it at once.
"""

from __future__ import annotations

import itertools

import pytest

import outlive
from outlive.drivers.azblob import AzureBlobFactory
from outlive.drivers.azblob.blob_names import lease_id_of, name_of
from outlive.errors import Fenced, LeaseExpired
from outlive.testing.conformance import Lab, LeaseStoreSuite, WakeupsSuite, scenario
from outlive.testing.conformance.lab import LONG_S
from tests.services.azurite import ACCOUNT, AzuriteServer

pytestmark = pytest.mark.service

_numbers = itertools.count(1)


@pytest.fixture
def azure_lab(azurite_server: AzuriteServer) -> Lab:
    return Lab(
        AzureBlobFactory(),
        f"azblob://{ACCOUNT}/conformance",
        options={"connection_string": azurite_server.connection_string},
        prefix=f"t{next(_numbers)}-",
        expiry="broken",
    )


class TestLeases(LeaseStoreSuite):
    @pytest.fixture
    def lab(self, azure_lab: Lab) -> Lab:
        return azure_lab


class TestWakeups(WakeupsSuite):
    @pytest.fixture
    def lab(self, azure_lab: Lab) -> Lab:
        return azure_lab


class TestExpiry:
    """All that only an expiry can show, in one wait of 15 seconds: a key for each fact."""

    @pytest.fixture
    def lab(self, azure_lab: Lab) -> Lab:
        return azure_lab

    @scenario
    async def test_a_lease_that_runs_out_is_over(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        keeper = await lab.open("a", role="keeper")
        grants = {key: await a.own_briefly(key) for key in ("taken", "free", "stale", "again")}
        await a.own_briefly("resumed", "old")
        held = await b.is_refused("taken")
        assert 0 < held.retry_in_s <= lab.short_s
        shortened = await a.renew(await a.own("shortened"), lab.short_s)
        await keeper.leases.renew(await a.own_briefly("kept"), lab.ttl_us(LONG_S))
        await a.own_briefly("repeated")
        await a.own("repeated")
        # Somebody leases a blob and dies before it can write its name.
        former = await a.own("crashed", "1")
        await a.leases.release(former)
        crashed = name_of(a.leases._namespace, "crashed")
        assert await a.driver._blobs.acquire(crashed, lease_id_of(a.owner("2")), 15) is None
        async with outlive.connect(lab.url, name="app", options=lab._options) as app:
            lease = await app.leases.acquire(f"held-{id(lab)}", ttl=lab.short_s)
            await lab.advance(lab.short_s / 2)
            await b.is_refused("taken")
            await b.is_refused("crashed")
            await lab.advance(lab.short_s / 2 + 0.5)
            # The keeper renews in time what an application holds.
            assert lease.is_held
            assert lease.renewals >= 2

        # It is over, says who had it, and stays over.
        record = await b.record("free")
        assert (record.owner, record.active, record.remaining_s) == (a.owner(), False, 0)
        for late in (None, "late"):
            with pytest.raises(LeaseExpired) as raised:
                await a.renew(grants["free"], state=late)
            assert raised.value.reason == "expired"
        with pytest.raises(LeaseExpired):
            await keeper.leases.renew(grants["free"], lab.ttl_us(LONG_S))
        assert (await a.record("free")).state is None
        await a.leases.release(grants["free"])
        assert (await b.own("free")).previous_owner is None

        # Who takes it gets a greater token, and the former owner is fenced.
        taken = await b.own("taken")
        assert taken.token > grants["taken"].token
        assert taken.previous_owner == a.owner()
        with pytest.raises(Fenced):
            await a.renew(grants["taken"])
        with pytest.raises(Fenced):
            await a.leases.release(grants["taken"])
        await b.leases.release(taken)
        assert list(await b.leases.break_lease("stale", reason="test")) == []
        assert (await a.own("again")).token == grants["again"].token
        resumed = await a.own("resumed", "new", resume=True)
        assert resumed.previous_owner == a.owner("old")

        # A crash costs no more than a lease period, and no token.
        assert (await b.own("crashed")).token > former.token

        # What was renewed or asked for again goes on; what was shortened does not.
        for key in ("kept", "repeated"):
            await b.is_refused(key)
        assert (await b.own("shortened")).token > shortened.token
