"""Eight workers and a clerk in processes of their own, and what can be done to them.

Owns the processes of one run and the record of what was enqueued and of every fault; judges
nothing.
"""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from dataclasses import dataclass

from tests.process.actors import WAIT_LIMIT_S, Actor, now
from tests.process.job_histories import Claim, Enqueue, JobHistory, Row

WORKERS = 8
# Renewed every third of it, also on a machine that is busy; short enough to be waited out.
TTL_S = 2.0
# Jobs at a time: all workers together need some tenths of a second for them.
FEED = 60
UNIQUE_KEYS = 3
DELAY_S = 0.3


@dataclass(frozen=True, slots=True)
class Fault:
    """What was done to a worker: from when it did nothing, and until when."""

    kind: str
    worker: str
    at: float
    until: float


class Fleet:
    """The workers and the clerk of one run."""

    def __init__(self, cast, store, dice: random.Random, *manners: str) -> None:
        """Start everybody; workers take on the ``manners`` by turns."""
        self.cast = cast
        self.store = store
        self.dice = dice
        self.manners = manners
        self.workers: list[Actor] = []
        # Those who were killed as well.
        self.everybody: list[Actor] = []
        self.faults: list[Fault] = []
        self.enqueued: list[Enqueue] = []
        self.clerk = cast.start("clerk", store.url)
        for _ in range(WORKERS):
            self.hire()
        for actor in (self.clerk, *self.workers):
            actor.wait("ready", limit_s=60)

    def hire(self) -> None:
        number = len(self.everybody)
        seed = self.dice.randrange(10**6)
        manner = self.manners[number % len(self.manners)]
        worker = self.cast.start(
            *("toiler", self.store.url, f"worker-{number}", TTL_S, seed, manner)
        )
        self.workers.append(worker)
        self.everybody.append(worker)

    def enqueue(self, count: int) -> None:
        """Add jobs, a few of them delayed, and one for each unique key that is free."""
        first = len(self.enqueued)
        names = [f"job-{first + number:05}-{self.dice.randrange(10**6)}" for number in range(count)]
        delayed = names[: count // 20]
        keys = {f"{names[0]}-u{key}": f"key-{key}" for key in range(UNIQUE_KEYS)}
        for ids, delay, unique in ((names[len(delayed) :], 0.0, keys), (delayed, DELAY_S, {})):
            did = self.clerk.ask("enqueue", ids=ids, delay=delay, unique=unique, limit_s=60)
            self.enqueued += [
                Enqueue(
                    job=job,
                    asked_at=did["asked"],
                    at=did["at"],
                    due_s=delay,
                    unique_key=unique.get(job),
                )
                for job in did["created"]
            ]

    def busy_victim(self) -> Actor:
        """A worker that has just claimed something; there is work enough for all until then."""
        victim = self.dice.choice([worker for worker in self.workers if worker.all("ready")])
        before = len(victim.all("claimed"))
        deadline = now() + WAIT_LIMIT_S
        while len(victim.all("claimed")) == before:
            assert now() < deadline, f"it never claims anything: {victim}"
            self.enqueue(FEED)
            victim.linger(0.2)
        return victim

    def kill(self) -> None:
        victim = self.busy_victim()
        dead_at = victim.kill()
        self.faults.append(Fault("kill", victim.name, dead_at, float("inf")))
        self.workers.remove(victim)
        self.hire()

    def stall(self) -> None:
        """Stop one for longer than its session lasts."""
        while True:
            victim = self.busy_victim()
            victim.freeze()
            if is_writable(self.store):
                break
            # Caught in a commit, where SQLite's lock would stop everybody with it.
            victim.thaw()
        frozen_at = now()
        thaw_at = frozen_at + TTL_S * self.dice.uniform(1.2, 1.5)
        while now() < thaw_at:
            self.clerk.linger(0.05)
        victim.thaw()
        self.faults.append(Fault("stall", victim.name, frozen_at, now()))

    def finish(self, limit_s: float) -> None:
        """Wait until everything is done, and let everybody go."""
        deadline = now() + limit_s
        while left := self.clerk.ask("count", limit_s=60)["left"]:
            assert now() < deadline, f"{left} jobs are left"
            self.clerk.linger(0.1)
        for worker in self.workers:
            assert worker.join() == 0, worker
        self.clerk.ask("look", limit_s=60)

    def history(self) -> JobHistory:
        rows = [
            Row(job=job, state=state, token=token, losses=losses)
            for message in self.clerk.all("page")
            for job, state, token, losses in message["jobs"]
        ]
        claims = [claim for worker in self.everybody for claim in claims_of(worker)]
        return JobHistory(enqueued=self.enqueued, claims=claims, rows=rows)


def is_writable(store) -> bool:
    """Whether nobody sits on a lock of the file, or of that in which sessions live."""
    if store.kind != "sqlite":
        return True
    return store.is_writable() and _is_writable(f"{store.path}-hosts")


def _is_writable(path: str) -> bool:
    with closing(sqlite3.connect(path, timeout=0.2, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True


def claims_of(worker: Actor) -> list[Claim]:
    """What one worker said of its claims."""
    settled = {(m["job"], m["token"]): m for m in worker.all("settled")}
    found: list[Claim] = []
    for message in worker.all("claimed"):
        for job, token in message["jobs"]:
            end = settled.get((job, token), {})
            believed = end.get("believed")
            found.append(
                Claim(
                    worker=worker.name,
                    job=job,
                    token=token,
                    asked_at=message["asked"],
                    at=message["at"],
                    believed_at=message["asked"] if believed is None else believed,
                    outcome=end.get("outcome"),
                    settled_at=end.get("asked"),
                )
            )
    return found
