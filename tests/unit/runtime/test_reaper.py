"""The reaper: finds the dead however many live beside them."""

from __future__ import annotations

import asyncio
import logging
import random
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from outlive.drivers.memory import MemoryFactory
from outlive.errors import StoreUnavailable
from outlive.model.instance import NewInstance
from outlive.model.job import ClaimRequest, NewJob, Want
from outlive.model.location import parse_url
from outlive.model.session import HostSession
from outlive.names import HostId, InstanceId, JobId
from outlive.ports.driver import DriverContext
from outlive.ports.wakeups import Wakeup
from outlive.runtime.heartbeat import Heartbeat
from outlive.runtime.reaper import GONE, RECLAIM_MAX, SESSIONS_MAX, Reaper
from outlive.runtime.runtime import Runtime
from outlive.testing import ManualClock

OWN_TTL_S = 10.0


def session(name: str, ttl_s: float) -> HostSession:
    return HostSession(id=HostId(name), name=name, ttl_us=round(ttl_s * 1e6), metadata="{}")


async def pass_ttls(clock, heartbeat, reaper, driver, shown) -> None:
    """Two ttls pass, in which this host renews its session and looks after the others."""
    mine = heartbeat.session
    for _ in range(4):
        clock.advance(OWN_TTL_S / 2)
        await driver.hosts.renew(mine.id, mine.ttl_us)
        heartbeat.live.accept(clock.monotonic())
        reaper.tick(clock.monotonic(), shown)
        for _ in range(10):
            await asyncio.sleep(0)


async def opened(clock: ManualClock, store: str):
    """A store of its own, and a host in it that looks after the others."""
    context = DriverContext(
        clock=clock, random=random.Random(1), namespace="n", host=HostId("me"), options={}
    )
    driver = await MemoryFactory().open(parse_url(f"memory://{store}"), context)
    mine = session("me", OWN_TTL_S)
    heartbeat = Heartbeat(Runtime(clock=clock), mine, drift=0.005)
    reaper = Reaper(Runtime(clock=clock), heartbeat)
    await driver.hosts.open(mine)
    heartbeat.opened(clock.monotonic())
    return driver, heartbeat, reaper


async def test_a_dead_host_behind_more_living_ones_than_a_look_shows_is_reaped():
    clock = ManualClock()
    driver, heartbeat, reaper = await opened(clock, "reaper")
    for number in range(SESSIONS_MAX):
        await driver.hosts.open(session(f"lives-{number}", 1000.0))
    clock.advance(1.0)
    await driver.hosts.open(session("dies", 1.0))
    await pass_ttls(clock, heartbeat, reaper, driver, driver)
    clock.advance(OWN_TTL_S / 2)
    assert await driver.hosts.reap(limit=10) == []
    await driver.close()


class Failing:
    """Takes back nothing at first."""

    def __init__(self, jobs) -> None:
        self._jobs = jobs
        self.fails = False
        self.calls = 0

    async def reclaim(self, *, limit):
        self.calls += 1
        if self.fails:
            raise StoreUnavailable("away")
        return await self._jobs.reclaim(limit=limit)


async def test_work_that_was_not_taken_back_is_swept_up_at_once_and_else_rarely():
    clock = ManualClock()
    context = DriverContext(
        clock=clock, random=random.Random(1), namespace="n", host=HostId("me"), options={}
    )
    driver = await MemoryFactory().open(parse_url("memory://sweeps"), context)
    jobs = Failing(driver.jobs)
    shown = SimpleNamespace(hosts=driver.hosts, jobs=jobs, instances=None, wakeups=driver.wakeups)
    mine = session("me", OWN_TTL_S)
    heartbeat = Heartbeat(Runtime(clock=clock), mine, drift=0.005)
    reaper = Reaper(Runtime(clock=clock), heartbeat)
    await driver.hosts.open(mine)
    heartbeat.opened(clock.monotonic())

    async def live(seconds: float) -> None:
        for _ in range(round(seconds)):
            clock.advance(1.0)
            await driver.hosts.renew(mine.id, mine.ttl_us)
            heartbeat.live.accept(clock.monotonic())
            reaper.tick(clock.monotonic(), shown)
            for _ in range(10):
                await asyncio.sleep(0)

    await live(12 * OWN_TTL_S)
    assert jobs.calls <= 5
    await driver.hosts.open(session("dies", 1.0))
    jobs.calls, jobs.fails = 0, True
    heard: list[Wakeup] = []
    driver.wakeups.subscribe(heard.append)
    await live(OWN_TTL_S)
    failed = jobs.calls
    assert heard == [GONE]
    # Its session is ended, and nobody has its work yet: it is tried again each second.
    assert failed > 2
    jobs.fails = False
    await live(2)
    assert jobs.calls == failed + 1
    await driver.close()


async def test_others_are_told_of_a_dead_host_when_its_work_is_free():
    clock, happened = ManualClock(), []
    context = DriverContext(
        clock=clock, random=random.Random(1), namespace="n", host=HostId("me"), options={}
    )
    driver = await MemoryFactory().open(parse_url("memory://tells"), context)

    async def reclaim(*, limit: int):
        happened.append("taken")
        return await driver.instances.reclaim(limit=limit)

    async def ring(wakeup: Wakeup):
        happened.append(wakeup)

    shown = SimpleNamespace(
        hosts=driver.hosts,
        jobs=None,
        instances=SimpleNamespace(reclaim=reclaim),
        wakeups=SimpleNamespace(ring=ring),
    )
    mine = session("me", OWN_TTL_S)
    heartbeat = Heartbeat(Runtime(clock=clock), mine, drift=0.005)
    reaper = Reaper(Runtime(clock=clock), heartbeat)
    await driver.hosts.open(mine)
    heartbeat.opened(clock.monotonic())
    await driver.hosts.open(session("dies", 1.0))
    await pass_ttls(clock, heartbeat, reaper, driver, shown)
    assert happened.count(GONE) == 1
    assert happened[-2:] == ["taken", GONE]
    await driver.close()


class Refusing:
    """A store of jobs that cannot take anything back, until it is mended."""

    def __init__(self, hangs: bool) -> None:
        self.hangs, self.asked, self.broken = hangs, 0, True

    async def reclaim(self, *, limit: int):
        self.asked += 1
        if self.broken and self.hangs:
            await asyncio.Event().wait()
        if self.broken:
            raise StoreUnavailable(f"not {limit} of them")
        return []


@pytest.mark.parametrize("hangs", [False, True])
async def test_jobs_that_cannot_be_taken_back_do_not_keep_flows_from_it(caplog, hangs):
    clock = ManualClock()
    context = DriverContext(
        clock=clock, random=random.Random(1), namespace="n", host=HostId("me"), options={}
    )
    driver = await MemoryFactory().open(parse_url(f"memory://reaper-{hangs}"), context)
    ttl_s = 0.6 if hangs else OWN_TTL_S
    mine = session("me", ttl_s)
    await driver.hosts.open(mine)
    await driver.hosts.open(session("dies", 1.0))
    new = NewInstance(
        id=InstanceId("i"), kind="flow", name="f", input="{}", request="r", session=HostId("dies")
    )
    await driver.instances.start([new])
    jobs = Refusing(hangs)
    broken = SimpleNamespace(
        hosts=driver.hosts, instances=driver.instances, jobs=jobs, wakeups=driver.wakeups
    )
    heartbeat = Heartbeat(Runtime(clock=clock), mine, drift=0.005)
    reaper = Reaper(Runtime(clock=clock), heartbeat)
    await driver.hosts.close(HostId("dies"))

    async def look() -> None:
        clock.advance(ttl_s / 5)
        heartbeat.live.accept(clock.monotonic())
        reaper._due = clock.monotonic()
        reaper.tick(clock.monotonic(), broken)
        await reaper._task

    heartbeat.opened(clock.monotonic())
    await look()
    record = await driver.instances.get(InstanceId("i"))
    assert (record.owner, jobs.asked) == (None, 1)
    # That a host died is seen without asking for more than warnings.
    told = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert "recovered 0 jobs and 1 flow from dead hosts" in [each.getMessage() for each in told]
    await look()
    await look()
    # Asked for each time, and told once.
    assert jobs.asked == 3
    assert caplog.text.count("could not recover jobs from dead hosts") == 1
    jobs.broken = False
    await look()
    jobs.broken = True
    reaper._sweep_due = 0.0
    await look()
    assert caplog.text.count("could not recover jobs from dead hosts") == 2
    await driver.close()


async def test_what_was_taken_from_dead_hosts_is_told_in_one_line(caplog):
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    driver, heartbeat, reaper = await opened(clock, "told")
    for number in range(7):
        await driver.hosts.open(session(f"dies-{number}", 1.0))
    # More than are taken back in one step, and one that was lost too often.
    news = [NewJob(id=JobId(f"j{n}"), queue="q", payload="{}") for n in range(RECLAIM_MAX + 20)]
    await driver.jobs.enqueue([replace(news[0], max_losses=0), *news[1:]])
    for number in range(7):
        await driver.jobs.claim(
            ClaimRequest(
                session=HostId(f"dies-{number}"),
                worker=f"dies-{number}",
                request=f"r{number}",
                wants=(Want("q", 100),),
                limit=100,
            )
        )
    await pass_ttls(clock, heartbeat, reaper, driver, driver)
    dead, told = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert (dead.levelname, dead.job, dead.queue) == ("ERROR", "j0", "q")
    assert told.getMessage() == (
        f"recovered {RECLAIM_MAX + 20} jobs (1 dead: lost too often) and 0 flows from dead hosts; "
        "hosts found dead: dies-0, dies-1, dies-2, dies-3, dies-4 and 2 more"
    )
    await driver.hosts.open(session("had-nothing", 1.0))
    await pass_ttls(clock, heartbeat, reaper, driver, driver)
    assert caplog.records[-1].getMessage().startswith("host had-nothing is dead")
    assert caplog.records[-1].levelno == logging.INFO
    await driver.close()


async def test_whose_work_could_be_taken_only_later_is_named_when_it_is(caplog):
    clock = ManualClock()
    driver, heartbeat, reaper = await opened(clock, "later")
    jobs = Failing(driver.jobs)
    jobs.fails = True
    shown = SimpleNamespace(hosts=driver.hosts, jobs=jobs, instances=None, wakeups=driver.wakeups)
    await driver.hosts.open(session("busy", 1.0))
    await driver.jobs.enqueue([NewJob(id=JobId("j"), queue="q", payload="{}")])
    await driver.jobs.claim(
        ClaimRequest(
            session=HostId("busy"), worker="busy", request="r", wants=(Want("q", 1),), limit=1
        )
    )
    await pass_ttls(clock, heartbeat, reaper, driver, shown)
    await driver.hosts.open(session("idle", 1.0))
    jobs.fails = False
    await pass_ttls(clock, heartbeat, reaper, driver, shown)
    said = [each.getMessage() for each in caplog.records if "recovered" in each.getMessage()]
    assert said == ["recovered 1 job and 0 flows from dead hosts; hosts found dead: busy, idle"]
    # The next one has nothing to do with them.
    await driver.hosts.open(session("next", 1.0))
    caplog.set_level(logging.INFO)
    await driver.jobs.enqueue([NewJob(id=JobId("j2"), queue="q", payload="{}")])
    await driver.jobs.claim(
        ClaimRequest(
            session=HostId("next"), worker="next", request="r", wants=(Want("q", 1),), limit=1
        )
    )
    await pass_ttls(clock, heartbeat, reaper, driver, shown)
    assert caplog.records[-1].getMessage().endswith("; hosts found dead: next")
    await driver.close()
