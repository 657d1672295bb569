"""Memory lease stores with one mistake each, as a driver author might make it.

Each class is named for what is wrong with it, and carries the sentences of the suite that find it.
"""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from outlive.drivers.memory import MemoryFactory
from outlive.drivers.memory.lease_store import MemoryLeaseStore
from outlive.names import host_of


class PlantedFactory(MemoryFactory):
    """Opens memory drivers whose lease store is the given one."""

    def __init__(self, defect):
        self._defect = defect

    async def open(self, location, context):
        driver = await super().open(location, context)
        leases = self._defect(driver.leases._space, context.clock, driver.wakeups.ring_place)
        leases.store = driver._store
        driver.leases = leases
        return driver


class Defective(MemoryLeaseStore):
    """A sound store still: the control of the experiment."""

    caught_by: tuple[str, ...] = ()

    def row(self, key):
        return self._space.keys[key]

    def slot(self, grant):
        return self.row(grant.key).slots[grant.slot]


class RenewRevivesTheExpired(Defective):
    caught_by = ("test_an_expired_lease_never_revives",)

    async def renew(self, grant, ttl_us, *, state=None):
        self.slot(grant).expires_us = 2**62
        return await super().renew(grant, ttl_us, state=state)


class ReleaseAsksNobody(Defective):
    caught_by = ("test_a_stranger_cannot_release", "test_releasing_what_was_taken_over_is_fenced")

    async def release(self, grant):
        slot = self.slot(grant)
        await super().release(replace(grant, owner=slot.owner, token=slot.token))


class TokenRestartsAfterRelease(Defective):
    caught_by = ("test_tokens_strictly_grow_over_release", "test_a_release_keeps_the_token")

    async def release(self, grant):
        await super().release(grant)
        del self._space.keys[grant.key]


class ListLeaksNamespaces(Defective):
    caught_by = ("test_what_another_namespace_owns_is_not_to_be_seen",)

    async def list(self, **query):
        found = []
        own = self._space
        for space in self.store._spaces.values():
            self._space = space
            found.extend(await super().list(**query))
        self._space = own
        return found


class QueueIsIgnored(Defective):
    caught_by = (
        "test_a_newcomer_does_not_overtake_those_who_wait",
        "test_five_waiters_are_served_in_order_of_arrival",
    )

    async def acquire(self, request):
        row = self._space.keys.get(request.key)
        places = row.places if row is not None else {}
        for place in places.values():
            place.passed = True
        return await super().acquire(request)


class HeadIsNeverPassed(Defective):
    caught_by = ("test_the_second_waits_for_the_head_and_then_passes_it",)

    async def acquire(self, request):
        row = self._space.keys.get(request.key)
        for slot in row.slots if row is not None else []:
            slot.free_since_us = 2**62
        return await super().acquire(request)


class PassedHeadIsNotRemembered(Defective):
    caught_by = ("test_a_passed_head_costs_nothing_at_the_next_hand_over",)

    async def acquire(self, request):
        outcome = await super().acquire(request)
        for place in self.row(request.key).places.values():
            place.passed = False
        return outcome


class BreakKeepsTheToken(Defective):
    caught_by = ("test_a_broken_key_is_free_under_a_greater_token",)

    async def break_lease(self, key, *, reason):
        broken = await super().break_lease(key, reason=reason)
        for record in broken:
            row = self.row(key)
            row.token = row.slots[record.slot].token = record.token
        return broken


class StrangerMayRenew(Defective):
    caught_by = ("test_a_stranger_cannot_renew_with_a_seen_token",)

    async def renew(self, grant, ttl_us, *, state=None):
        return await super().renew(
            replace(grant, owner=self.slot(grant).owner), ttl_us, state=state
        )


class RenewalsPileUp(Defective):
    caught_by = ("test_renewals_never_pile_up",)

    async def renew(self, grant, ttl_us, *, state=None):
        end_us = self.slot(grant).expires_us
        renewed = await super().renew(grant, ttl_us, state=state)
        self.slot(grant).expires_us = end_us + ttl_us
        return renewed


class LostReplyGetsANewToken(Defective):
    caught_by = ("test_a_lost_reply_is_repeated_under_the_same_token",)

    async def acquire(self, request):
        row = self._space.keys.get(request.key)
        for slot in row.slots if row is not None else []:
            if slot.owner == request.owner:
                slot.owner = None
        return await super().acquire(request)


class ResumeMatchesByPrefix(Defective):
    caught_by = ("test_a_pattern_in_the_own_name_matches_nobody_else",)

    async def acquire(self, request):
        row = self._space.keys.get(request.key)
        for slot in row.slots if row is not None and request.resume else []:
            if (slot.owner or "").startswith(host_of(request.owner).rstrip("%_*-")):
                slot.owner = None
        return await super().acquire(request)


class StateDiesWithItsOwner(Defective):
    caught_by = ("test_state_survives_release_for_the_next_owner",)

    async def release(self, grant):
        await super().release(grant)
        self.row(grant.key).state = None


class KeysIgnoreCase(Defective):
    caught_by = ("test_a_prefix_respects_case", "test_a_listing_is_in_code_point_order")

    async def acquire(self, request):
        return await super().acquire(replace(request, key=request.key.lower()))


class NobodyIsRung(Defective):
    caught_by = ("test_a_release_rings_for_the_head_on_its_host", "test_a_break_rings_too")

    def _wake(self, key, places):
        pass


class EverybodyIsRung(Defective):
    caught_by = ("test_the_first_few_are_told_their_position",)

    def _wake(self, key, places):
        super()._wake(key, list(self.row(key).places.values()))


class HistoryGrowsForEver(Defective):
    caught_by = ("test_history_is_bounded",)

    async def release(self, grant):
        row = self.row(grant.key)
        row.ended = deque(row.ended)
        await super().release(grant)


class SemaphoreHasOneSlotTooMany(Defective):
    caught_by = ("test_as_many_slots_as_the_limit_are_granted",)

    async def acquire(self, request):
        more = request.limit + (request.limit > 1)
        return await super().acquire(replace(request, limit=more))


class BreakForgetsOtherSlots(Defective):
    caught_by = ("test_a_break_ends_all_slots",)

    async def break_lease(self, key, *, reason):
        slots = self.row(key).slots
        hidden = slots[1:]
        del slots[1:]
        broken = await super().break_lease(key, reason=reason)
        slots.extend(hidden)
        return broken


DEFECTS: tuple[type[Defective], ...] = tuple(Defective.__subclasses__())
