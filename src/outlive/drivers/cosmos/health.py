"""What ``check`` looks at: the account, the container, its clock, and what it has cost so far.

Only reads. Every line says what was found, and what to do where something is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlive.clock import Clock
from outlive.drivers.cosmos.connection import Connection
from outlive.drivers.cosmos.container import Container
from outlive.drivers.cosmos.provisioning import PARTITION_PATH, Account
from outlive.drivers.cosmos.settings import CosmosSettings
from outlive.ports.driver import Finding

# The service tells its clock to the second; a request takes part of another.
_CLOCK_TOLERANCE_S = 5.0

# Reads may return an item as it was before. A stale ETag is refused: it costs time, not safety.
_STALE_READS = frozenset({"Eventual", "ConsistentPrefix", "BoundedStaleness"})


async def look(
    connection: Connection,
    container: Container,
    settings: CosmosSettings,
    account: Account,
    clock: Clock,
) -> Sequence[Finding]:
    """The findings of ``outlive doctor``."""
    reply = await container.properties()
    if reply.document is None:
        return [
            Finding(
                level="error",
                what=f"container {settings.database}/{settings.container} does not exist",
                advice="connect again: a host creates the container if it has the rights",
            )
        ]
    paths = ", ".join(reply.document.get("partitionKey", {}).get("paths", []))
    findings = [
        Finding(
            level="ok" if paths == PARTITION_PATH else "error",
            what=f"container {settings.database}/{settings.container}, partitioned by {paths}",
            advice="" if paths == PARTITION_PATH else f"leases need {PARTITION_PATH}",
        ),
        _regions(account),
        _consistency(account),
        _clock(connection, clock),
        _takeover(settings),
        Finding(
            level="ok",
            what=f"this connection has used {connection.request_units:.1f} request units in "
            f"{connection.requests} requests",
            advice="the metric outlive_store_spent_total counts them",
        ),
    ]
    if reply.document.get("defaultTtl") is not None:
        findings.append(
            Finding(
                level="ok",
                what="the container deletes items after a default ttl; leases are exempt (ttl -1)",
            )
        )
    return findings


def _regions(account: Account) -> Finding:
    if account.multi_write:
        return Finding(
            level="error",
            what="the account writes in several regions: two owners may both acquire one lease",
            advice="az cosmosdb update --enable-multiple-write-locations false",
        )
    region = account.write_region or "one region"
    return Finding(level="ok", what=f"the account writes in {region} only")


def _consistency(account: Account) -> Finding:
    if account.consistency in _STALE_READS:
        return Finding(
            level="ok",
            what=f"consistency {account.consistency}: reads may be late, writes are judged by ETag",
            advice="with Session or Strong, waiters notice a release sooner",
        )
    return Finding(level="ok", what=f"consistency {account.consistency or 'unknown'}")


def _clock(connection: Connection, clock: Clock) -> Finding:
    ahead_s = clock.now().timestamp() - connection.service_s
    if abs(ahead_s) <= _CLOCK_TOLERANCE_S:
        return Finding(
            level="ok", what="the clock of this machine agrees with the clock of the service"
        )
    return Finding(
        level="warning",
        what=f"the clock of this machine differs from the clock of the service by {ahead_s:.0f} s",
        advice="times in listings look wrong and requests may be refused; leases are not affected",
    )


def _takeover(settings: CosmosSettings) -> Finding:
    if settings.fast_takeover:
        return Finding(
            level="ok",
            what="the clocks of the service decide when the lease of a silent owner expires, with "
            f"{settings.max_server_skew_s:g} s of margin",
        )
    return Finding(
        level="ok",
        what="a silent owner is observed for one ttl before another host acquires its lease",
        advice="without fast_takeover=false the clocks of the service decide, and sooner",
    )
