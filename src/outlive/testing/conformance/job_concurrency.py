"""Cases of many at once: nothing is claimed twice, nothing is lost, on drivers of their own."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress

from outlive.errors import Fenced, LeaseExpired
from outlive.model.job import ClaimedJob, Entry, JobState, Settled
from outlive.names import HostId
from outlive.testing.conformance.job_sessions import reclaim
from outlive.testing.conformance.job_worker import Worker, job, worker, workers
from outlive.testing.conformance.lab import LONG_S, Lab, scenario


class Ledger:
    """What the claimants believe: who has which job now, and every token, in order."""

    def __init__(self) -> None:
        self._live: dict[str, int] = {}
        self.tokens: defaultdict[str, list[int]] = defaultdict(list)

    def enter(self, claimed: ClaimedJob, slot: str | None = None) -> None:
        """Note a claim whose reply has arrived; the test fails if another one lives."""
        name = slot or claimed.id
        assert name not in self._live, f"{name} is claimed twice at a time"
        self._live[name] = claimed.token
        tokens = self.tokens[claimed.id]
        assert not tokens or tokens[-1] < claimed.token, f"{claimed.id}: a token did not grow"
        tokens.append(claimed.token)

    def leave(self, claimed: ClaimedJob, slot: str | None = None) -> None:
        """Note that the claimant is about to settle."""
        del self._live[slot or claimed.id]

    @property
    def busy(self) -> int:
        """How many claims live now."""
        return len(self._live)


class ConcurrencyCases:
    """Exclusion, order and limits, under load."""

    @scenario
    async def test_a_storm_of_claims_takes_each_job_once(self, lab: Lab) -> None:
        crew = await workers(lab, 4)
        names = sorted(f"j{number}" for number in range(200))
        await crew[0].put(*names)

        async def run(one: Worker, size: int) -> list[str]:
            mine: list[str] = []
            while found := await one.ids(size):
                mine.extend(found)
                await asyncio.sleep(0)
            return mine

        taken = await asyncio.gather(*(run(crew[n % 4], 1 + n % 5) for n in range(8)))
        assert sorted(id_ for mine in taken for id_ in mine) == names

    @scenario
    async def test_repeats_that_come_together_get_the_same_claim(self, lab: Lab) -> None:
        one = await worker(lab)
        crew = [one, *[Worker(await lab.host(f"x{number}")) for number in range(2)]]
        await one.put(*(f"j{number}" for number in range(60)))
        for number in range(10):
            # A worker whose link broke asks another host of the store, under its own session.
            again = {"session": one.id, "request": f"again/{number}", "again": True}
            wait = LONG_S if number % 2 else 0
            asked = (crew[n % 3].claim(1, wait=wait, **again) for n in range(6))
            found = await asyncio.gather(*asked)
            assert len({(job.id, job.token) for jobs in found for job in jobs}) == 1, found

    @scenario
    async def test_a_storm_of_every_verb_keeps_claims_apart(self, lab: Lab) -> None:
        crew = await workers(lab, 4)
        names = [f"j{number}" for number in range(40)]
        ledger, done = Ledger(), list[str]()

        async def run(one: Worker, number: int) -> None:
            if number < 4:
                await one.put(*names[number * 10 : number * 10 + 10])
            turn = number
            while len(done) < len(names):
                for claimed in await one.claim(3):
                    turn += 1
                    ledger.enter(claimed)
                    await asyncio.sleep(0)
                    ledger.leave(claimed)
                    await self._settle(one, claimed, turn, done)
                await asyncio.sleep(0.001)

        await asyncio.gather(*(run(crew[n % 4], n) for n in range(8)))
        assert sorted(done) == sorted(names)
        for name in names:
            record = await crew[0].record(name)
            assert (record.state, record.losses) == (JobState.DONE, 0)
            assert record.token == ledger.tokens[name][-1]

    @staticmethod
    async def _settle(one: Worker, claimed: ClaimedJob, turn: int, done: list[str]) -> None:
        if turn % 4 == 0:
            assert await one.release(claimed) is Settled.OK
        elif turn % 4 == 1:
            assert await one.fail(claimed, retry=0) is Settled.OK
        else:
            assert await one.complete(claimed) is Settled.OK
            done.append(claimed.id)

    @scenario
    async def test_a_job_is_enqueued_once_by_many(self, lab: Lab) -> None:
        crew = await workers(lab, 4)
        outcomes = await asyncio.gather(
            *(crew[n % 4].enqueue(job("same"), job(f"j{n % 5}")) for n in range(20))
        )
        entries = [outcome.entry for pair in outcomes for outcome in pair]
        assert (entries.count(Entry.CREATED), entries.count(Entry.EXISTING)) == (6, 34)
        assert sorted(await crew[0].ids()) == ["j0", "j1", "j2", "j3", "j4", "same"]

    @scenario
    async def test_of_many_with_one_unique_key_one_lives(self, lab: Lab) -> None:
        crew = await workers(lab, 4)
        outcomes = await asyncio.gather(
            *(crew[n % 4].enqueue(job(f"j{n}", unique_key="u")) for n in range(20))
        )
        created = [pair[0] for pair in outcomes if pair[0].entry is Entry.CREATED]
        assert len(created) == 1
        assert {pair[0].id for pair in outcomes} == {created[0].id}
        assert await crew[0].ids() == [created[0].id]

    @scenario
    async def test_an_ordering_key_is_kept_under_load(self, lab: Lab) -> None:
        lab.require("ordering")
        crew = await workers(lab, 4)
        ledger, done = Ledger(), defaultdict[str, list[str]](list)
        keys = [f"k{number}" for number in range(4)]

        async def feed(one: Worker, key: str) -> None:
            for number in range(12):
                await one.put(f"{key}-{number:02}", ordering_key=key)

        async def run(one: Worker) -> None:
            while sum(map(len, done.values())) < 48:
                for claimed in await one.claim(3):
                    ledger.enter(claimed, claimed.ordering_key)
                    await asyncio.sleep(0)
                    ledger.leave(claimed, claimed.ordering_key)
                    done[str(claimed.ordering_key)].append(claimed.id)
                    assert await one.complete(claimed) is Settled.OK
                await asyncio.sleep(0.001)

        feeders = [feed(one, key) for one, key in zip(crew, keys, strict=True)]
        await asyncio.gather(*feeders, *(run(one) for one in crew))
        assert {key: ids == sorted(ids) for key, ids in done.items()} == dict.fromkeys(keys, True)

    @scenario
    async def test_a_limit_holds_under_load(self, lab: Lab) -> None:
        lab.require("queue_limits")
        crew = await workers(lab, 4)
        await crew[0].set_queue(concurrency=3)
        await crew[0].put(*(f"j{number}" for number in range(30)))
        ledger, deepest, done = Ledger(), 0, 0

        async def run(one: Worker) -> None:
            nonlocal deepest, done
            while done < 30:
                for claimed in await one.claim(2):
                    ledger.enter(claimed)
                    deepest = max(deepest, ledger.busy)
                    await asyncio.sleep(0.001)
                    ledger.leave(claimed)
                    await one.complete(claimed)
                    done += 1
                await asyncio.sleep(0.001)

        await asyncio.gather(*(run(one) for one in crew))
        assert deepest <= 3

    @scenario
    async def test_jobs_come_through_the_deaths_of_their_claimants(self, lab: Lab) -> None:
        crew = await workers(lab, 3)
        names = [f"j{number}" for number in range(40)]
        await crew[0].put(*names)
        done = list[str]()

        async def run(one: Worker, life: int) -> None:
            session = one.id
            while len(done) < len(names):
                found = await one.claim(4, session=session)
                if life % 3 == 0 and found:
                    # It dies with all it has, and what it does afterwards counts for nothing.
                    await one.hosts.close(session)
                    await reclaim(one)
                    outcomes = {await one.complete(claimed) for claimed in found}
                    assert outcomes == {Settled.LOST}
                    session = await one.open_session(HostId(f"{one.id}-{life}"))
                else:
                    for claimed in found:
                        if await one.complete(claimed) is Settled.OK:
                            done.append(claimed.id)
                life += 1
                await asyncio.sleep(0.001)

        await asyncio.gather(*(run(one, number) for number, one in enumerate(crew)))
        assert sorted(done) == sorted(names)

    @scenario
    async def test_no_claim_outlives_a_session_that_ends_meanwhile(self, lab: Lab) -> None:
        a, peer = await worker(lab, "a"), await worker(lab, "peer")
        names = {f"j{number}" for number in range(80)}
        await a.put(*names, max_losses=1000)

        async def claim_on(session: HostId) -> None:
            with suppress(Fenced, LeaseExpired):
                for _ in range(4):
                    await a.claim(5, session=session)
                    await asyncio.sleep(0)

        async def end(session: HostId, turns: int) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            await peer.hosts.close(session)
            await reclaim(peer)

        for number in range(8):
            session = await a.open_session(HostId(f"{a.id}-{number}"))
            await asyncio.gather(claim_on(session), end(session, number * 3))
            assert await peer.list(states=(JobState.CLAIMED,)) == []
        left: list[str] = []
        while ids := await a.ids():
            left += ids
        assert sorted(left) == sorted(names)
