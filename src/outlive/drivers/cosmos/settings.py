"""What the URL and the options ask for, checked once. Never shows a key.

Owns the names of the driver's options and their defaults.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from outlive.azure import ACCESS_OPTIONS, COSMOS, AzureAccess, read_access, read_proxy
from outlive.errors import ConfigurationError
from outlive.model.driver_options import read_number, read_seconds, read_switch
from outlive.model.location import Location

OPTIONS = ACCESS_OPTIONS | {
    "throughput",
    "request_timeout",
    "connect_timeout",
    "fast_takeover",
    "max_server_skew",
}

DATABASE = "DistributedLeasing"
CONTAINER = "Leases"

# Cosmos DB allows no more in a name, and none of these characters.
_NAME = re.compile(r"[^/\\?#]{1,255}")

# Long enough for a throttled request to be sent again a few times, short enough that nobody
# believes a dead account.
_REQUEST_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 5.0
_TIMEOUT_MAX_S = 600.0

# What the clocks of two servers of one account may differ by, with the whole second to which both
# `_ts` and `Date` are rounded. Azure promises no bound; measured differences are below a second.
_MAX_SERVER_SKEW_S = 5.0
_MAX_SERVER_SKEW_MIN_S = 1.0

# The least that a container can be given, and what the service allows without a support request.
_THROUGHPUT_MIN = 400
_THROUGHPUT_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CosmosSettings:
    """The settings of one driver; ``repr`` shows no secret.

    ``throughput`` of ``None`` leaves it to the account, which is what a serverless one demands.
    """

    access: AzureAccess
    database: str
    container: str
    shown: str
    throughput: int | None
    request_timeout_s: float
    connect_timeout_s: float
    proxy: str | None = field(repr=False)
    fast_takeover: bool
    max_server_skew_s: float

    @property
    def discovery(self) -> bool:
        """Whether to ask the account for its regions and follow a failover.

        An emulator names addresses that do not lead to it.
        """
        parts = urlsplit(self.access.endpoint)
        return parts.scheme == "https" and parts.hostname not in {"localhost", "127.0.0.1", "::1"}


def read_settings(location: Location, options: Mapping[str, Any]) -> CosmosSettings:
    """The settings of ``location`` and ``options``; arguments win over the URL's query.

    Raises:
        ConfigurationError: A value is not one the driver can use.
    """
    given: dict[str, Any] = {**location.options, **options}
    account = urlsplit(location.url).hostname or ""
    database, container = _names(location.path)
    access = read_access(COSMOS, account, given)
    if access.signature is not None:
        raise ConfigurationError(
            "Azure Cosmos DB does not support shared access signatures: give account_key, or a "
            "connection string with AccountKey, or neither to use the identity of the process"
        )
    return CosmosSettings(
        access=access,
        database=database,
        container=container,
        shown=location.shown,
        throughput=_throughput(given),
        request_timeout_s=read_seconds(
            given, "request_timeout", _REQUEST_TIMEOUT_S, 0.05, _TIMEOUT_MAX_S
        ),
        connect_timeout_s=read_seconds(
            given, "connect_timeout", _CONNECT_TIMEOUT_S, 0.05, _TIMEOUT_MAX_S
        ),
        proxy=read_proxy(given),
        fast_takeover=read_switch(given, "fast_takeover") is not False,
        max_server_skew_s=read_seconds(
            given, "max_server_skew", _MAX_SERVER_SKEW_S, _MAX_SERVER_SKEW_MIN_S, _TIMEOUT_MAX_S
        ),
    )


def _names(path: str) -> tuple[str, str]:
    parts = [part for part in path.split("/") if part]
    if len(parts) > 2:  # noqa: PLR2004 - a database and a container
        raise ConfigurationError(
            "the URL has too many parts: write cosmos://account/database/container"
        )
    for part in parts:
        if _NAME.fullmatch(part) is None or part.endswith(" "):
            raise ConfigurationError(
                f"{part!r} is not a valid name of a database or container: use 1 to 255 "
                "characters, none of them / \\ ? #, and no space at the end"
            )
    database = parts[0] if parts else DATABASE
    return database, parts[1] if len(parts) > 1 else CONTAINER


def _throughput(given: Mapping[str, Any]) -> int | None:
    if given.get("throughput") is None:
        return None
    return int(read_number(given, "throughput", _THROUGHPUT_MIN, _THROUGHPUT_MIN, _THROUGHPUT_MAX))
