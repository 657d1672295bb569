"""Hosts are replaced one at a time on one store, which is migrated meanwhile: nothing is lost."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing

import pytest

from outlive.clock import SystemClock
from outlive.drivers.postgres import schema as postgres
from outlive.drivers.postgres.connections import Connections
from outlive.drivers.postgres.settings import read_settings
from outlive.drivers.sqlite import schema as sqlite
from outlive.model.location import parse_url
from outlive.names import HostId
from outlive.ports.driver import DriverContext
from tests.process.actors import now

pytestmark = pytest.mark.process

STEPS = 3
RESULT = sum(range(STEPS)) + STEPS
HISTORIES = {
    "sqlite": (
        "SELECT i.id, h.version, h.events FROM outlive_history h "
        "JOIN outlive_instance i ON i.number = h.instance ORDER BY 1, 2"
    ),
    "postgres": "SELECT instance, version, events FROM outlive.instance_history ORDER BY 1, 2",
}
JOBS = {
    "sqlite": "SELECT state, count(*) FROM outlive_job GROUP BY 1",
    "postgres": "SELECT state, count(*) FROM outlive.job GROUP BY 1",
}

# A migration that only these tests have: every table that hosts work with gets a column.
POSTGRES = "-- compatible_with: 1\n" + "".join(
    f"ALTER TABLE {{s}}.{table} ADD COLUMN next_{table} text DEFAULT 'x';\n"
    for table in ("host", "lease", "job", "job_attempt", "instance", "instance_history", "letter")
)
SQLITE = "-- compatible_with: 1\n" + "".join(
    f"ALTER TABLE outlive_{table} ADD COLUMN next_{table} TEXT DEFAULT 'x';\n"
    for table in ("lease", "job", "job_attempt", "instance", "history", "letter")
)
HOSTS = "-- compatible_with: 1\nALTER TABLE outlive_session ADD COLUMN next_session TEXT;\n"


def migrate(store) -> int:
    """Bring the store to the schema of a release to come; its number."""
    if store.kind == "postgres":
        return asyncio.run(_migrate_postgres(store.url))
    for end, name, script in (("", "schema", SQLITE), ("-hosts", "schema_hosts", HOSTS)):
        steps = sqlite.migrations(name)
        with closing(
            sqlite3.connect(f"{store.path}{end}", timeout=30, isolation_level=None)
        ) as connection:
            done = sqlite.bring_up(connection, (*steps, (len(steps) + 1, script)))
            assert done.after == done.before + 1
    return done.after


async def _migrate_postgres(url: str) -> int:
    settings = read_settings(parse_url(url), {}, role="host")
    context = DriverContext(
        clock=SystemClock(), random=random.Random(1), namespace="n", host=HostId("h")
    )
    connections = Connections(settings, context)
    steps = postgres.migrations()
    longer = (*steps, (len(steps) + 1, POSTGRES))
    done = await postgres.prepare(connections, settings, migrate=True, steps=longer)
    await connections.close()
    assert done.after == done.before + 1
    return done.after


class Fleet:
    """Hosts on one store."""

    def __init__(self, cast, store) -> None:
        self._cast = cast
        self._store = store
        self._everybody = []

    def hire(self, manner: str = "host"):
        actor = self._cast.start("rolling_host", self._store.url, manner)
        self._everybody.append(actor)
        actor.wait("ready", limit_s=60)
        return actor

    def dismiss(self) -> None:
        """Let all of them end in order; all that they said is heard then."""
        for actor in self._everybody:
            if actor.process.poll() is None:
                assert actor.join(60) == 0

    def logged(self, text: str) -> list[str]:
        lines = [each["text"] for actor in self._everybody for each in actor.all("log")]
        return [line for line in lines if text in line]

    def complaints(self) -> list[str]:
        """Whatever hosts warned of."""
        lines = [each for actor in self._everybody for each in actor.all("log")]
        return [each["text"] for each in lines if each["level"] in ("WARNING", "ERROR")]

    def runs(self) -> Counter[str]:
        return Counter(each["key"] for actor in self._everybody for each in actor.all("ran"))

    def check(self, flows: list[str], jobs: list[str]) -> None:
        """Everything ended, and nothing was run or recorded twice."""
        ran = self.runs()
        expected = {f"{flow}/work#{number}" for flow in flows for number in range(STEPS)}
        expected |= {f"job/{name}" for name in jobs}
        asides = {key for key in ran if key.startswith("aside/")}
        assert len(asides) == len(flows)
        assert set(ran) - asides == expected
        assert set(ran.values()) == {1}
        ended, rows = Counter(), Counter()
        for flow, version, events in self._store.ask(HISTORIES[self._store.kind]):
            rows[flow] += 1
            assert version == rows[flow], f"{flow} has a gap"
            kinds = [event["event"] for event in json.loads(events)]
            ended[flow] += kinds.count("step-ended")
        assert ended == dict.fromkeys(flows, STEPS + 1)
        states = dict(self._store.ask(JOBS[self._store.kind]))
        assert states == {"done": len(jobs) + len(flows)}


@pytest.mark.timeout(240)
def test_a_fleet_is_restarted_under_load_and_nothing_is_lost_or_done_twice(store, cast):
    fleet = Fleet(cast, store)
    guest, hosts = fleet.hire("guest"), [fleet.hire(), fleet.hire()]
    held = guest.ask("lease", key="config")
    guest.ask("pour", prefix="poured", args=[STEPS, 0.2])
    for host in hosts:
        host.wait("ran", limit_s=60)
    number = migrate(store)
    for place, host in enumerate(hosts):
        host.terminate()
        assert host.join(60) == 0
        hosts[place] = fleet.hire()
        hosts[place].wait("ran", limit_s=60)
    assert len(fleet.logged(f"version {number}, from a newer release, and still supports")) == 2
    names = guest.ask("cease", limit_s=60)["poured"]
    results = guest.ask("results", ids=names, limit=60, limit_s=70)["results"]
    assert results == [RESULT] * len(names)
    seen = guest.ask("lease", key="config")
    assert (seen["token"], seen["held"]) == (held["token"], True)
    wait_until(lambda: {f"job/{name}" for name in names} <= set(fleet.runs()))
    fleet.dismiss()
    print(f"{store.kind}: {len(names)} flows and as many jobs")
    fleet.check(names, names)
    # No host that worked while the tables were changed had anything to repeat.
    assert fleet.complaints() == []


def wait_until(true: Callable[[], bool]) -> None:
    until = now() + 30
    while not true():
        assert now() < until
        time.sleep(0.1)
