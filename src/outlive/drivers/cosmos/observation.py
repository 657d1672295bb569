"""When a key may be taken from an owner that fell silent. No wall clock of a host is asked.

Owns the memory of what was seen, and when, by this host's own clock. Two rules, either of which is
enough. The service's clocks: a reply's ``Date`` is past the item's ``_ts``, its ttl and the skew
that is allowed for; ``fast_takeover=false`` leaves this rule out. Observation: the ETag has not
changed for the ttl that the item records, and a margin. The memory is bounded; what it forgets
costs an observer one more ttl, never safety.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from outlive.clock import Clock
from outlive.drivers.cosmos.items import Item
from outlive.model.options import CLOCK_DRIFT

# A host waits for few keys at a time; an entry is about a kilobyte, and most of it is metadata.
OBSERVED_MAX = 4096

# What an owner leaves unused at the end of its ttl by default. Waiting as much longer keeps the
# two apart by twice that, which covers scheduling on both sides.
_MARGIN_S = 0.5
_MARGIN_OF_TTL = 0.1

# The service tells its clock to the second; asking more often than this learns nothing new.
_LOOK_AGAIN_S = 0.5


def silence_s(ttl_us: int) -> float:
    """How long an ETag must stand still before its owner has certainly given up."""
    ttl_s = ttl_us / 1e6
    return ttl_s * (1 + CLOCK_DRIFT) + min(_MARGIN_S, ttl_s * _MARGIN_OF_TTL)


@dataclass(slots=True)
class Sighting:
    """An item, since when it is known in this form, and when the service's clocks will end it.

    ``seen_s`` is taken after the reply, because the item may have been written while the request
    was on its way. Both are readings of this host's monotonic clock; the second is a forecast.
    ``ended`` says that a reply has confirmed it: only then do the service's clocks decide.
    """

    item: Item
    seen_s: float
    ends_by_service_s: float
    ended: bool


class Observations:
    """What one driver has seen. ``fast`` is whether the service's clocks decide as well."""

    def __init__(
        self, clock: Clock, host: str, *, fast: bool, skew_s: float, most: int = OBSERVED_MAX
    ) -> None:
        self._clock = clock
        self._host = host
        self._fast = fast
        self._skew_s = skew_s
        self._most = most
        self._sightings: OrderedDict[str, Sighting] = OrderedDict()

    def see(self, item: Item, service_s: float, *, glance: bool = False) -> Sighting:
        """Note that ``item`` stands in the store, at ``service_s`` of the service's clock.

        A ``glance`` (one item of a listing) is remembered only while there is room, so that a long
        listing does not make waiters forget.
        """
        now_s = self._clock.monotonic()
        left_s = item.ts + item.ttl_us / 1e6 + self._skew_s - service_s
        known = self._sightings.get(item.key)
        if known is not None and known.item.etag == item.etag:
            known.ends_by_service_s = now_s + left_s
            known.ended = known.ended or left_s <= 0
            self._sightings.move_to_end(item.key)
            return known
        sighting = Sighting(item, now_s, now_s + left_s, left_s <= 0)
        if known is not None or not glance or len(self._sightings) < self._most:
            self._sightings[item.key] = sighting
            self._sightings.move_to_end(item.key)
        if len(self._sightings) > self._most:
            self._sightings.popitem(last=False)
        return sighting

    def last(self, key: str) -> Sighting | None:
        """What was seen of ``key`` last, if it is remembered."""
        return self._sightings.get(key)

    def forget(self, key: str) -> None:
        """Nothing is known of ``key`` any more: its item is gone, or about to change."""
        self._sightings.pop(key, None)

    def free_in_s(self, sighting: Sighting) -> float:
        """How long until others may take the key; zero or less: now. Free keys are free."""
        item = sighting.item
        if item.owner is None:
            return 0.0
        if item.host == self._host:
            return self._own_remaining_s(item)
        now_s = self._clock.monotonic()
        left_s = sighting.seen_s + silence_s(item.ttl_us) - now_s
        if not self._fast:
            return left_s
        if sighting.ended:
            return 0.0
        # A forecast by this host's clock is worth another look, not a decision.
        return min(left_s, max(_LOOK_AGAIN_S, sighting.ends_by_service_s - now_s))

    def remaining_s(self, sighting: Sighting) -> float:
        """How long the owner still has, for people and for the owner itself.

        Of a stranger's item this is the most it can be: it counts from when this host saw it first,
        unless the service's clocks say that it ended before.
        """
        item, now_s = sighting.item, self._clock.monotonic()
        if item.host == self._host:
            return self._own_remaining_s(item)
        observed_s = sighting.seen_s + item.ttl_us / 1e6 - now_s
        return min(observed_s, sighting.ends_by_service_s - now_s)

    def _own_remaining_s(self, item: Item) -> float:
        # This very process wrote it: the same clock, so no drift, and counted from the sending.
        return (item.sent_us + item.ttl_us) / 1e6 - self._clock.monotonic()
