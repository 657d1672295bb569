"""The small examples do what their first lines say, and stay small."""

from __future__ import annotations

import signal

import pytest

from tests.examples.conftest import EXAMPLES

pytestmark = pytest.mark.process

URL = "sqlite:///leases.db"
SMALL = ("basic_lease", "cron_singleton", "leader_election")
LINES_MAX = 100


def test_a_basic_lease_lets_one_work(programs):
    # It works until it is told to stop, however long the other takes to start.
    first = programs.start("basic_lease/main.py", URL, "worker-1", "600")
    assert first.hear("step 1") == "step 1 of 600, token 1"
    second = programs.start("basic_lease/main.py", URL, "worker-2")
    second.hear("not ours: worker-1/")
    assert second.finish() == 0
    first.process.send_signal(signal.SIGINT)
    first.finish()
    third = programs.start("basic_lease/main.py", URL, "worker-3")
    assert third.finish() == 0
    assert third.said[0] == "step 1 of 3, token 2"
    assert third.said[-1] == "done"
    assert "event: Released" in third.said


def test_an_election_has_one_leader_in_each_term(programs):
    first = programs.start("leader_election/main.py", URL, "worker-1")
    first.hear("elected, term 1")
    second = programs.start("leader_election/main.py", URL, "worker-2")
    second.hear("the leader is worker-1")
    first.process.terminate()
    second.hear("elected, term 2")
    assert first.finish() == 0
    assert "stepping down" in first.said
    third = programs.start("leader_election/main.py", URL, "worker-3")
    third.hear("the leader is worker-2")
    second.process.kill()
    third.hear("elected, term 3")
    third.hear("took over from worker-2/")
    third.process.terminate()
    assert third.finish() == 0


def test_a_tick_runs_on_one_machine(programs):
    first = programs.start("cron_singleton/main.py", URL, "machine-1")
    first.hear("tick ")
    second = programs.start("cron_singleton/main.py", URL, "machine-2")
    second.hear("ready")
    first.hear("tick ")
    first.process.terminate()
    second.hear("tick ")
    second.process.terminate()
    assert (first.finish(), second.finish()) == (0, 0)
    ticks = [line for line in (*first.said, *second.said) if line.startswith("tick")]
    numbers = [line.split()[1].strip(",") for line in ticks]
    assert len(numbers) >= 3
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("name", SMALL)
def test_small_examples_stay_small_and_are_explained(name):
    lines = (EXAMPLES / name / "main.py").read_text().splitlines()
    assert len(lines) < LINES_MAX
    readme = (EXAMPLES / name / "README.md").read_text()
    assert f"python examples/{name}/main.py sqlite:///leases.db" in readme
