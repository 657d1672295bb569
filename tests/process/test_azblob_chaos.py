"""Many owners on a network that breaks all the time: no token twice, never two owners."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from outlive.errors import Fenced, StoreError
from outlive.model.lease import Grant, Held
from outlive.testing.conformance import Member
from outlive.testing.conformance.lease_concurrency import Ledger
from tests.services.azblob_labs import AzureBlobLabs
from tests.services.proxy import FaultProxy

pytestmark = pytest.mark.service

# A run in which nothing happened proves nothing: it goes on until so much of each has been seen.
ENOUGH = Counter(granted=15, refused=10, OutcomeUnknown=3, StoreUnavailable=3)
WORKERS = 6
KEYS = 2
SEED = 51


class Tally:
    """What the workers met; ``steps`` is released with each of it."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.steps = asyncio.Semaphore(0)

    def note(self, what: str) -> None:
        self.seen[what] += 1
        self.steps.release()


@pytest.fixture
async def labs() -> AsyncIterator[AzureBlobLabs]:
    labs = AzureBlobLabs()
    yield labs
    await labs.close()


class Worker:
    """Owns keys by turns, as a careful client does: what is unknown is asked for again."""

    def __init__(self, number: int, member: Member, ledger: Ledger, tally: Tally) -> None:
        self._number = number
        self._member = member
        self._ledger = ledger
        self._tally = tally
        self._random = random.Random(SEED + number)

    async def run(self) -> None:
        turn = 0
        while not self._tally.seen >= ENOUGH:
            turn += 1
            key = f"k{self._random.randrange(KEYS)}"
            outcome = await self._settled(key, f"{self._number}-{turn}")
            if isinstance(outcome, Held):
                self._tally.note("refused")
                await asyncio.sleep(self._random.uniform(0, 0.02))
                continue
            self._tally.note("granted")
            self._ledger.enter(outcome)
            await self._use(outcome)

    async def _settled(self, key: str, nonce: str) -> Grant | Held:
        while True:
            try:
                return await self._member.attempt(key, nonce)
            except StoreError as error:
                self._tally.note(type(error).__name__)
                await asyncio.sleep(0.005)

    async def _use(self, grant: Grant) -> None:
        try:
            await self._member.renew(grant)
        except StoreError as error:
            # The grant lasts a minute, so that nobody else may own it yet.
            self._tally.note(type(error).__name__)
        self._ledger.leave(grant)
        while True:
            try:
                await self._member.leases.release(grant)
            except StoreError as error:
                self._tally.note(type(error).__name__)
                await asyncio.sleep(0.005)
            except Fenced:
                # Released by an attempt whose reply was lost.
                return
            else:
                return


async def break_things(proxy: FaultProxy, tally: Tally) -> None:
    """Cut connections and lose replies: by what the workers did, so that slow machines get on."""
    dice = random.Random(SEED)
    while True:
        for _ in range(dice.randrange(1, 5)):
            await tally.steps.acquire()
        if dice.random() < 0.4:
            await asyncio.to_thread(proxy.drop_reply_after, b"PUT /")
        else:
            await asyncio.to_thread(proxy.reset)


async def test_owners_stay_apart_while_the_network_breaks(labs, azurite_server) -> None:
    tally, ledger = Tally(), Ledger()
    with FaultProxy("127.0.0.1", azurite_server.port) as proxy:
        lab = labs.make(azurite_server, port=proxy.port, request_timeout=1.0)
        members = [await lab.host(f"h{number}") for number in range(3)]
        workers = [Worker(number, members[number % 3], ledger, tally) for number in range(WORKERS)]
        breaking = asyncio.create_task(break_things(proxy, tally))
        await asyncio.gather(*(worker.run() for worker in workers))
        breaking.cancel()
        await asyncio.wait([breaking])
        proxy.pass_through()
        for tokens in ledger.tokens.values():
            assert tokens == sorted(set(tokens))
        # Nothing is left behind: each key can be had at once, under a greater token.
        for key, tokens in ledger.tokens.items():
            assert (await members[0].own(key, "last")).token > max(tokens)
