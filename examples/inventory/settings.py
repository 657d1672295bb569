"""Where the service runs and how long things last, from INVENTORY_* variables alone."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

PREFIX = "INVENTORY_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What holds for one instance. Durations are seconds."""

    # Where the stock is: sqlite:///… or postgresql://….
    database: str = field(default="sqlite:///inventory.db", repr=False)
    # Where the leases are: any store of Outlive; by default the same database.
    leases: str = field(default="", repr=False)
    instance: str = field(default_factory=socket.gethostname)
    host: str = "127.0.0.1"
    port: int = 8000
    # Products to begin with: PROD-001=100,PROD-002=50. One that is there stays as it is.
    stock: str = ""

    reserve_ttl: float = 30.0
    release_ttl: float = 15.0
    reconcile_ttl: float = 120.0
    reconcile_every: float = 300.0
    # How long a reservation keeps its stock without being used.
    reservation_life: float = 1800.0
    # How long a request waits for a product that others are at; a client's patience.
    patience: float = 5.0
    # What a reservation does besides writing, such as asking a payment service.
    work: float = 0.0

    @property
    def leases_url(self) -> str:
        """The store of the leases."""
        return self.leases or self.database

    @property
    def is_guarded(self) -> bool:
        """Whether stock and leases share a database, so that a guard protects the writes."""
        return self.leases_url == self.database


def load(environ: Mapping[str, str]) -> Settings:
    """The settings that ``environ`` says.

    Raises:
        ValueError: A variable is unknown, or a value is no number where one is needed.
    """
    known = {PREFIX + name.upper() for name in Settings.__slots__}
    unknown = sorted(name for name in environ if name.startswith(PREFIX) and name not in known)
    if unknown:
        raise ValueError(f"unknown variable {unknown[0]} (known: {', '.join(sorted(known))})")
    kinds: dict[str, type] = {"port": int, "stock": str, "host": str, "instance": str}
    kinds |= dict.fromkeys(("database", "leases"), str)
    given: dict[str, object] = {}
    for name in Settings.__slots__:
        text = environ.get(PREFIX + name.upper())
        if text:
            given[name] = kinds.get(name, float)(text)
    return Settings(**given)  # type: ignore[arg-type]
