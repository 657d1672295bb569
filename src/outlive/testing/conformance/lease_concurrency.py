"""Cases of many at once: storms of attempts, with the invariants checked along the way."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress

from outlive.model.lease import Grant, Held
from outlive.names import WaiterId
from outlive.testing.conformance.lab import Lab, Member, scenario


class Ledger:
    """What the owners believe: who owns which key now, and every token granted, in order."""

    def __init__(self, capacity: int = 1) -> None:
        self._capacity = capacity
        self._owners: defaultdict[str, set[str]] = defaultdict(set)
        self.tokens: defaultdict[str, list[int]] = defaultdict(list)

    def enter(self, grant: Grant) -> None:
        """Note a grant whose reply has arrived; the test fails on one owner too many."""
        owners = self._owners[grant.key]
        owners.add(grant.owner)
        assert len(owners) <= self._capacity, f"{grant.key} is owned by {sorted(owners)}"
        self.tokens[grant.key].append(grant.token)

    def leave(self, grant: Grant) -> None:
        """Note that the owner is about to release."""
        self._owners[grant.key].discard(grant.owner)


class ConcurrencyCases:
    """Mutual exclusion and growing tokens, under load."""

    @scenario
    async def test_of_fifty_attempts_exactly_one_is_granted(self, lab: Lab) -> None:
        hosts = [await lab.host(f"h{number}") for number in range(5)]
        outcomes = await asyncio.gather(
            *(hosts[number % 5].attempt("k", str(number)) for number in range(50))
        )
        granted = [outcome for outcome in outcomes if isinstance(outcome, Grant)]
        refused = [outcome for outcome in outcomes if isinstance(outcome, Held)]
        assert len(granted) == 1
        assert len(refused) == 49
        assert {held.owner for held in refused} == {granted[0].owner}

    @scenario
    async def test_two_hundred_different_keys_are_all_granted(self, lab: Lab) -> None:
        hosts = [await lab.host(f"h{number}") for number in range(4)]
        outcomes = await asyncio.gather(
            *(hosts[number % 4].attempt(f"k/{number}") for number in range(200))
        )
        assert all(isinstance(outcome, Grant) for outcome in outcomes)
        page = await hosts[0].leases.list(
            prefix="k/", owner=None, active=True, after=None, limit=1000
        )
        assert len(page) == 200

    @scenario
    async def test_an_expired_key_is_taken_over_by_exactly_one(self, lab: Lab) -> None:
        hosts = [await lab.host(f"h{number}") for number in range(4)]
        old = await hosts[0].own_briefly("k", "old")
        await lab.end("k")
        outcomes = await asyncio.gather(
            *(hosts[number % 4].attempt("k", str(number)) for number in range(20))
        )
        granted = [outcome for outcome in outcomes if isinstance(outcome, Grant)]
        assert len(granted) == 1
        assert granted[0].token > old.token

    @scenario
    async def test_a_storm_keeps_owners_apart_and_tokens_growing(self, lab: Lab) -> None:
        hosts = [await lab.host(f"h{number}") for number in range(4)]
        ledger = Ledger()

        async def work(worker: int) -> int:
            member, granted = hosts[worker % 4], 0
            for turn in range(12):
                outcome = await member.attempt(f"k{turn % 3}", f"{worker}-{turn}")
                if isinstance(outcome, Grant):
                    granted += 1
                    ledger.enter(outcome)
                    outcome = await member.renew(outcome)
                    ledger.leave(outcome)
                    await member.leases.release(outcome)
            return granted

        granted = sum(await asyncio.gather(*(work(worker) for worker in range(16))))
        assert granted > 0
        for tokens in ledger.tokens.values():
            assert tokens == sorted(set(tokens))

    @scenario
    async def test_a_storm_on_a_semaphore_keeps_to_its_limit(self, lab: Lab) -> None:
        lab.require("semaphore")
        hosts = [await lab.host(f"h{number}") for number in range(4)]
        ledger = Ledger(capacity=3)

        async def work(worker: int) -> None:
            member = hosts[worker % 4]
            for turn in range(8):
                outcome = await member.attempt("k", f"{worker}-{turn}", limit=3)
                if isinstance(outcome, Grant):
                    ledger.enter(outcome)
                    await asyncio.sleep(0)
                    ledger.leave(outcome)
                    await member.leases.release(outcome)

        await asyncio.gather(*(work(worker) for worker in range(16)))
        tokens = ledger.tokens["k"]
        assert len(tokens) == len(set(tokens))

    @scenario
    async def test_everybody_in_a_queue_is_served_alone(self, lab: Lab) -> None:
        lab.require("fifo")
        hosts = [await lab.host(f"h{number}") for number in range(4)]
        ledger = Ledger()

        async def wait_and_work(worker: int) -> None:
            member = hosts[worker % 4]
            waiter: WaiterId | None = None
            while True:
                outcome = await member.attempt("k", str(worker), waiter=waiter, queue=15)
                if isinstance(outcome, Grant):
                    break
                waiter = outcome.waiter
                await asyncio.sleep(0.002)
            ledger.enter(outcome)
            await asyncio.sleep(0)
            ledger.leave(outcome)
            await member.leases.release(outcome)

        await asyncio.gather(*(wait_and_work(worker) for worker in range(20)))
        assert len(ledger.tokens["k"]) == 20
        assert ledger.tokens["k"] == sorted(ledger.tokens["k"])
        assert (await hosts[0].record("k")).waiters == 0

    @scenario
    async def test_releases_and_breaks_race_without_losing_the_token(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        tokens: list[int] = []
        for number in range(10):
            grant = await a.own("k", str(number))
            tokens.append(grant.token)
            await asyncio.gather(
                a.leases.release(grant),
                b.leases.break_lease("k", reason="race"),
                return_exceptions=True,
            )
        assert tokens == sorted(set(tokens))

    @scenario
    async def test_a_cancelled_attempt_can_be_repeated(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        for number in range(10):
            attempt = asyncio.ensure_future(a.attempt(f"k{number}"))
            for _ in range(number % 4):
                await asyncio.sleep(0)
            attempt.cancel()
            with suppress(asyncio.CancelledError):
                await attempt
            await _settle_on_owner(a, f"k{number}")
            await b.is_refused(f"k{number}")


async def _settle_on_owner(member: Member, key: str) -> None:
    """Acquire with the owner of the cancelled attempt: granted, whether or not that one was."""
    grant = await member.own(key)
    await member.renew(grant)
