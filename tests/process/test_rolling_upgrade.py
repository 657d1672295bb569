"""Two releases share one store: one migrates it while the other works, and nothing is lost."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.process.actors import ROOT, now
from tests.process.next_release import make_next_release

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
SCHEMA = {
    "sqlite": "SELECT version, compatible_with FROM outlive_schema",
    "postgres": (
        "SELECT version, compatible_with FROM outlive.schema_version ORDER BY version DESC LIMIT 1"
    ),
}


class Fleet:
    """Hosts of two releases on one store."""

    def __init__(self, cast, store, folder) -> None:
        self._cast = cast
        self._store = store
        self._next = make_next_release(folder)
        self._everybody = []

    def hire(self, manner: str = "host", *, is_next: bool = False, migrate: bool = False):
        env = {"PYTHONPATH": f"{self._next}:{ROOT}"} if is_next else None
        told = ("migrate",) if migrate else ()
        actor = self._cast.start("release_host", self._store.url, manner, *told, env=env)
        self._everybody.append(actor)
        assert actor.wait("ready", limit_s=60)["is_next"] == is_next
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

    def count(self, text: str) -> int:
        """How many rows of histories hold this."""
        return sum(text in row[2] for row in self._store.ask(HISTORIES[self._store.kind]))

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
def test_a_fleet_is_upgraded_under_load_and_nothing_is_lost_or_done_twice(store, cast, tmp_path):
    before = store.ask(SCHEMA[store.kind])[0][0]
    fleet = Fleet(cast, store, tmp_path)
    guest, old = fleet.hire("guest"), fleet.hire()
    held = guest.ask("lease", key="config")
    guest.ask("pour", prefix="poured", args=[STEPS, 0.2])
    old.wait("ran")
    # The first host of the next release migrates the store while the others work with it.
    new = fleet.hire(is_next=True, migrate=True)
    assert store.ask(SCHEMA[store.kind]) == [(before + 1, before)]
    new.wait("ran")
    # An old one goes, and another of the same release comes back and finds the newer schema.
    old.terminate()
    assert old.join(60) == 0
    old = fleet.hire()
    assert fleet.logged("still serves this one")
    old.wait("ran")
    names = guest.ask("cease", limit_s=60)["poured"]
    results = guest.ask("results", ids=names, limit=60, limit_s=70)["results"]
    assert results == [RESULT] * len(names)
    seen = guest.ask("lease", key="config")
    assert (seen["token"], seen["held"]) == (held["token"], True)
    wait_until(lambda: {f"job/{name}" for name in names} <= set(fleet.runs()))
    fleet.dismiss()
    left = fleet.logged("is left to hosts of another release")
    print(f"{store.kind}: {len(names)} flows and as many jobs; {len(left)} were left to the next")
    fleet.check(names, names)
    # Nobody who worked while the tables were changed had anything to repeat. What old hosts leave
    # to the new one they may meet again, if it stood still for longer than they do not ask for it.
    too_new = fleet.logged("a newer release of Outlive wrote events of the kind 'marked'")
    assert set(left) <= set(too_new)
    assert fleet.complaints() == too_new


def wait_until(true: Callable[[], bool]) -> None:
    until = now() + 30
    while not true():
        assert now() < until
        time.sleep(0.1)


@pytest.mark.timeout(240)
def test_what_the_next_release_began_waits_for_it_where_only_old_hosts_are_left(
    store, cast, tmp_path
):
    fleet = Fleet(cast, store, tmp_path)
    new = fleet.hire(is_next=True, migrate=True)
    theirs = [f"new-{number}" for number in range(5)]
    new.ask("start", ids=theirs, args=[STEPS, 3.0])
    # All of them have come past what only that release writes.
    wait_until(lambda: fleet.count('"marked"') == len(theirs))
    new.terminate()
    assert new.join(60) == 0
    guest = fleet.hire("guest")
    fleet.hire()
    wait_until(lambda: len(fleet.logged("is left to hosts of another release")) == len(theirs))
    # What the old release can run is not held up by them.
    ours = [f"old-{number}" for number in range(5)]
    guest.ask("start", ids=ours, args=[STEPS, 0.05])
    results = guest.ask("results", ids=ours, limit=30, limit_s=40)["results"]
    assert results == [RESULT] * len(ours)
    back = now()
    fleet.hire(is_next=True)
    results = guest.ask("results", ids=theirs, limit=90, limit_s=100)["results"]
    print(f"{store.kind}: all of them ended {now() - back:.1f} s after their release came back")
    assert results == [RESULT] * len(theirs)
    fleet.dismiss()
    fleet.check([*theirs, *ours], [])
