"""What contenders said, as a history that the oracle of ``tests.simulation`` can judge.

Owns the translation only. Times are of the machine's boot-time clock, the same for all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

from tests.process.actors import Actor, Message
from tests.process.wall_clock import forward_steps
from tests.simulation.oracles.history import Call, History
from tests.simulation.oracles.lease_checker import (
    Facts,
    Violation,
    check_l1,
    check_l2,
    check_l3,
    check_l7,
)

# The events of a contender, as operations of a history.
_OPS = {
    "granted": "acquire",
    "believe": "believe",
    "renewed": "renew",
    "lost": "lost",
    "release": "release",
}

# The stores that judge expiry by the wall clock of their server.
_BY_WALL_CLOCK = ("postgres", "redis")


def history_of(actors: Iterable[Actor]) -> History:
    """All that ``actors`` said; those that were killed count as crashed from then on."""
    history = History(seed=0, clock=lambda: math.nan)
    for actor in actors:
        for message in actor.heard:
            if message["event"] in _OPS:
                history.calls.append(_call(actor.name, message))
        if actor.process.returncode == -9:
            assert actor.ended_at is not None
            history.crashed[actor.name] = actor.ended_at
    history.calls.sort(key=lambda call: call.t_start)
    return history


def _call(proc: str, message: Message) -> Call:
    call = Call(
        clock=lambda: math.nan,
        proc=proc,
        op=_OPS[message["event"]],
        key=message["key"],
        t_start=message.get("asked", message["at"]),
        grant=message["grant"],
    )
    call.t_end = message["at"]
    call.ok = True
    call.token = message["token"]
    call.deadline = message.get("deadline")
    return call


def violations_of(actors: Iterable[Actor], store: str) -> list[Violation]:
    """What ``actors`` said that must not be.

    A token granted twice or out of order, two owners at one time, or a renewal after somebody else
    was granted the key. Where ``store`` follows the wall clock and that was set forward meanwhile,
    two owners at one time prove nothing, and the test says so.
    """
    actors = list(actors)
    facts = Facts(history_of(actors))
    found = [*check_l1(facts), *check_l2(facts), *check_l7(facts)]
    steps = forward_steps(reading for actor in actors for reading in actor.readings)
    if steps and store in _BY_WALL_CLOCK:
        print(f"the wall clock of the machine was set forward, so L3 was not judged: {steps}")
        return found
    return [*found, *check_l3(facts)]


def check_history(actors: Iterable[Actor], store: str) -> None:
    """Tokens are granted once and grow; nobody believes in a key while another does."""
    violations = violations_of(actors, store)
    assert violations == [], "\n".join(map(str, violations[:10]))


def owners_of(actors: Iterable[Actor], key: str) -> list[tuple[int, str]]:
    """Token and process of every grant of ``key``, in the order of the tokens."""
    return sorted(
        (message["token"], actor.name)
        for actor in actors
        for message in actor.all("granted", key=key)
    )


def handovers(actors: Iterable[Actor], key: str) -> int:
    """How often a key went from one process to another."""
    names = [name for _, name in owners_of(actors, key)]
    return sum(before != after for before, after in pairwise(names))
