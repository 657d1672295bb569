"""The session of a host: the one row that says the host is alive."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from outlive.names import HostId


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSession:
    """One incarnation of one process, as its peers see it."""

    id: HostId
    name: str
    ttl_us: int
    metadata: str
    started_at: datetime | None = None
    remaining_s: float = 0.0
    alive: bool = True
