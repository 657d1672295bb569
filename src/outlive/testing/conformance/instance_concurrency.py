"""Cases of many at once: one owner, versions without gaps, no letter lost or read twice."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress

from msgspec.structs import replace

from outlive.errors import Fenced, LeaseExpired, UsageError
from outlive.model.instance import LIVE, Committed, Entry, InstanceFilter, InstanceStatus, Sent
from outlive.names import HostId
from outlive.testing.conformance.instance_runner import Runner, message, runner, runners
from outlive.testing.conformance.lab import Lab, scenario


class ConcurrencyCases:
    """Exclusion and order, under load, on drivers of their own."""

    @scenario
    async def test_a_storm_of_claims_takes_each_instance_once(self, lab: Lab) -> None:
        crew = await runners(lab, 4)
        names = sorted(f"i{number}" for number in range(200))
        await crew[0].put(*names)

        async def run(one: Runner, size: int) -> list[str]:
            mine: list[str] = []
            while found := await one.ids(size):
                mine.extend(found)
                await asyncio.sleep(0)
            return mine

        taken = await asyncio.gather(*(run(crew[n % 4], 1 + n % 5) for n in range(8)))
        assert sorted(id_ for mine in taken for id_ in mine) == names

    @scenario
    async def test_an_instance_is_started_once_by_many(self, lab: Lab) -> None:
        crew = await runners(lab, 4)
        outcomes = await asyncio.gather(
            *(one.start(one.new("same"), one.new(f"i{n}")) for n in range(5) for one in crew)
        )
        entries = [found.entry for pair in outcomes for found in pair if found.id == "same"]
        assert entries.count(Entry.CREATED) == 1
        others = [found.entry for pair in outcomes for found in pair if found.id != "same"]
        assert others.count(Entry.CREATED) == 5
        assert sorted(await crew[0].ids()) == ["i0", "i1", "i2", "i3", "i4", "same"]

    @scenario
    async def test_a_former_owner_gives_up_nothing_while_the_owner_does(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("i", "j")
        former, other = await a.claim(2)
        assert await a.release(former, due=True)
        held = await a.claim_one()
        assert (held.id, held.token > former.token) == (former.id, True)
        waiting = [a.release(former) for _ in range(3)]
        given = await asyncio.gather(*waiting, a.release(held), a.release(other))
        assert given == [False, False, False, True, True]

    @scenario
    async def test_what_cannot_be_stored_is_nothing_to_the_others(self, lab: Lab) -> None:
        a = await runner(lab)
        held = [await a.own(f"i{n}") for n in range(6)]
        # No text of UTF-8; a backend that keeps it anyway does no harm either.
        events = ["[]"] * 5 + ['["\ud800"]']
        commits = [a.commit(one, events=each) for one, each in zip(held, events, strict=True)]
        *others, last = await asyncio.gather(*commits, return_exceptions=True)
        assert isinstance(last, UsageError | Committed)
        assert all(isinstance(one, Committed) and one.ok for one in others)

    @scenario
    async def test_of_many_commits_of_a_version_one_counts(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        held = await a.own("i")
        for _ in range(5):
            commits = [(a, b)[n % 2].commit(held, events=f"[{n}]") for n in range(8)]
            outcomes = await asyncio.gather(*commits)
            winners = [n for n, outcome in enumerate(outcomes) if outcome.ok]
            assert len(winners) == 1
            *_, row = await a.history("i")
            assert (row.version, row.events) == (held.version + 1, f"[{winners[0]}]")
            held = replace(held, version=held.version + 1)
        assert await a.versions("i") == [1, 2, 3, 4, 5]

    @scenario
    async def test_no_letter_is_lost_or_read_twice(self, lab: Lab) -> None:
        crew = await runners(lab, 3)
        senders = [await runner(lab, f"s{number}") for number in range(3)]
        await crew[0].park("i")
        total, read, busy = 60, list[str](), list[str]()

        async def send(one: Runner, number: int) -> None:
            for turn in range(total // 3):
                assert await one.send("i", f"{number}-{turn:02}") is Sent.SENT
                await asyncio.sleep(0.001 * (turn % 3))

        async def run(one: Runner) -> None:
            while len(read) < total:
                for held in await one.claim():
                    assert not busy, "two hosts own one instance"
                    busy.append(one.id)
                    letters = held.letters
                    mine = await one.advance(held, consumed=tuple(it.number for it in letters))
                    read.extend(letter.id for letter in letters)
                    # Something may come now, and it parks without a look.
                    await asyncio.sleep(0.001)
                    busy.clear()
                    await one.advance(mine, release=True)
                await asyncio.sleep(0.001)

        await asyncio.gather(
            *(send(one, number) for number, one in enumerate(senders)), *map(run, crew)
        )
        assert len(read) == len(set(read)) == total
        for number in range(3):
            mine = [id_ for id_ in read if id_.startswith(f"{number}-")]
            assert mine == sorted(mine)

    @scenario
    async def test_a_storm_of_takeovers_keeps_owners_apart(self, lab: Lab) -> None:
        crew = await runners(lab, 3)
        names = [f"i{number}" for number in range(6)]
        await crew[0].put(*names)
        steps = 6
        tokens = defaultdict[str, list[int]](list)

        async def run(one: Runner, life: int) -> None:
            session = one.id
            while await self._live(one):
                for held in await one.claim(2, session=session):
                    tokens[held.id].append(held.token)
                    life += 1
                    if life % 4 == 0:
                        # It dies with all it has, and what it does afterwards counts for nothing.
                        await one.hosts.close(session)
                        # A peer that looks at a row in this moment keeps it from being taken.
                        while (await one.record(held.id)).token == held.token:
                            await one.reclaim()
                        assert not (await one.commit(held)).ok
                        session = await one.open_session(HostId(f"{one.id}-{life}"))
                        break
                    if held.version + 1 < steps:
                        await one.commit(held, release=True, due_at_us=0)
                    else:
                        await one.commit(held, status=InstanceStatus.COMPLETED, outcome="1")
                await asyncio.sleep(0.001)

        await asyncio.gather(*(run(one, number) for number, one in enumerate(crew)))
        for name in names:
            record = await crew[0].record(name)
            assert (record.status, record.version) == (InstanceStatus.COMPLETED, steps)
            rows = await crew[0].history(name)
            assert [row.version for row in rows] == list(range(1, steps + 1))
            written = [row.token for row in rows]
            assert written == sorted(set(written))
            assert tokens[name] == sorted(set(tokens[name]))

    @staticmethod
    async def _live(one: Runner) -> bool:
        counts = await one.instances.count(InstanceFilter())
        return any(counts.get(status) for status in LIVE)

    @scenario
    async def test_no_owner_outlives_a_session_that_ends_meanwhile(self, lab: Lab) -> None:
        a, peer = await runner(lab, "a"), await runner(lab, "peer")
        names = {f"i{number}" for number in range(80)}
        await a.put(*names)

        async def claim_on(session: HostId, life: int) -> None:
            with suppress(Fenced, LeaseExpired):
                for turn in range(4):
                    await a.claim(5, session=session)
                    names.add(f"own-{life}-{turn}")
                    new = a.new(f"own-{life}-{turn}", session=session, worker="a")
                    await a.start(new)
                    await asyncio.sleep(0)

        async def end(session: HostId, turns: int) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            await peer.hosts.close(session)
            await peer.reclaim(limit=1000)

        for life in range(8):
            session = await a.open_session(HostId(f"{a.id}-{life}"))
            await asyncio.gather(claim_on(session, life), end(session, life * 3))
            page = await peer.instances.list(InstanceFilter(), after=None, limit=1000)
            assert [record.id for record in page if record.owner is not None] == []
        page = await peer.instances.list(InstanceFilter(), after=None, limit=1000)
        there = {record.id for record in page}
        assert {id_ for id_ in names if not id_.startswith("own")} <= there
        assert set(await a.ids(1000)) == there

    @scenario
    async def test_many_send_to_many_at_once(self, lab: Lab) -> None:
        crew = await runners(lab, 4)
        names = [f"i{number}" for number in range(10)]
        await crew[0].put(*names)

        async def send(one: Runner, number: int) -> None:
            # Each in another order: whoever locks what it writes to must not meet itself.
            order = names[number:] + names[:number]
            batch = [message(to, f"{number}-{turn}") for turn in range(3) for to in order]
            assert set(await one.instances.send(batch)) == {Sent.SENT}

        await asyncio.gather(*(send(crew[n % 4], n) for n in range(8)))
        for name in names:
            ids = await crew[0].mail_ids(name)
            assert len(ids) == 24
            for number in range(8):
                mine = [id_ for id_ in ids if id_.startswith(f"{number}-")]
                assert mine == [f"{number}-{turn}" for turn in range(3)]
