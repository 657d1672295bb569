"""What the scripts of jobs take and give, as the values of the port."""

from __future__ import annotations

import pytest

from outlive.drivers.redis.job_records import (
    attempts_of,
    claimed_of,
    optional,
    queue_of,
    record_of,
    text_of,
    words_of,
)
from outlive.errors import UsageError
from outlive.model.job import JobState, NewJob, QueueMode
from outlive.names import JobId

pytestmark = pytest.mark.whitebox

NEW = NewJob(id=JobId("a"), queue="q", payload='{"n":1}', headers='{"h":2}', unique_key="u")
BODY = words_of([NEW])[2]


def test_a_missing_text_differs_from_an_empty_one():
    assert optional(None) == ""
    assert optional("") == "="


def test_every_job_is_the_same_number_of_words():
    one, two = words_of([NEW]), words_of([NEW, NEW])
    assert two == one + one


def test_text_that_is_not_unicode_is_refused():
    with pytest.raises(UsageError, match="Unicode"):
        text_of("\udcff")


def test_a_claimed_job_has_what_was_enqueued():
    (claimed,), damaged = claimed_of(["a", "q", 7, BODY, "1", "2", "5"])
    assert damaged == []
    assert (claimed.payload, claimed.headers, claimed.unique_key) == ('{"n":1}', '{"h":2}', "u")
    assert (claimed.token, claimed.attempts, claimed.losses) == (7, 1, 2)


@pytest.mark.parametrize("body", [None, "", "?", "[1]", "{}"])
def test_a_damaged_job_is_apart_from_the_others(body):
    words = ["bad", "q", 7, body, "0", "0", "5", "a", "q", 8, BODY, "0", "0", "5"]
    claimed, (damaged,) = claimed_of(words)
    assert [job.id for job in claimed] == ["a"]
    assert (damaged.id, damaged.token, damaged.retry_us) == ("bad", 7, None)


def test_a_record_says_nothing_of_what_never_was():
    fields = ["queue", "q", "state", "ready", "number", "3", "enqueued", "1000000"]
    record = record_of(["a", fields, BODY])
    assert (record.state, record.cursor, record.token) == (JobState.READY, "3", 0)
    assert record.due_at == record.enqueued_at
    assert (record.claimed_by, record.session, record.claimed_at, record.error) == (None,) * 4


def test_a_cancellation_is_asked_for_only_while_the_job_is_claimed():
    fields = ["queue", "q", "number", "3", "enqueued", "1", "cancel", '"x"', "state"]
    assert record_of(["a", [*fields, "claimed"], BODY]).cancel_requested
    assert not record_of(["a", [*fields, "done"], BODY]).cancel_requested


def test_troubles_come_back_as_attempts():
    (lost,) = attempts_of(['["9","lost","w\\/1","5","6",null]'])
    assert (lost.token, lost.outcome, lost.worker, lost.error) == (9, "lost", "w/1", None)


def test_a_queue_counts_only_states_that_have_jobs():
    queue = queue_of(["q", None, [0, 2, 0, 0, 0, 1, 0], "1000000"], 3_000_000)
    assert queue.counts == {JobState.READY: 2, JobState.DEAD: 1}
    assert (queue.settings.mode, queue.oldest_ready_s) == (QueueMode.OPEN, 2.0)
