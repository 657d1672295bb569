"""Eight processes acquire, renew, stall past the ttl and release at random: nothing overlaps.

The same on every store that processes share, judged by the checker that judges simulations; and a
control that would be no test if it passed: clients that never look at their deadline.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from tests.process.actors import Actor, now
from tests.process.histories import handovers, violations_of

pytestmark = pytest.mark.process

SOAK = os.environ.get("OUTLIVE_SOAK") == "1"
PROCESSES = 8
KEYS = ("a", "b")
# Short enough to be waited out, long enough to be renewed on a busy machine.
TTL_S = 0.8
SECONDS = 60.0 if SOAK else 5.0
# Whether a stalled owner finds its lease lost is chance: it may have been about to release. A run
# goes on until some have, for so long at most; and that of the control until it shows a violation.
MOST_SECONDS = max(60.0, 4 * SECONDS)
LOST_LEAST = 2


def fleet(cast, store, seed: int, manner: str = "careful") -> list[Actor]:
    """All of them connected, and contending."""
    actors = [
        cast.start(
            *("contender", store.url, f"host-{number}", ",".join(KEYS)),
            *(TTL_S, seed + number, manner),
        )
        for number in range(PROCESSES)
    ]
    for actor in actors:
        actor.wait("ready")
    return actors


def stall_at_random(actors: list[Actor], dice: random.Random, enough: Callable[[], bool]) -> int:
    """Stop one after the other for longer than the ttl; how many of them owned a key then."""
    owned = 0
    begun = now()
    while now() < begun + SECONDS or (now() < begun + MOST_SECONDS and not enough()):
        victim = dice.choice(actors)
        if dice.random() < 0.7:
            # A stalled owner is the one who could do harm.
            victim.forget("granted")
            victim.wait("granted")
        victim.freeze()
        last = [m for m in victim.heard if m["event"] in {"granted", "release", "lost"}][-1:]
        owned += bool(last) and last[0]["event"] == "granted"
        others = [actor for actor in actors if actor is not victim]
        thaw_at = now() + TTL_S * dice.uniform(1.1, 1.5)
        while now() < thaw_at:
            others[0].linger(0.05)
        victim.thaw()
    return owned


@pytest.mark.timeout(60 + 2 * MOST_SECONDS)
def test_stalled_owners_never_overlap_their_successors(shared_store, cast, seed):
    actors = fleet(cast, shared_store, seed)
    owned = stall_at_random(
        actors,
        random.Random(seed),
        lambda: sum(len(actor.all("lost")) for actor in actors) >= LOST_LEAST,
    )
    for actor in actors:
        assert actor.join() == 0, actor
    heard = {
        event: sum(len(a.all(event)) for a in actors) for event in ("granted", "renewed", "lost")
    }
    print(f"seed {seed}: {heard}, {owned} owners stalled")
    violations = violations_of(actors, shared_store.kind)
    assert violations == [], "\n".join(map(str, violations[:10]))
    assert {m["error"] for a in actors for m in a.all("met")} <= {"StoreUnavailable"}
    # Without these the run would prove nothing.
    assert owned >= 1
    assert heard["lost"] >= LOST_LEAST
    assert heard["renewed"] >= 5
    for key in KEYS:
        assert handovers(actors, key) >= 3


@pytest.mark.timeout(60 + 2 * MOST_SECONDS)
def test_the_checker_reports_owners_that_never_look_at_their_deadline(sqlite_store, cast, seed):
    actors = fleet(cast, sqlite_store, seed, "careless")

    def rules_broken() -> set[str]:
        return {violation.rule for violation in violations_of(actors, sqlite_store.kind)}

    # These never notice a loss.
    stall_at_random(actors, random.Random(seed), lambda: "L3" in rules_broken())
    for actor in actors:
        actor.join()
    assert "L3" in rules_broken()
