"""The judge of job histories: a clean one passes, and each rule catches its planted defect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.process.job_histories import Claim, Enqueue, JobHistory, Row, check

FIRST = Claim(
    worker="a", job="1", token=5, asked_at=1.0, at=1.1, believed_at=1.5, outcome="lost",
    settled_at=1.5,
)  # fmt: skip
SECOND = Claim(
    worker="b", job="1", token=6, asked_at=3.0, at=3.1, believed_at=3.2, outcome="completed",
    settled_at=3.2,
)  # fmt: skip
ENTRY = Enqueue(job="1", asked_at=0.0, at=0.1)
ROW = Row(job="1", state="done", token=6, losses=1)


def history(*claims: Claim, enqueued=(ENTRY,), rows=(ROW,)) -> JobHistory:
    return JobHistory(enqueued=list(enqueued), claims=list(claims), rows=list(rows))


def test_a_job_that_was_lost_once_and_completed_once_is_fine():
    assert check(history(FIRST, SECOND)) == []


@pytest.mark.parametrize(
    ("rule", "planted"),
    [
        ("Q1", history(replace(FIRST, believed_at=3.15), SECOND)),
        ("Q2", history(replace(FIRST, token=6), SECOND)),
        ("Q2", history(replace(FIRST, asked_at=3.5, at=3.6, believed_at=0), SECOND)),
        ("Q3", history(FIRST, SECOND, rows=())),
        ("Q3", history(FIRST, SECOND, rows=(replace(ROW, state="ready"),))),
        ("Q3", history(FIRST, SECOND, rows=(ROW, replace(ROW, job="2")))),
        ("Q4", history(FIRST, SECOND, replace(FIRST, job="phantom"))),
        ("Q4", history(FIRST, SECOND, enqueued=(replace(ENTRY, due_s=2.0),))),
        ("Q5", history(replace(FIRST, outcome="completed"), SECOND)),
        ("Q5", history(FIRST, SECOND, rows=(replace(ROW, token=7),))),
        (
            "Q6",
            history(
                FIRST,
                SECOND,
                enqueued=(
                    replace(ENTRY, unique_key="u"),
                    Enqueue(job="2", asked_at=2.0, at=2.1, unique_key="u"),
                ),
                rows=(ROW, replace(ROW, job="2")),
            ),
        ),
    ],
)
def test_each_rule_catches_what_breaks_it(rule, planted):
    assert rule in {violation.rule for violation in check(planted)}


def test_a_unique_key_is_free_again_after_the_end():
    later = Enqueue(job="2", asked_at=3.3, at=3.4, unique_key="u")
    entries = (replace(ENTRY, unique_key="u"), later)
    assert check(history(FIRST, SECOND, enqueued=entries, rows=(ROW, replace(ROW, job="2")))) == []
