"""A mistyped name is told from an empty queue: in an incident, nothing else shows it."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("made_store")


@pytest.fixture
def emails(shell):
    """A store whose queue ``emails`` has a job."""
    assert shell("work", "enqueue", "emails", "1").code == 0
    return shell


@pytest.mark.parametrize(
    "command",
    [
        ("pause", "emials"),
        ("resume", "emials"),
        ("drain", "emials"),
        ("limit", "emials", "--concurrency", "3"),
        ("ls", "--queue", "emials"),
        ("dead", "--queue", "emials"),
        ("stats", "--queue", "emials"),
        ("retry", "--queue", "emials"),
        ("cancel", "--queue", "emials"),
    ],
)
def test_a_queue_that_nothing_uses_is_not_found_and_the_nearest_is_named(emails, command):
    got = emails("work", *command)
    assert (got.code, got.stdout) == (66, "")
    assert "no queue 'emials' in this namespace; did you mean 'emails'?" in got.stderr
    (row,) = emails("work", "stats", "-o", "json").document["queues"]
    assert (row["queue"], row["mode"], row["concurrency"]) == ("emails", "open", None)


def test_the_first_job_of_a_queue_with_nearly_the_name_of_another_is_taken_for_a_typo(emails):
    got = emails("work", "enqueue", "emials", "1")
    assert (got.code, got.stdout) == (66, "")
    assert "no queue 'emials' in this namespace; did you mean 'emails'?" in got.stderr
    assert "--create" in got.stderr
    assert emails("work", "enqueue", "invoices", "1").code == 0
    assert emails("work", "enqueue", "emials", "1", "--create").code == 0
    assert emails("work", "enqueue", "emials", "2").code == 0


@pytest.mark.parametrize(
    "command", [("pause", "later"), ("drain", "later"), ("limit", "later", "--rate", "5")]
)
def test_a_queue_may_be_steered_before_it_is_used(emails, command):
    assert "--create" in emails("work", *command).stderr
    assert emails("work", *command, "--create").code == 0
    queues = emails("work", "stats", "-o", "json").document["queues"]
    assert [row["queue"] for row in queues] == ["emails", "later"]
    assert emails("work", *command).code == 0


def test_an_empty_queue_is_no_typo(emails):
    found = emails("work", "ls", "--queue", "emails", "--state", "dead")
    assert (found.code, found.stderr) == (0, "")


def test_a_namespace_that_is_named_and_has_nothing_is_noted(emails):
    for noun, verb, name in (("work", "stats", "queues"), ("flow", "ls", "flows")):
        got = emails("--namespace", "nosuch", noun, verb)
        assert (got.code, got.stderr) == (0, f"outlive: note: namespace 'nosuch' has no {name}\n")
    assert emails("flow", "ls").stderr == ""


def test_the_first_flow_of_a_name_is_noted_with_the_nearest_name(emails):
    first = emails("flow", "start", "checkout")
    assert "this is the first flow named 'checkout' in this namespace; it waits" in first.stderr
    assert emails("flow", "start", "checkout").stderr == ""
    typo = emails("flow", "start", "chekout")
    assert typo.code == 0
    assert "did you mean 'checkout'?" in typo.stderr
