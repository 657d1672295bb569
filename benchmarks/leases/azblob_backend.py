"""Azure Blob Storage, ready to be measured: the emulator, beside the client library by itself.

Owns the emulator and its containers. The floor sends what the driver sends for a grant and a
release, five requests, one after the other, and decides nothing. No bar is set: both are waiting
for the same server, and an emulator says nothing about the service.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import outlive
from benchmarks.leases.backend import TTL_S, Absent, Backend, Count, Effort, Floor
from benchmarks.leases.uncontended import pairs
from benchmarks.report import Row
from benchmarks.rounds import alternate

if TYPE_CHECKING:
    from tests.services.azurite import AzuriteServer

NAME = "uncontended"
_KEY = "uncontended"

# A pair takes tens of milliseconds, so that a round of the other backends' length would hold two.
_ROUND_S = 0.4
_ROUNDS_MAX = 41


async def measure(backend: Backend, effort: Effort) -> list[Row]:
    """Operations per second of one coroutine on one key that nobody else wants."""
    url = backend.new_store()
    async with outlive.connect(url, name="bench") as host, backend.floor(url) as floor:
        outcome = await alternate(
            lambda: pairs(host, _KEY, _ROUND_S),
            lambda: floor.pairs(_KEY, _ROUND_S),
            rounds=min(effort.rounds, _ROUNDS_MAX),
        )
    typical = outcome.typical
    return [
        Row(
            name=f"{backend.name}/{NAME}",
            unit="ops/s",
            ours=typical.ours,
            floor=typical.floor,
            bar=backend.bars.get(NAME),
        )
    ]


class AzureBlobBackend:
    """Containers of one emulator."""

    name = "azblob"
    bars: Mapping[str, float] = {}

    def __init__(self, server: AzuriteServer) -> None:
        self._server = server
        self._numbers = itertools.count(1)

    @property
    def version(self) -> str:
        """The version of the emulator."""
        return self._server.version

    def new_store(self) -> str:
        """The URL of a container that is not there yet."""
        return self._server.url_of(f"bench-{next(self._numbers)}")

    @asynccontextmanager
    async def floor(self, url: str) -> AsyncGenerator[Floor]:
        """Open the client library on the same container."""
        from azure.storage.blob.aio import ContainerClient

        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        credential = {"account_name": parts.netloc, "account_key": query["account_key"]}
        client = ContainerClient(
            query["endpoint"],
            parts.path.strip("/"),
            credential=credential,
            use_env_settings=False,
        )
        async with client:
            raw = _Raw(client)
            yield Floor(pairs=raw.pairs, renewals=raw.renewals)

    @asynccontextmanager
    async def counting(self, url: str) -> AsyncGenerator[Callable[[], Count]]:
        """Count replies; each request has one, and is its own transaction."""
        from outlive.drivers.azblob.service_clock import ServiceClock

        del url
        count, observe = Count(), ServiceClock.observe

        def counted(clock: ServiceClock, date: str | None) -> None:
            count.statements += 1
            count.transactions += 1
            observe(clock, date)

        ServiceClock.observe = counted
        try:
            yield lambda: Count(count.statements, count.transactions)
        finally:
            ServiceClock.observe = observe


class _Raw:
    """The requests of a grant, a release and a renewal, by hand."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def pairs(self, key: str, seconds: float) -> float:
        """Lease and free a blob by turns; operations per second."""
        from azure.core import MatchConditions

        blob = self._client.get_blob_client(f"floor-{key}")
        await blob.upload_blob(b"", overwrite=True)
        unchanged = MatchConditions.IfNotModified
        metadata = {"owner": "bench/1", "token": "1", "ttl_us": str(round(TTL_S * 1e6))}

        async def pair() -> None:
            etag = (await blob.get_blob_properties()).etag
            lease = await blob.acquire_lease(round(TTL_S))
            written = await blob.set_blob_metadata(
                metadata, lease=lease, etag=etag, match_condition=unchanged
            )
            await blob.set_blob_metadata(
                metadata, lease=lease, etag=written["etag"], match_condition=unchanged
            )
            await lease.release()

        return 2 * await _rate(pair, seconds)

    async def renewals(self, seconds: float) -> float:
        """Renew one lease and rewrite its metadata; renewals per second."""
        blob = self._client.get_blob_client("floor-renewals")
        await blob.upload_blob(b"", overwrite=True)
        lease = await blob.acquire_lease(round(TTL_S))

        async def renewal() -> None:
            await lease.renew()
            await blob.set_blob_metadata({"owner": "bench/1"}, lease=lease)

        try:
            return await _rate(renewal, seconds)
        finally:
            await lease.release()


async def _rate(step: Callable[[], Awaitable[None]], seconds: float) -> float:
    started, done = time.perf_counter(), 0
    while time.perf_counter() < started + seconds:
        await step()
        done += 1
    return done / (time.perf_counter() - started)


@contextmanager
def azblob() -> Iterator[AzureBlobBackend]:
    """A backend on a private emulator.

    Raises:
        Absent: It cannot be had.
    """
    try:
        from tests.services import Unavailable
        from tests.services.azurite import AzuriteServer
    except ImportError as error:
        raise Absent("no private emulator without the tests' folder") from error
    try:
        server = AzuriteServer().start()
    except Unavailable as error:
        raise Absent(str(error)) from error
    try:
        yield AzureBlobBackend(server)
    finally:
        server.stop()
