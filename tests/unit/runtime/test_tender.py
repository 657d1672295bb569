"""The tender: what ended is removed, whoever is connected, and an idle host hardly asks."""

from __future__ import annotations

import asyncio
import logging
import random
from types import SimpleNamespace

import pytest

import outlive
from outlive.errors import JobNotFound, StoreUnavailable
from outlive.model.job import Tended
from outlive.runtime import tender
from outlive.runtime.runtime import Runtime
from outlive.runtime.tender import TEND_EVERY_S, TEND_MAX, Tender
from outlive.testing import ManualClock

FULL = Tended(TEND_MAX, 0)
NOTHING = Tended(0, 0)


class Jobs:
    """A store of jobs that answers as it is told to, and then has nothing to do."""

    def __init__(self, *answers) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def tend(self, *, limit):
        assert limit == TEND_MAX
        self.asked += 1
        answer = self._answers.pop(0) if self._answers else NOTHING
        if isinstance(answer, Exception):
            raise answer
        return answer


class Flows:
    """A store of flows with nothing to do."""

    asked = 0

    async def tend(self, *, limit):
        self.asked += 1
        return 0


async def let_pass(clock, one, driver, seconds):
    """Let the keeper look each second for so long."""
    for _ in range(round(seconds)):
        clock.advance(1.0)
        one.tick(clock.monotonic(), driver)
        for _ in range(5):
            await asyncio.sleep(0)


def made():
    clock = ManualClock()
    return clock, Tender(Runtime(clock=clock, rng=random.Random(1)))


async def test_an_idle_store_is_asked_about_once_a_minute():
    clock, one = made()
    driver = SimpleNamespace(jobs=Jobs(), instances=Flows())
    await let_pass(clock, one, driver, 20 * TEND_EVERY_S)
    assert 14 <= driver.jobs.asked <= 30
    assert driver.instances.asked == driver.jobs.asked


async def test_a_backlog_is_worked_off_at_one_look():
    clock, one = made()
    driver = SimpleNamespace(jobs=Jobs(FULL, Tended(0, TEND_MAX), Tended(3, 7)), instances=None)
    while not driver.jobs.asked:
        await let_pass(clock, one, driver, 1)
    await let_pass(clock, one, driver, 2)
    assert driver.jobs.asked == 3


async def test_a_store_that_does_not_answer_is_asked_again_and_holds_up_nobody(caplog):
    clock, one = made()
    driver = SimpleNamespace(jobs=Jobs(StoreUnavailable("away")), instances=Flows())
    with caplog.at_level(logging.WARNING):
        await let_pass(clock, one, driver, 4 * TEND_EVERY_S)
    assert "could not prune ended jobs, will retry: away" in caplog.text
    assert driver.jobs.asked == driver.instances.asked >= 2


async def test_a_look_under_way_ends_with_the_keeper():
    clock, one = made()

    class Hanging:
        async def tend(self, *, limit):
            await asyncio.Event().wait()

    driver = SimpleNamespace(jobs=Hanging(), instances=None)
    await let_pass(clock, one, driver, 4 * TEND_EVERY_S)
    await one.stop()
    await one.stop()


async def test_a_store_without_jobs_is_left_alone():
    clock, one = made()
    await let_pass(clock, one, SimpleNamespace(jobs=None, instances=None), 4 * TEND_EVERY_S)


async def test_a_host_that_runs_nothing_lets_the_store_forget(monkeypatch):
    monkeypatch.setattr(tender, "TEND_EVERY_S", 0.05)
    async with outlive.connect("memory://tended") as host:
        job = await host.work.enqueue("q", 1, retention=0.05)
        (claim,) = await host.work.claim("q")
        await claim.complete()
        async with asyncio.timeout(10):
            with pytest.raises(JobNotFound):
                while True:
                    await job.status()
                    await asyncio.sleep(0.01)
