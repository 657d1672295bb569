"""The batches of the lease store: arrays into a statement, rows back to those who asked.

Owns which statement a batch goes through. A request without a row in the answer gets ``None``:
its row is locked by somebody, or refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outlive.drivers.postgres import lease_sql, lone_sql
from outlive.drivers.postgres.connections import Connections
from outlive.drivers.postgres.settings import PostgresSettings
from outlive.model.lease import HISTORY_MAX, AcquireRequest, Grant
from outlive.model.turns import RING_DEPTH

# What turns a batch statement into one that waits; for a single row, outside any batch.
_SKIPPING = " SKIP LOCKED"


@dataclass(frozen=True, slots=True)
class Renewal:
    """One renewal of a batch."""

    grant: Grant
    ttl_us: int
    state: str | None


class LeaseBatches:
    """Batches of one namespace."""

    def __init__(
        self, connections: Connections, settings: PostgresSettings, namespace: str, channel: str
    ) -> None:
        self._connections = connections
        self._namespace = namespace
        self._channel = channel
        self._acquire_sql = settings.sql(lease_sql.ACQUIRE)
        self._renew_sql = settings.sql(lease_sql.RENEW)
        self._release_sql = settings.sql(lease_sql.RELEASE)
        self._acquire_free_sql = settings.sql(lone_sql.ACQUIRE_FREE)
        self._release_quiet_sql = settings.sql(lone_sql.RELEASE_QUIET)
        # Whether the last lone attempt met a free key; the next one is likely to.
        self._expects_free = True

    async def acquire(self, batch: Sequence[AcquireRequest]) -> Sequence[Any]:
        """One attempt each; a row of ``ACQUIRE`` or ``ACQUIRE_FREE``."""
        if len(batch) > 1:
            return await self._acquire_many(batch)
        (request,) = batch
        if self._expects_free and request.waiter is None:
            rows = await self._connections.fetch(
                self._acquire_free_sql,
                self._namespace,
                request.key,
                request.owner,
                request.host,
                request.ttl_us,
                request.metadata,
                write=True,
                settles=True,
            )
            if rows:
                return rows
        (row,) = await self._acquire_many(batch)
        self._expects_free = row is not None and row["outcome"] == "granted" and row["token"] > 1
        return [row]

    async def _acquire_many(self, batch: Sequence[AcquireRequest]) -> Sequence[Any]:
        rows = await self._connections.fetch(
            self._acquire_sql,
            self._namespace,
            [request.key for request in batch],
            [request.owner for request in batch],
            [request.host for request in batch],
            [request.ttl_us for request in batch],
            [request.metadata for request in batch],
            [request.waiter or 0 for request in batch],
            HISTORY_MAX,
            write=True,
            settles=True,
        )
        outcomes: list[Any] = [None] * len(batch)
        first: dict[str, Any] = {}
        for row in rows:
            if row["n"]:
                outcomes[row["n"] - 1] = row
            else:
                first[row["key"]] = row
        if first:
            for index, request in enumerate(batch):
                if outcomes[index] is None:
                    outcomes[index] = first.get(request.key)
        return outcomes

    async def renew(self, batch: Sequence[Renewal], *, wait: bool = False) -> Sequence[Any]:
        """One renewal each; ``wait`` stands in line for locked rows."""
        text = self._renew_sql
        rows = await self._connections.fetch(
            text.replace(_SKIPPING, "") if wait else text,
            self._namespace,
            [renewal.grant.key for renewal in batch],
            [renewal.grant.slot for renewal in batch],
            [renewal.grant.owner for renewal in batch],
            [renewal.grant.token for renewal in batch],
            [renewal.ttl_us for renewal in batch],
            [renewal.state for renewal in batch],
            write=True,
        )
        return _by_number(rows, len(batch))

    async def release(self, batch: Sequence[Grant], *, wait: bool = False) -> Sequence[Any]:
        """One release each; ``wait`` stands in line for locked rows."""
        if len(batch) == 1 and not wait:
            (grant,) = batch
            rows = await self._connections.fetch(
                self._release_quiet_sql,
                self._namespace,
                grant.key,
                grant.slot,
                grant.owner,
                grant.token,
                write=True,
            )
            if rows:
                return rows
        text = self._release_sql
        rows = await self._connections.fetch(
            text.replace(_SKIPPING, "") if wait else text,
            self._namespace,
            [grant.key for grant in batch],
            [grant.slot for grant in batch],
            [grant.owner for grant in batch],
            [grant.token for grant in batch],
            self._channel,
            RING_DEPTH,
            write=True,
        )
        return _by_number(rows, len(batch))


def _by_number(rows: Sequence[Any], count: int) -> list[Any]:
    outcomes: list[Any] = [None] * count
    for row in rows:
        outcomes[row["n"] - 1] = row
    return outcomes
