"""Azure Cosmos DB, ready to be measured: the emulator, beside its client library alone.

Owns the emulator and names containers of it. The floor replaces one item by its ETag, once for a
grant and once for a release, as the driver does for a key it saw last. There is no bar: both wait
for the same emulator, which says nothing about the service.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from benchmarks.leases.backend import Absent, Count, Floor

if TYPE_CHECKING:
    from tests.services.cosmos import CosmosEmulator


class CosmosBackend:
    """Containers of one emulator."""

    name = "cosmos"
    bars: Mapping[str, float] = {}

    def __init__(self, emulator: CosmosEmulator) -> None:
        self._emulator = emulator

    @property
    def version(self) -> str:
        """The version of the emulator."""
        return self._emulator.version

    def new_store(self) -> str:
        """The URL of a container that is not there yet."""
        return self._emulator.new_url()

    @asynccontextmanager
    async def floor(self, url: str) -> AsyncGenerator[Floor]:
        """Open the client library on the same container, which a host has created."""
        from azure.core.pipeline.transport import AioHttpTransport
        from azure.cosmos.aio import CosmosClient

        _, database, container = urlsplit(url).path.split("/")
        async with CosmosClient(
            self._emulator.endpoint,
            self._emulator.key,
            enable_endpoint_discovery=False,
            # As the driver has it: otherwise each request looks for a proxy and a password.
            transport=AioHttpTransport(use_env_settings=False),
        ) as client:
            raw = _Raw(client.get_database_client(database).get_container_client(container))
            yield Floor(pairs=raw.pairs, renewals=raw.renewals)

    @asynccontextmanager
    async def counting(self, url: str) -> AsyncGenerator[Callable[[], Count]]:
        """Nothing is counted here: the driver's own tests hold it to its requests."""
        del url
        yield Count


class _Raw:
    """Replaces of one item, each on the condition of the last."""

    def __init__(self, container: Any) -> None:
        self._container = container

    async def pairs(self, key: str, seconds: float) -> float:
        """Write an owner and take it away by turns; operations per second."""
        return await self._replace(f"floor-{key}", ("bench/1", None), seconds)

    async def renewals(self, seconds: float) -> float:
        """Write the same owner again and again; renewals per second."""
        return await self._replace("floor-renewals", ("bench/1",), seconds)

    async def _replace(self, name: str, owners: tuple[str | None, ...], seconds: float) -> float:
        from azure.core import MatchConditions

        body: dict[str, Any] = {"id": name, "leaseKey": name, "ownerId": None, "version": 0}
        item = await self._container.upsert_item(body)
        started, done = time.perf_counter(), 0
        while time.perf_counter() < started + seconds:
            for owner in owners:
                done += 1
                body |= {"ownerId": owner, "version": done}
                item = await self._container.replace_item(
                    name,
                    body,
                    etag=item["_etag"],
                    match_condition=MatchConditions.IfNotModified,
                )
        return done / (time.perf_counter() - started)


@contextmanager
def cosmos() -> Iterator[CosmosBackend]:
    """A backend on a private emulator.

    Raises:
        Absent: It cannot be had.
    """
    try:
        import azure.cosmos

        from tests.services import Unavailable
        from tests.services.cosmos import CosmosEmulator
    except ImportError as error:
        raise Absent(f"{error.name} is not there") from error
    del azure
    try:
        emulator = CosmosEmulator().start()
    except Unavailable as error:
        raise Absent(str(error)) from error
    try:
        yield CosmosBackend(emulator)
    finally:
        emulator.stop()
