"""Reading leases: one by its id, many by a query, each noted as seen.

Owns the text of the query. What is read here is observed as well: whoever looks at a key begins to
count how long its owner has been silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.clock import Clock
from outlive.drivers.cosmos.connection import Connection, Document
from outlive.drivers.cosmos.container import Container
from outlive.drivers.cosmos.item_ids import item_id
from outlive.drivers.cosmos.items import read_item, record_of
from outlive.drivers.cosmos.observation import Observations, Sighting
from outlive.model.lease import LIST_LIMIT_MAX, LeaseRecord

_ALL = "SELECT * FROM c WHERE c.namespace = @namespace"
_PREFIX = " AND STARTSWITH(c.leaseKey, @prefix)"
# Ids are in the order of their keys, see `item_ids`.
_AFTER = " AND c.id > @after"
# A host, or a whole owner: a host and the id of its lease.
_OWNER = " AND (c.ownerId = @owner OR (c.ownerId = @host AND c.leaseId = @lease))"
_OWNED = " AND NOT IS_NULL(c.ownerId)"
_ORDER = " ORDER BY c.id"


class LeaseReader:
    """Reads the leases of one namespace."""

    def __init__(
        self,
        connection: Connection,
        container: Container,
        observations: Observations,
        clock: Clock,
        namespace: str,
    ) -> None:
        self._connection = connection
        self._container = container
        self._observations = observations
        self._clock = clock
        self._namespace = namespace

    async def look(self, key: str) -> Sighting | None:
        """The item of ``key`` as it is now, seen; ``None`` if there is none."""
        document = await self.raw(key)
        if document is None:
            self._observations.forget(key)
            return None
        return self._observations.see(read_item(document), self._connection.service_s)

    async def raw(self, key: str) -> Document | None:
        """The item of ``key`` as the service returned it."""
        return await self._container.read(item_id(self._namespace, key), key)

    def record(self, sighting: Sighting) -> LeaseRecord:
        """What people are shown of it."""
        remaining_s = self._observations.remaining_s(sighting)
        return record_of(sighting.item, remaining_s, self._clock.now())

    async def page(
        self, *, prefix: str, owner: str | None, active: bool, after: str | None, limit: int
    ) -> Sequence[LeaseRecord]:
        """A page of records in key order; see the port."""
        text, values = _ALL, {"@namespace": self._namespace}
        if prefix:
            text, values["@prefix"] = text + _PREFIX, prefix
        if after is not None:
            text, values["@after"] = text + _AFTER, item_id(self._namespace, after)
        if owner is not None:
            text, values["@owner"] = text + _OWNER, owner
            values["@host"], _, values["@lease"] = owner.rpartition("/")
        if active:
            text += _OWNED
        records: dict[str, LeaseRecord] = {}

        def wanted(document: Document) -> bool:
            item = read_item(document)
            sighting = self._observations.see(item, self._connection.service_s, glance=True)
            record = records[item.key] = self.record(sighting)
            return record.active or not active

        parameters: list[dict[str, Any]] = [
            {"name": name, "value": value} for name, value in values.items()
        ]
        found = await self._container.query(
            text + _ORDER, parameters, limit=min(limit, LIST_LIMIT_MAX), wanted=wanted
        )
        return [records[document["leaseKey"]] for document in found]
