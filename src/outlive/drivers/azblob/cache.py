"""What a driver last knew of the blobs it wrote, to spare a read before the next write.

Owns nothing that anybody relies on: every write names the ETag it builds on, so what is stale here
is refused there and read again.
"""

from __future__ import annotations

from outlive.clock import Clock
from outlive.drivers.azblob.records import Seen
from outlive.drivers.azblob.ttls import lease_seconds
from outlive.model.lease import Grant
from outlive.model.options import CLOCK_DRIFT

# A host holds tens of leases, a busy one hundreds; what falls out costs one request.
_ENTRIES_MAX = 1024


class Cache:
    """Blobs by name, the newest last, each with the moment until which it is surely leased."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[str, tuple[Seen, float]] = {}

    def put(self, name: str, seen: Seen, *, since: float) -> None:
        """Remember ``seen``; its lease was counted anew at ``since`` or later."""
        assert seen.record is not None
        seconds = lease_seconds(seen.record.ttl_us)
        self._entries.pop(name, None)
        self._entries[name] = (seen, since + seconds * (1 - CLOCK_DRIFT))
        if len(self._entries) > _ENTRIES_MAX:
            del self._entries[next(iter(self._entries))]

    def get(self, name: str, grant: Grant) -> Seen | None:
        """The blob, if it is known as ``grant`` left it, and its lease cannot have run out."""
        seen, until = self._entries.get(name, (None, 0.0))
        if seen is None or seen.record is None or self._clock.monotonic() >= until:
            return None
        record = seen.record
        known = (record.owner, record.token) == (grant.owner, grant.token)
        return seen if known and record.version >= grant.version else None

    def drop(self, name: str) -> None:
        """Forget a blob that was changed, or may have been."""
        self._entries.pop(name, None)
