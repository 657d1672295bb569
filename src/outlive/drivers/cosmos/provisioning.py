"""What must hold before a lease is granted here: looked at once, when a host connects.

Owns the database and the container, which it creates where they are missing and the caller may, and
the probe, an item that no lease uses. Refuses an account on which a conditional write is no proof.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from outlive.drivers.cosmos.container import Container
from outlive.drivers.cosmos.items import SCHEMA
from outlive.drivers.cosmos.settings import CosmosSettings
from outlive.drivers.cosmos.translate import CHANGED, EXISTS, MISSING, status_of
from outlive.errors import ConfigurationError, SchemaMismatch, StoreUnavailable

PARTITION_PATH = "/leaseKey"

_FORBIDDEN = 403

# Only what queries ask for is indexed: each indexed property makes every write dearer. The id is
# indexed by the service in any case.
INDEXING: dict[str, Any] = {
    "indexingMode": "consistent",
    "automatic": True,
    "includedPaths": [
        {"path": "/namespace/?"},
        {"path": "/leaseKey/?"},
        {"path": "/ownerId/?"},
        {"path": "/leaseId/?"},
    ],
    "excludedPaths": [{"path": "/*"}],
}

# Without a namespace, so that no listing shows it.
_PROBE: dict[str, Any] = {"id": "outlive-probe", "leaseKey": "outlive-probe", "ttl": -1}

# An ETag that no item ever has.
_STALE_ETAG = '"00000000-0000-0000-0000-000000000000"'

# A container that was just created may be unknown to the next request for a moment.
_CREATED_TRIES = 3


class Account(NamedTuple):
    """What an account says of itself; nothing, where nobody asked."""

    write_region: str = ""
    multi_write: bool = False
    consistency: str = ""


def read_account(account: Any) -> Account:
    """The facts that matter, from what the client library returned."""
    regions: list[dict[str, str]] = account.WritableLocations
    policy: dict[str, str] = account.ConsistencyPolicy or {}
    return Account(
        write_region=regions[0].get("name", "") if regions else "",
        # The library keeps it to itself, and nothing else tells.
        multi_write=bool(account._EnableMultipleWritableLocations),  # noqa: SLF001
        consistency=policy.get("defaultConsistencyLevel", ""),
    )


async def prepare(
    container: Container, settings: CosmosSettings, account: Account, *, create: bool
) -> None:
    """Check the account and the container, and, with ``create``, make what is missing.

    Raises:
        ConfigurationError: Leases would not be safe here, or the caller may not do what is needed.
        SchemaMismatch: There is no container, and ``create`` is false.
        StoreUnavailable: The account does not answer.
    """
    if account.multi_write:
        raise ConfigurationError(
            f"{settings.shown} writes in several regions, so two owners can acquire one lease: "
            "disable multi-region writes (az cosmosdb update --enable-multiple-write-locations "
            "false), or use another account for leases"
        )
    properties = await _container_properties(container, settings, create=create)
    paths = list(properties.get("partitionKey", {}).get("paths", []))
    if paths != [PARTITION_PATH]:
        raise ConfigurationError(
            f"container {settings.container!r} is partitioned by {', '.join(paths) or 'nothing'}, "
            f"and leases need {PARTITION_PATH}: name another container in the URL, or create one "
            f"({_container_command(settings)})"
        )
    await _probe(container, settings, create=create)


async def _container_properties(
    container: Container, settings: CosmosSettings, *, create: bool
) -> Any:
    for _ in range(_CREATED_TRIES):
        reply = await container.properties()
        if reply.document is not None:
            return reply.document
        if not create:
            raise SchemaMismatch(
                f"there is no container {settings.container!r} in database {settings.database!r} "
                f"at {settings.shown}: is the URL right? `outlive provision cosmos` creates both",
                found=0,
                expected=SCHEMA,
            )
        try:
            await container.create_self(PARTITION_PATH, INDEXING)
        except ConfigurationError as error:
            if not _is_forbidden(error):
                raise
            raise ConfigurationError(
                f"database {settings.database!r} or container {settings.container!r} is missing, "
                "and this identity may not create it (no role of the data plane may, Cosmos DB "
                "Built-in Data Contributor included): create it once by hand: "
                f"{_commands(settings)}"
            ) from error
    raise StoreUnavailable(
        f"container {settings.container!r} was created but is not available yet; connect again"
    )


async def remove(container: Container, settings: CosmosSettings) -> None:
    """Delete the container, with all leases in it. The database stays.

    Raises:
        ConfigurationError: The caller may not do it.
    """
    try:
        await container.delete_self()
    except ConfigurationError as error:
        if not _is_forbidden(error):
            raise
        raise ConfigurationError(
            f"this identity may not delete container {settings.container!r}: "
            f"{_container_command(settings, 'delete')}"
        ) from error


def _is_forbidden(error: ConfigurationError) -> bool:
    return error.__cause__ is not None and status_of(error.__cause__) == _FORBIDDEN


async def _probe(container: Container, settings: CosmosSettings, *, create: bool) -> None:
    """Make sure that a stale ETag is refused. It changes nothing where the probe exists."""
    reply = await container.replace(dict(_PROBE), _STALE_ETAG)
    if reply.status == MISSING:
        if not create:
            return
        created = await container.create(dict(_PROBE))
        if created.document is not None or created.status == EXISTS:
            reply = await container.replace(dict(_PROBE), _STALE_ETAG)
    if reply.status != CHANGED:
        raise ConfigurationError(
            f"{settings.shown} accepts a write with a stale ETag (status {reply.status}, not "
            f"{CHANGED}), so leases would not be safe: this is not Azure Cosmos DB for NoSQL, or "
            "a proxy drops the If-Match header"
        )


def _commands(settings: CosmosSettings) -> str:
    database = (
        "az cosmosdb sql database create --account-name ACCOUNT --resource-group GROUP "
        f"--name {settings.database}"
    )
    return f"{database} && {_container_command(settings)}"


def _container_command(settings: CosmosSettings, verb: str = "create") -> str:
    return (
        f"az cosmosdb sql container {verb} --account-name ACCOUNT --resource-group GROUP "
        f"--database-name {settings.database} --name {settings.container}"
        + (f" --partition-key-path {PARTITION_PATH}" if verb == "create" else "")
    )
