"""One container: items read, created and replaced, each request by its condition.

Owns how the client library is asked for items. Decides nothing: an item that is missing, exists
already or has changed is an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from outlive.drivers.cosmos.connection import Connection, Document, Hooks, Reply
from outlive.drivers.cosmos.settings import CosmosSettings


class Container:
    """The container that the URL names."""

    def __init__(self, connection: Connection, settings: CosmosSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._items: Any = connection.client.get_database_client(
            settings.database
        ).get_container_client(settings.container)

    async def read(self, identity: str, key: str) -> Document | None:
        """The item, or ``None``. One request unit for up to a kilobyte."""

        async def read(hooks: Hooks) -> Document:
            return await self._items.read_item(identity, partition_key=key, **hooks)

        return (await self._connection.ask(read, write=False)).document

    async def create(self, body: dict[str, Any]) -> Reply:
        """Create the item; ``EXISTS`` if there is one.

        Raises:
            OutcomeUnknown: It may or may not have been created.
        """

        async def create(hooks: Hooks) -> Document:
            return await self._items.create_item(body, **hooks)

        return await self._connection.ask(create, write=True)

    async def replace(self, body: dict[str, Any], etag: str) -> Reply:
        """Replace the item if it still has ``etag``; otherwise ``CHANGED``, or ``MISSING``.

        Raises:
            OutcomeUnknown: It may or may not have been replaced.
        """
        if_match = self._connection.library.if_match

        async def replace(hooks: Hooks) -> Document:
            return await self._items.replace_item(
                body["id"], body, etag=etag, match_condition=if_match, **hooks
            )

        return await self._connection.ask(replace, write=True)

    async def query(
        self,
        text: str,
        parameters: Sequence[Mapping[str, Any]],
        *,
        limit: int,
        wanted: Callable[[Document], bool],
    ) -> list[Document]:
        """The first ``limit`` items of a query that are ``wanted``, over all partitions.

        Pages are fetched until there are enough. Throttled in the middle, it begins anew.
        """

        async def fetch(hooks: Hooks) -> list[Document]:
            found: list[Document] = []
            items = self._items.query_items(
                text, parameters=list(parameters), max_item_count=limit, **hooks
            )
            async for page in items.by_page():
                found += [document async for document in page if wanted(document)]
                if len(found) >= limit:
                    break
            return found[:limit]

        return await self._connection.call(fetch, write=False)

    async def properties(self) -> Reply:
        """What the service knows of the container; ``MISSING`` if there is none."""

        async def read(hooks: Hooks) -> Document:
            return await self._items.read(**hooks)

        return await self._connection.ask(read, write=False)

    async def delete_self(self) -> None:
        """Delete this container; ``MISSING`` is as good."""
        database = self._connection.client.get_database_client(self._settings.database)

        async def delete(hooks: Hooks) -> Document:
            await database.delete_container(self._settings.container, **hooks)
            return {}

        await self._connection.ask(delete, write=True)

    async def create_self(self, partition_path: str, indexing: Mapping[str, Any]) -> None:
        """Create the database and this container where they are missing. Repeatable.

        Others may create them at the same time; that is as good.
        """
        settings, client = self._settings, self._connection.client

        async def create_database(hooks: Hooks) -> Document:
            await client.create_database_if_not_exists(settings.database, **hooks)
            return {}

        async def create_container(hooks: Hooks) -> Document:
            database = client.get_database_client(settings.database)
            await database.create_container_if_not_exists(
                settings.container,
                self._connection.library.partition_key(path=partition_path),
                indexing_policy=dict(indexing),
                offer_throughput=settings.throughput,
                **hooks,
            )
            return {}

        await self._connection.ask(create_database, write=False)
        await self._connection.ask(create_container, write=False)
