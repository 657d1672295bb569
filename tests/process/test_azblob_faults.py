"""The Azure Blob Storage driver on its bad days: crashes, black holes, lost replies, half steps."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from outlive.drivers.azblob.blob_names import lease_id_of, name_of
from outlive.drivers.azblob.blobs import Blobs
from outlive.errors import (
    Fenced,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from outlive.model.lease import Grant, Held
from outlive.process import current
from outlive.serialization.json import encode_metadata
from outlive.testing.conformance import Lab, Member
from tests.services.azblob_labs import AzureBlobLabs
from tests.services.azurite import AzuriteServer
from tests.services.proxy import FaultProxy

pytestmark = pytest.mark.service


@pytest.fixture
async def labs() -> AsyncIterator[AzureBlobLabs]:
    labs = AzureBlobLabs()
    yield labs
    await labs.close()


@pytest.fixture
def lab(labs: AzureBlobLabs, azurite_server: AzuriteServer) -> Lab:
    return labs.make(azurite_server)


@pytest.fixture
def proxy(azurite_server: AzuriteServer) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", azurite_server.port) as running:
        yield running


@pytest.fixture
def faulty(labs: AzureBlobLabs, azurite_server: AzuriteServer, proxy: FaultProxy) -> Lab:
    return labs.make(azurite_server, port=proxy.port, request_timeout=0.7)


def blobs_of(member: Member) -> Blobs:
    return member.driver._blobs


def name_in(member: Member, key: str) -> str:
    return name_of(member.leases._namespace, key)


async def settled(member: Member, key: str) -> Grant:
    """Acquire as the feature does: after an unknown outcome, ask again under the same owner."""
    try:
        return await member.own(key)
    except OutcomeUnknown:
        return await member.own(key)


async def test_a_restart_of_the_service_keeps_records_and_tokens(labs, services) -> None:
    server = services.start(AzuriteServer())
    lab = labs.make(server)
    a, b = await lab.host("a"), await lab.host("b")
    grant = await a.own("k")
    server.halt()
    for call in (a.renew(grant), a.leases.get("k"), b.attempt("k"), a.leases.release(grant)):
        with pytest.raises(StoreUnavailable):
            await call
    server.revive()
    # The emulator keeps blobs over a restart, and lets all leases run out.
    taken = await b.own("k")
    assert (taken.token > grant.token, taken.previous_owner) == (True, a.owner())
    with pytest.raises(Fenced):
        await a.renew(grant)
    await b.renew(taken)


async def test_a_black_hole_ends_in_time_and_says_what_is_known(faulty, proxy) -> None:
    a = await faulty.host("a")
    grant = await a.own("k")
    proxy.black_hole()
    with pytest.raises(OutcomeUnknown):
        await a.renew(grant)
    with pytest.raises(StoreUnavailable):
        await a.leases.get("k")
    with pytest.raises(StoreUnavailable):
        await a.attempt("other")
    assert proxy.counters.held > 0
    proxy.pass_through()
    assert (await a.renew(grant)).token == grant.token


async def test_a_keeper_gives_a_renewal_up_when_it_is_told_to(faulty, proxy) -> None:
    a, keeper = await faulty.host("a"), await faulty.open("a", role="keeper")
    grant = await a.own("k")
    await keeper.leases.renew(grant, grant.ttl_us)
    proxy.black_hole()
    renewal = asyncio.ensure_future(keeper.leases.renew(grant, grant.ttl_us))
    await asyncio.to_thread(proxy.wait_for, lambda counters: counters.held > 0)
    renewal.cancel()
    with pytest.raises(asyncio.CancelledError):
        await renewal
    proxy.pass_through()
    assert (await keeper.leases.renew(grant, grant.ttl_us)).token == grant.token


# What an attempt, a renewal and a release send: the blob, its lease, and its metadata.
@pytest.mark.parametrize("request_line", [b"x-ms-blob-type", b"comp=lease", b"comp=metadata"])
async def test_a_lost_reply_to_an_acquire_is_settled_under_one_token(
    faulty, proxy, request_line
) -> None:
    a, b = await faulty.host("a"), await faulty.host("b")
    proxy.drop_reply_after(request_line)
    grant = await settled(a, "k")
    assert proxy.counters.cut == 1
    assert (await a.record("k")).token == grant.token
    assert (await b.is_refused("k")).owner == a.owner()
    assert (await a.own("k")).token == grant.token


@pytest.mark.parametrize("request_line", [b"comp=lease", b"comp=metadata"])
async def test_a_lost_reply_to_a_renewal_loses_nothing(faulty, proxy, request_line) -> None:
    a, b = await faulty.host("a"), await faulty.host("b")
    grant = await a.own("k")
    proxy.drop_reply_after(request_line)
    try:
        await a.renew(grant, state="page 7")
    except OutcomeUnknown:
        await a.renew(grant, state="page 7")
    assert proxy.counters.cut == 1
    record = await b.record("k")
    assert (record.token, record.state, record.active) == (grant.token, "page 7", True)


@pytest.mark.parametrize("request_line", [b"comp=lease", b"comp=metadata"])
async def test_a_lost_reply_to_a_release_leaves_the_key_free(faulty, proxy, request_line) -> None:
    a, b = await faulty.host("a"), await faulty.host("b")
    grant = await a.own("k")
    proxy.drop_reply_after(request_line)
    try:
        await a.leases.release(grant)
    except (OutcomeUnknown, Fenced):
        with pytest.raises(Fenced):
            await a.leases.release(grant)
    assert proxy.counters.cut == 1
    assert (await b.record("k")).owner is None
    assert (await b.own("k")).token > grant.token


async def test_a_release_whose_second_request_was_lost_is_finished_by_the_next(lab) -> None:
    a, b = await lab.host("a"), await lab.host("b")
    grant = await a.own("k")
    seen = await blobs_of(a).read(name_in(a, "k"))
    await blobs_of(a).write(
        name_in(a, "k"), seen.record.ended(), seen, lease_id=lease_id_of(grant.owner)
    )
    assert (await b.is_refused("k")).owner is None
    with pytest.raises(Fenced):
        await a.leases.release(grant)
    await b.own("k")


async def test_a_lease_without_an_owner_holds_others_up_and_can_be_broken(lab) -> None:
    # Somebody leased the blob and died before it wrote the record.
    a, b = await lab.host("a"), await lab.host("b")
    first = await a.own("k")
    await a.leases.release(first)
    assert await blobs_of(a).acquire(name_in(a, "k"), lease_id_of("dead/1"), 60) is None
    held = await b.is_refused("k")
    assert held.owner is None
    assert held.retry_in_s > 0
    record = await b.record("k")
    assert (record.owner, record.active) == (None, False)
    assert list(await b.leases.break_lease("k", reason="crashed")) == []
    assert (await b.own("k")).token > first.token


async def test_an_attempt_that_died_between_its_requests_is_taken_up_by_its_owner(lab) -> None:
    a, b = await lab.host("a"), await lab.host("b")
    first = await a.own("k", "1")
    await a.leases.release(first)
    await blobs_of(a).acquire(name_in(a, "k"), lease_id_of(a.owner("2")), 60)
    await b.is_refused("k")
    assert (await a.own("k", "2")).token > first.token


async def test_what_the_portal_breaks_is_lost_to_its_owner(lab) -> None:
    a, b = await lab.host("a"), await lab.host("b")
    grant = await a.own("k")
    seen = await blobs_of(b).read(name_in(b, "k"))
    await blobs_of(b).end_lease(name_in(b, "k"), seen.etag)
    for _ in range(2):
        with pytest.raises(Fenced):
            await a.renew(grant)
    with pytest.raises(Fenced):
        await a.leases.release(grant)
    assert (await b.own("k")).token > grant.token


async def test_a_former_owner_is_fenced_before_the_next_has_written_its_name(lab) -> None:
    a, b = await lab.host("a"), await lab.host("b")
    grant = await a.own("k")
    seen = await blobs_of(b).read(name_in(b, "k"))
    await blobs_of(b).end_lease(name_in(b, "k"), seen.etag)
    await blobs_of(b).acquire(name_in(b, "k"), lease_id_of(b.owner("1")), 15)
    with pytest.raises(Fenced):
        await a.renew(grant)
    with pytest.raises(Fenced):
        await a.leases.release(grant)


async def test_an_attempt_cut_off_before_it_wrote_its_name_finds_its_lease_again(
    lab, faulty, proxy, monkeypatch
) -> None:
    a, b = await lab.host("a"), await faulty.host("b")
    b.leases._namespace = a.leases._namespace
    grant = await a.own("k")
    await blobs_of(a).end_lease(name_in(a, "k"), (await blobs_of(a).read(name_in(a, "k"))).etag)
    leased, acquire = [], blobs_of(b).acquire

    async def acquire_and_be_cut_off(*arguments: object) -> object:
        leased.append(await acquire(*arguments))
        proxy.refuse()
        proxy.reset()
        return leased[-1]

    monkeypatch.setattr(blobs_of(b), "acquire", acquire_and_be_cut_off)
    with pytest.raises(OutcomeUnknown):
        await b.attempt("k")
    monkeypatch.undo()
    proxy.pass_through()
    assert leased == [None]
    # The record still names the former owner, whose time by it is not over.
    assert (await b.record("k")).owner == a.owner()
    assert (await b.own("k")).token > grant.token


async def test_what_changes_between_the_look_and_the_lease_is_looked_at_again(
    lab, monkeypatch
) -> None:
    a, b = await lab.host("a"), await lab.host("b")
    await b.leases.release(await b.own("k", "1"))
    read, written = blobs_of(a).read, []

    async def read_and_be_overtaken(name: str) -> object:
        seen = await read(name)
        if not written:
            written.append(await b.renew(await b.own("k", "2"), state="page 7"))
            await b.leases.release(written[0])
        return seen

    monkeypatch.setattr(blobs_of(a), "read", read_and_be_overtaken)
    grant = await a.own("k")
    # Its record was built on a blob that was no more, and was refused.
    assert grant.state == "page 7"
    assert (grant.token > written[0].token, grant.version > written[0].version) == (True, True)


async def test_metadata_and_state_of_the_largest_size_round_trip(lab) -> None:
    a, b = await lab.host("a"), await lab.host("b")
    key = "\U0001f511" * 128
    metadata = encode_metadata({"text": "\u00e9" * 4000, "x": "y" * 150})
    assert len(metadata.encode()) > 8100
    state = '"' + "\u2603" * 1360 + '"'
    grant = await a.own(key, metadata=metadata)
    grant = await a.renew(grant, state=state)
    assert grant.state == state
    # Written by its own request where it changes, and left alone where it does not.
    grant = await a.renew(grant)
    record = await b.record(key)
    assert (record.metadata, record.state, record.version) == (metadata, state, grant.version)
    (listed,) = await b.leases.list(prefix=key[:3], owner="a", active=True, after=None, limit=10)
    assert listed.metadata == metadata
    await a.leases.release(grant)
    again = await b.own(key, metadata='{"small":1}')
    assert again.state == state
    small = await b.renew(again, state="")
    assert small.state == ""
    record = await a.record(key)
    assert (record.metadata, record.state) == ('{"small":1}', "")


async def test_raw_shows_the_blob_as_it_is(lab) -> None:
    a = await lab.host("a")
    assert list(await a.leases.raw("k")) == []
    grant = await a.own("k")
    (raw,) = await a.leases.raw("k")
    assert raw["lease_state"] == "leased"
    assert raw["etag"]
    assert raw["metadata"]["outlive_token"] == str(grant.token)
    assert raw["metadata"]["outlive_owner"] == a.owner()


async def test_a_foreign_blob_in_the_folder_is_no_lease(lab) -> None:
    a = await lab.host("a")
    await a.own("k")
    await blobs_of(a).create(name_in(a, "k") + ".txt")
    await blobs_of(a).create(name_in(a, "created but never granted"))
    page = await a.leases.list(prefix="", owner=None, active=False, after=None, limit=10)
    assert [record.key for record in page] == ["k"]
    assert list(await a.leases.get("created but never granted")) == []


async def test_a_record_that_somebody_damaged_is_said_to_be(lab) -> None:
    a = await lab.host("a")
    await a.own("k")
    blob = blobs_of(a)._blob(name_in(a, "k"))
    await blob.set_blob_metadata(
        {"outlive_schema": "1", "outlive_token": "many"}, lease=lease_id_of(a.owner())
    )
    with pytest.raises(StoreError, match="changed by another program"):
        await a.leases.get("k")


async def test_closing_ends_what_is_under_way(faulty, proxy) -> None:
    a = await faulty.host("a")
    await a.own("k")
    proxy.black_hole()
    attempt = asyncio.ensure_future(a.attempt("other"))
    await asyncio.to_thread(proxy.wait_for, lambda counters: counters.held > 0)
    await a.driver.close()
    with pytest.raises(StoreUnavailable):
        await attempt


async def test_a_cancelled_attempt_goes_on_before_the_next_one(faulty, proxy) -> None:
    a, b = await faulty.host("a"), await faulty.host("b")
    proxy.delay(0.05)
    attempt = asyncio.ensure_future(a.attempt("k"))
    await asyncio.to_thread(proxy.wait_for, lambda counters: counters.delayed > 2)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    # What the feature does: ask again under the same owner, and give back what there is.
    await a.leases.release(await a.own("k"))
    proxy.pass_through()
    assert not isinstance(await b.attempt("k"), Held)


async def test_a_child_of_a_fork_is_refused(lab, monkeypatch) -> None:
    a = await lab.host("a")
    grant = await a.own("k")
    monkeypatch.setattr(current, "pid", current.pid + 1)
    for call in (a.renew(grant), a.leases.release(grant), a.attempt("k"), a.leases.get("k")):
        with pytest.raises(UsageError, match="forked"):
            await call
    monkeypatch.undo()
    await a.leases.release(grant)


async def test_a_child_of_a_fork_leaves_the_connections_of_its_parent_alone(lab) -> None:
    a = await lab.host("a")
    grant = await a.own("k")
    child = os.fork()
    if child == 0:
        # What an exit handler may do. No event loop runs here, and none is needed.
        try:
            a.driver.close().send(None)
        finally:
            os._exit(0)
    await asyncio.to_thread(os.waitpid, child, 0)
    # On the very connection that was idle when the process was forked.
    await a.renew(grant)
