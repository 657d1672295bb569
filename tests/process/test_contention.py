"""Many processes, few keys: kills, wrong wall clocks, and a store that nobody has made yet."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.process.actors import now
from tests.process.histories import check_history, handovers, owners_of
from tests.process.stores import newest_token
from tests.services import wall_clock

pytestmark = pytest.mark.process

TTL_S = 0.5
SOAK = os.environ.get("OUTLIVE_SOAK") == "1"


def let_run(contenders, seconds):
    """Wait until ``seconds`` have passed and each has owned the key meanwhile; gives the start."""
    began = now()
    deadline = began + 30.0
    while now() < began + seconds or not all(owned_since(c, began + 0.2) for c in contenders):
        assert now() < deadline, f"somebody never owned the key: {contenders}"
        contenders[0].linger(0.05)
    return began


def owned_since(contender, at):
    return [message for message in contender.all("believe") if message["at"] > at]


def test_hosts_that_start_together_make_one_schema(empty_store, cast):
    hosts = [cast.start("owner", empty_store.url, f"host-{n}") for n in range(5)]
    for host in hosts:
        host.wait("ready")
    tokens = [host.ask("acquire", key=f"k{n}")["token"] for n, host in enumerate(hosts)]
    assert tokens == [1] * 5


@pytest.mark.timeout(300 if SOAK else 120)
def test_no_key_has_two_owners_while_processes_are_killed(sqlite_store, cast, seed):
    keys = ("a", "b", "c")
    chance = random.Random(seed)
    started = 0

    def start():
        nonlocal started
        started += 1
        name = f"contender-{started}"
        arguments = (sqlite_store.url, name, ",".join(keys), TTL_S, started + seed)
        return cast.start("contender", *arguments)

    running = [start() for _ in range(6)]
    for contender in running:
        contender.wait("ready")
    kills_while_held = 0
    until = now() + (120.0 if SOAK else 4.0)
    while now() < until:
        for _ in range(2):
            victim = running.pop(chance.randrange(len(running)))
            # Kill while it owns a key: such a death is the one that others must wait out.
            victim.forget("granted")
            victim.wait("granted")
            victim.kill()
            last = [m for m in victim.heard if m["event"] in {"granted", "release", "lost"}][-1]
            kills_while_held += last["event"] == "granted"
        running += [start(), start()]
        for fresh in running[-2:]:
            fresh.wait("ready")
    for contender in running:
        assert contender.join() == 0, contender
    print(f"seed {seed}, {len(cast.actors) - 6} kills, {kills_while_held} of owners")
    check_history(cast.actors, sqlite_store.kind)
    assert kills_while_held >= 2
    assert {m["error"] for a in cast.actors for m in a.all("met")} <= {"StoreUnavailable"}
    for key in keys:
        assert len(owners_of(cast.actors, key)) >= 10
        assert handovers(cast.actors, key) >= 5
    assert sqlite_store.ask("PRAGMA integrity_check") == [("ok",)]
    for key in keys:
        assert newest_token(sqlite_store, key) >= owners_of(cast.actors, key)[-1][0]


@pytest.mark.service
def test_wall_clocks_hours_apart_and_jumping_change_nothing(store, cast, compiler, tmp_path):
    ahead, behind = tmp_path / "ahead", tmp_path / "behind"
    # A disk or a machine that pauses for longer than the ttl would end a lease as well; clocks are
    # the matter.
    url = f"{store.url}?synchronous=normal" if store.kind == "sqlite" else store.url
    ttl_s = 5.0
    contenders = [
        cast.start(
            *("contender", url, file.name, "k", ttl_s, seed),
            env=wall_clock.environment(file, offset_s),
        )
        for seed, (file, offset_s) in enumerate(((ahead, 3600), (behind, -3600)), 1)
    ]
    for contender in contenders:
        contender.wait("ready")
    let_run(contenders, 2.0)
    jumping = now()
    wall_clock.shift(ahead, -3600)
    wall_clock.shift(behind, 3600)
    jumped = let_run(contenders, 2.0)
    for contender in contenders:
        assert contender.join() == 0, contender
    check_history(contenders, store.kind)
    for contender in contenders:
        assert contender.all("lost") == contender.all("met") == [], contender
    assert handovers(contenders, "k") >= 2
    true_offset = time.time() - now()
    for contender, sign in zip(contenders, (1, -1), strict=True):
        later = owned_since(contender, jumped + 0.2)
        seen = [m for m in contender.all("believe") if m["at"] < jumping]
        assert seen
        assert later
        for messages, direction in ((seen, sign), (later, -sign)):
            for message in messages:
                offset = message["wall"] - message["at"] - true_offset
                assert offset == pytest.approx(direction * 3600, abs=60)
    # Long holds were kept alive by renewals, through the jump as well.
    deadlines = {}
    for contender in contenders:
        for message in (*contender.all("granted"), *contender.all("believe")):
            deadlines.setdefault(message["grant"], []).append(message["deadline"])
    assert max(max(d) - min(d) for d in deadlines.values()) > 0.5
