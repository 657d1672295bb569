"""The checker of jobs: each invariant has a smallest history that breaks it, and one keeps all."""

from __future__ import annotations

import pytest

from outlive.model.job import Changed, Entry, JobState, Settled
from tests.simulation.oracles.job_checker import check_jobs
from tests.simulation.oracles.job_history import JobHistory, JobServed


def served(op: str, job: str = "j", outcome: str = "", at: float = 0.0, **fields) -> JobServed:
    return JobServed(at=at, op=op, job=job, outcome=outcome, **fields)


def added(job: str = "j", entry: Entry = Entry.CREATED, **fields) -> JobServed:
    return served("enqueue", job, entry, queue="q", **fields)


def claimed(token: int, job: str = "j", session: str = "s", at: float = 0.0) -> JobServed:
    return served("claim", job, token=token, session=session, at=at)


def settled(op: str, token: int, outcome: Settled = Settled.OK, **fields) -> JobServed:
    return served(op, outcome=outcome, token=token, **fields)


def ended(session: str = "s") -> JobServed:
    return served("session.end", "", session=session)


def rules(*story: JobServed, left=None, acknowledged=()) -> set[str]:
    history = JobHistory(7, lambda: 0.0, list(story))
    history.left = left
    history.acknowledged.update(acknowledged)
    return {violation.rule for violation in check_jobs(history)}


def test_a_life_with_every_turn_is_sound():
    assert (
        rules(
            added(delay_s=1.0, unique_key="u"),
            added("j", Entry.REJECTED, unique_key="u"),
            claimed(1, at=1.0),
            claimed(1, at=1.0),
            settled("extend", 1),
            settled("release", 1),
            settled("release", 1),
            claimed(2, at=2.0),
            settled("release", 1, Settled.LOST),
            settled("fail", 2, at=2.0, delay_s=1.0),
            claimed(3, at=3.0),
            ended(),
            served("reclaim", outcome=JobState.READY),
            settled("complete", 3, Settled.LOST),
            claimed(4, session="t", at=3.0),
            settled("complete", 4),
            settled("complete", 4),
            added("k", unique_key="u"),
            left={"j": JobState.DONE, "k": JobState.CANCELLED},
            acknowledged=("j", "k"),
        )
        == set()
    )


BROKEN = {
    "claimed while claimed": ("Q1", [added(), claimed(1), claimed(2, session="t")]),
    "claimed by who has ended": ("Q1", [added(), ended(), claimed(1)]),
    "taken from the living": ("Q1", [added(), claimed(1), served("reclaim", outcome="ready")]),
    "taken from nobody": ("Q1", [added(), ended(), served("reclaim", outcome="ready")]),
    "cancelled under its claim": (
        "Q1",
        [added(), claimed(1), served("cancel", outcome=Changed.CHANGED)],
    ),
    "two of one ordering key": (
        "Q1",
        [added(ordering_key="o"), added("k", ordering_key="o"), claimed(1), claimed(2, "k")],
    ),
    "out of the order of its key": (
        "Q1",
        [added(ordering_key="o"), added("k", ordering_key="o"), claimed(1, "k")],
    ),
    "a token that does not grow": ("Q2", [added(), claimed(2), settled("release", 2), claimed(2)]),
    "claimed and never enqueued": ("Q4", [claimed(1)]),
    "claimed early": ("Q4", [added(delay_s=2.0), claimed(1, at=1.0)]),
    "a retry claimed early": (
        "Q4",
        [added(), claimed(1), settled("fail", 1, delay_s=5.0), claimed(2, at=1.0)],
    ),
    "claimed after its end": ("Q5", [added(), claimed(1), settled("complete", 1), claimed(2)]),
    "settled under an older claim": (
        "Q5",
        [added(), claimed(1), settled("release", 1), claimed(2), settled("complete", 1)],
    ),
    "the newest claim refused": ("Q5", [added(), claimed(1), settled("complete", 1, Settled.LOST)]),
    "a repeat refused": (
        "Q5",
        [added(), claimed(1), settled("complete", 1), settled("complete", 1, Settled.LOST)],
    ),
    "done and living again": (
        "Q5",
        [added(), claimed(1), settled("complete", 1), served("retry", outcome=Changed.CHANGED)],
    ),
    "two of one unique key": ("Q6", [added(unique_key="u"), added("k", unique_key="u")]),
    "known and never enqueued": ("Q6", [served("known", outcome=Entry.EXISTING)]),
    "rejected for nobody": ("Q6", [added("k", Entry.REJECTED, unique_key="u")]),
    "a claimed one replaced": (
        "Q6",
        [added(unique_key="u"), claimed(1), added("k", Entry.REPLACED, unique_key="u")],
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_the_smallest_history_that_breaks_a_rule_is_found(what: str):
    rule, story = BROKEN[what]
    assert rules(*story) == {rule}


def test_what_vanished_or_waits_for_ever_is_found():
    assert rules(added(), left={}, acknowledged=("j",)) == {"Q3"}
    assert rules(added(), left={"j": JobState.READY}, acknowledged=("j",)) == {"Q7"}
    done = [added(), claimed(1), settled("complete", 1)]
    assert rules(*done, left={"j": JobState.DEAD}, acknowledged=("j",)) == {"Q5"}


def test_work_under_an_older_claim_is_found_unless_clocks_may_differ_so_much():
    history = JobHistory(7, lambda: 0.0)
    for token in (1, 2, 1):
        history.work("a", "j", token)
    assert [violation.rule for violation in check_jobs(history)] == ["Q1"]
    assert check_jobs(history, drifted=True) == []
