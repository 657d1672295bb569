"""What the URL and the options ask for, checked once. Never shows a secret.

Pure. Owns the names of the driver's options; those that say who asks are shared with the other
Azure driver.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from outlive.azure import ACCESS_OPTIONS, BLOB, AzureAccess, read_access, read_proxy
from outlive.errors import ConfigurationError
from outlive.model.driver_options import read_seconds
from outlive.model.location import Location

OPTIONS = ACCESS_OPTIONS | {"request_timeout", "connect_timeout"}

# Azure's rules for containers: 3 to 63 lower-case letters, digits and single hyphens.
_CONTAINER = re.compile(r"(?=.{3,63}$)[a-z0-9]+(-[a-z0-9]+)*")

# Azure answers in milliseconds and gives up by itself after 30 s. Ten are long enough for a busy
# partition and short enough that a renewal of the shortest lease, 15 s, is not lost to one reply.
_REQUEST_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 5.0
_TIMEOUT_MIN_S, _TIMEOUT_MAX_S = 0.05, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureBlobSettings:
    """The settings of one driver; ``repr`` shows no secret."""

    access: AzureAccess
    container: str
    request_timeout_s: float
    connect_timeout_s: float
    proxy: str | None = field(repr=False)

    @property
    def shown(self) -> str:
        """The container's address, for people."""
        return f"{self.access.endpoint.rstrip('/')}/{self.container}"


def read_settings(location: Location, options: dict[str, Any]) -> AzureBlobSettings:
    """The settings of ``location`` and ``options``; arguments win over the URL's query.

    Raises:
        ConfigurationError: A value is not one the driver can use.
    """
    parts = urlsplit(location.url)
    if "@" in parts.netloc:
        raise ConfigurationError(
            "an azblob:// URL must not contain a user or a password; give account_key or "
            "connection_string as an option"
        )
    container = location.path.strip("/")
    if _CONTAINER.fullmatch(container) is None:
        raise ConfigurationError(
            f"{container!r} is not a valid container name: write azblob://ACCOUNT/CONTAINER, "
            "with 3 to 63 characters: a-z, 0-9 and single hyphens"
        )
    given: dict[str, Any] = {**location.options, **options}
    access = read_access(BLOB, parts.netloc, given)
    if access.key is not None and not access.account:
        raise ConfigurationError(
            "account_key needs the name of its account: write azblob://ACCOUNT/CONTAINER"
        )
    return AzureBlobSettings(
        access=access,
        container=container,
        request_timeout_s=read_seconds(
            given, "request_timeout", _REQUEST_TIMEOUT_S, _TIMEOUT_MIN_S, _TIMEOUT_MAX_S
        ),
        connect_timeout_s=read_seconds(
            given, "connect_timeout", _CONNECT_TIMEOUT_S, _TIMEOUT_MIN_S, _TIMEOUT_MAX_S
        ),
        proxy=read_proxy(given),
    )
