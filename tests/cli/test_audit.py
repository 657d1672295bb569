"""What admins do from a command line is written down, before it is done."""

from __future__ import annotations

import os
import pwd
import socket

import pytest

from outlive.cli import audit
from tests.cli.conftest import Shell

pytestmark = pytest.mark.usefixtures("made_store")

HERE = socket.gethostname()


def acts(shell: Shell) -> list[tuple[str, str]]:
    found = shell("token", "audit", "-o", "json").document["acts"]
    assert {act["actor"] for act in found} <= {f"{pwd.getpwuid(os.getuid()).pw_name}@{HERE}"}
    return [(act["action"], act["subject"]) for act in reversed(found)]


def test_acts_on_jobs_and_queues_are_written_down(shell):
    job = shell("work", "enqueue", "q", "1", "-o", "json").document["id"]
    for command in (
        ("pause", "q"),
        ("resume", "q"),
        ("drain", "q"),
        ("limit", "q", "--concurrency", "5", "--rate", "100/60"),
        ("limit", "q", "--lift"),
        ("cancel", job),
        ("retry", job),
        ("cancel", "--queue", "q", "--state", "ready"),
    ):
        assert shell("work", *command).code == 0, command
    assert acts(shell) == [
        ("work pause", "q"),
        ("work resume", "q"),
        ("work drain", "q"),
        ("work limit", "q, concurrency 5, rate 100 in 60 s"),
        ("work limit", "q, limits removed"),
        ("work cancel", job),
        ("work retry", job),
        ("work cancel", "all, queue q, state ready"),
    ]


def test_acts_that_fail_are_written_down_and_wrong_names_are_not(shell):
    assert shell("work", "enqueue", "q", "1").code == 0
    assert shell("work", "retry", "nope").code == 66
    assert shell("flow", "terminate", "nope").code == 66
    assert shell("schedule", "rm", "nope").code == 66
    assert shell("work", "pause", "a\nb").code == 2
    assert shell("work", "limit", "a\nb", "--lift").code == 2
    assert shell("work", "limit", "q", "--concurrency", "0").code == 2
    assert shell("lease", "break", "", "--reason", "x").code == 2
    assert acts(shell) == [
        ("work retry", "nope"),
        ("flow terminate", "nope"),
        ("schedule rm", "nope"),
    ]


def test_broken_leases_are_written_down(shell):
    assert shell("lease", "acquire", "k", "--ttl", "60").code == 0
    assert shell("lease", "break", "k", "--reason", "stuck").code == 0
    assert acts(shell) == [("lease break", "k")]


def test_looking_is_no_act(shell):
    assert shell("work", "enqueue", "q", "1").code == 0
    for command in (("work", "ls"), ("flow", "ls"), ("schedule", "ls"), ("lease", "ls")):
        assert shell(*command).code == 0
    assert acts(shell) == []


@pytest.mark.parametrize("name", ["LOGNAME", "USER", "LNAME", "USERNAME"])
def test_nobody_acts_under_the_name_of_another(monkeypatch, name):
    monkeypatch.setenv(name, "somebody-else")
    assert audit.actor() == f"{pwd.getpwuid(os.getuid()).pw_name}@{HERE}"


def test_one_who_has_no_name_acts_under_a_number(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_007)
    assert audit.actor() == f"4000000007@{HERE}"
