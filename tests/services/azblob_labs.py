"""Labs on Azurite for tests of the bad day: through a proxy, by signature, with a wrong key."""

from __future__ import annotations

import itertools
from typing import Any

from outlive.drivers.azblob import AzureBlobFactory
from outlive.testing.conformance import Lab
from tests.services.azurite import ACCOUNT, AzuriteServer

_numbers = itertools.count(1)


class AzureBlobLabs:
    """Makes labs, each with namespaces of its own, and closes them all."""

    def __init__(self) -> None:
        self._labs: list[Lab] = []

    def make(
        self,
        server: AzuriteServer,
        *,
        port: int | None = None,
        container: str = "bad-days",
        **more: Any,
    ) -> Lab:
        """A lab on ``server``, reached through ``port`` if one is given; ``more`` are options."""
        options: dict[str, Any] = {
            "endpoint": server.endpoint_at(port or server.port),
            "account_key": server.key,
            "request_timeout": 5,
        }
        lab = Lab(
            AzureBlobFactory(),
            f"azblob://{ACCOUNT}/{container}",
            options={name: value for name, value in (options | more).items() if value is not None},
            prefix=f"bad{next(_numbers)}-",
            expiry="broken",
        )
        self._labs.append(lab)
        return lab

    async def close(self) -> None:
        """Close every driver of every lab."""
        for lab in self._labs:
            await lab.close()
