"""The client library: imported on demand, and opened the way this driver needs it.

Owns what is asked of azure-cosmos, azure-core and aiohttp. Their own repetition of requests is
turned off: only the driver knows how much time a caller has, and that a write which may have been
applied must be looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from outlive.azure import COSMOS, missing_library
from outlive.drivers.cosmos.settings import CosmosSettings

_PROXIED = ("http", "https")


class Library(NamedTuple):
    """What is used of the client library."""

    client: Any
    policy: Any
    transport: Any
    partition_key: Any
    if_match: Any


def import_library() -> Library:
    """The client library, imported on first use.

    Raises:
        ConfigurationError: It is not installed.
    """
    try:
        from azure.core import MatchConditions
        from azure.core.pipeline.transport import AioHttpTransport
        from azure.cosmos import PartitionKey
        from azure.cosmos.aio import CosmosClient
        from azure.cosmos.documents import ConnectionPolicy
    except ImportError:
        raise missing_library(COSMOS, "azure-cosmos") from None
    return Library(
        client=CosmosClient,
        policy=ConnectionPolicy,
        transport=AioHttpTransport,
        partition_key=PartitionKey,
        if_match=MatchConditions.IfNotModified,
    )


def open_client(
    library: Library, settings: CosmosSettings, credential: Any, note: Callable[[Any], None]
) -> Any:
    """A client of the account, not connected yet; ``note`` is told every reply."""
    policy: Any = library.policy()
    # Zero as an argument is taken for "not given"; throttled requests would be repeated for half a
    # minute.
    policy.RetryOptions._max_retry_attempt_count = 0  # noqa: SLF001
    return library.client(
        settings.access.endpoint,
        credential,
        connection_policy=policy,
        retry_total=0,
        retry_connect=0,
        retry_read=0,
        retry_status=0,
        connection_timeout=settings.connect_timeout_s,
        read_timeout=settings.request_timeout_s,
        enable_endpoint_discovery=settings.discovery,
        # The environment of the process is not ours to read; a proxy is named by an option.
        transport=library.transport(use_env_settings=False),
        proxies={} if settings.proxy is None else dict.fromkeys(_PROXIED, settings.proxy),
        raw_response_hook=note,
    )
