"""A command under a lease: its exit, its environment, its signals, and its end with the lease."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests.cli.conftest import is_running, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

# Writes its own pid and that of a grandchild, then waits for both.
SLEEPER = "sleep 100 & echo $$ $! > pids.tmp; mv pids.tmp pids; wait"


def pids(outlive):
    path = outlive.folder / "pids"
    wait_until(path.exists)
    return [int(word) for word in path.read_text().split()]


def wait_gone(numbers):
    wait_until(lambda: not any(is_running(number) for number in numbers))


def test_the_exit_code_is_the_commands(outlive):
    assert outlive("lease", "run", "k", "--", "true").code == 0
    assert outlive("lease", "run", "k", "--", "sh", "-c", "exit 7").code == 7
    assert outlive("lease", "run", "k", "--", "sh", "-c", "kill -9 $$").code == 137


def test_a_command_that_cannot_start_says_so_as_a_shell_would(outlive):
    missing = outlive("lease", "run", "k", "--", "no-such-command")
    assert missing.code == 127
    assert "'no-such-command' cannot be started: No such file" in missing.stderr
    assert outlive("lease", "run", "k", "--", "/").code == 126
    assert outlive("lease", "ls", "-o", "jsonl").lines == []


def test_the_command_knows_its_lease_and_keeps_its_streams(outlive):
    script = 'read line; echo "$line:$OUTLIVE_LEASE_KEY:$OUTLIVE_LEASE_TOKEN"; echo oops >&2'
    (outlive.folder / "input").write_text("from stdin\n")
    done = outlive("lease", "run", "a b", "--", "sh", "-c", f"({script}) < input")
    assert done.stdout == "from stdin:a b:1\n"
    assert done.stderr == "oops\n"
    owner = outlive("lease", "run", "a b", "--", "sh", "-c", "echo $OUTLIVE_LEASE_OWNER").stdout
    entries = outlive("lease", "history", "a b", "-o", "json").document["history"]
    assert owner.strip() == entries[0]["owner"]
    assert entries[0]["ended"] == "released"


def test_a_command_may_use_outlive_itself(outlive):
    inner = f"{sys.executable} -m outlive.cli.main lease show k -o jsonl"
    done = outlive("lease", "run", "k", "--", "sh", "-c", inner)
    assert done.code == 0
    assert done.lines[0]["slots"][0]["metadata"]["command"].startswith(f"sh -c '{inner[:40]}")


def test_a_loser_learns_which_process_runs_what(outlive):
    owner = outlive.start(
        *("lease", "run", "k", "--metadata", "ticket=OPS-7", "--"),
        *("sh", "-c", SLEEPER, "--password=canary"),
    )
    pids(outlive)
    for waiting in ("0", "0.2"):
        refused = outlive("lease", "run", "k", "--timeout", waiting, "--", "true")
        assert refused.code == 75
        said, error = refused.stderr.splitlines()
        assert f"is used by pid {owner.pid} on " in said
        assert "sh -c 'sleep 100" in said
        assert "canary" not in said
        assert "lease 'k'" in error
    metadata = outlive("lease", "show", "k", "-o", "json").document["slots"][0]["metadata"]
    assert metadata["ticket"] == "OPS-7"
    assert outlive("lease", "run", "k", "--metadata", "ticket", "--", "true").code == 2


def test_a_pipe_that_closes_ends_the_command_and_not_its_wrapper(outlive):
    done = outlive("lease", "run", "k", "--", "sh", "-c", "yes | head -1")
    assert (done.code, done.stdout, done.stderr) == (0, "y\n", "")


def test_a_held_lease_is_not_to_be_had(outlive):
    outlive("lease", "acquire", "k")
    refused = outlive("lease", "run", "k", "--", "touch", "ran")
    assert refused.code == 75
    assert not (outlive.folder / "ran").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_reach_the_command(outlive, number):
    script = f"trap 'echo heard; exit 5' {number.name.removeprefix('SIG')}; {SLEEPER}"
    running = outlive.start("lease", "run", "k", "--", "sh", "-c", script)
    family = pids(outlive)
    running.send_signal(number)
    done = outlive.finish(running)
    assert (done.code, done.stdout) == (5, "heard\n")
    wait_gone(family)


def test_a_command_without_a_handler_dies_of_the_signal(outlive, shell):
    running = outlive.start("lease", "run", "k", "--", "sh", "-c", SLEEPER)
    family = pids(outlive)
    running.terminate()
    assert outlive.finish(running).code == 128 + signal.SIGTERM
    wait_gone(family)
    assert shell("lease", "acquire", "k").code == 0


def test_a_broken_lease_stops_the_whole_group(outlive, shell):
    script = f"trap 'echo told; exit 0' TERM; {SLEEPER}"
    running = outlive.start("lease", "run", "k", "--ttl", "3", "--", "sh", "-c", script)
    family = pids(outlive)
    shell("lease", "break", "k", "--reason", "maintenance of the tape robot")
    done = outlive.finish(running)
    assert (done.code, done.stdout) == (76, "told\n")
    assert "lease 'k' was lost (broken: maintenance of the tape robot)" in done.stderr
    wait_gone(family)


def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(outlive, shell):
    script = f"trap '' TERM; {SLEEPER}"
    options = ("--ttl", "3", "--stop-grace", "0.2")
    running = outlive.start("lease", "run", "k", *options, "--", "sh", "-c", script)
    family = pids(outlive)
    shell("lease", "break", "k", "--reason", "test")
    assert outlive.finish(running).code == 76
    wait_gone(family)


def test_what_a_command_leaves_behind_is_gone_before_the_lease_is_free(outlive):
    script = "sleep 100 & echo $! > pids.tmp; mv pids.tmp pids; exit 3"
    assert outlive("lease", "run", "k", "--", "sh", "-c", script).code == 3
    assert not any(is_running(number) for number in pids(outlive))


def test_the_command_dies_with_a_wrapper_that_is_killed(outlive):
    running = outlive.start("lease", "run", "k", "--", "sh", "-c", SLEEPER)
    family = pids(outlive)
    running.kill()
    wait_gone(family)


def test_a_stopped_wrapper_cannot_keep_its_command_alive_past_the_ttl(outlive, shell):
    running = outlive.start("lease", "run", "k", "--ttl", "1.5", "--", "sh", "-c", SLEEPER)
    family = pids(outlive)
    os.kill(running.pid, signal.SIGSTOP)
    # Waits in the queue until the store itself gives the key away.
    assert shell("lease", "acquire", "k", "--timeout", "30").code == 0
    assert not any(is_running(number) for number in family)
    os.kill(running.pid, signal.SIGCONT)
    assert outlive.finish(running).code == 76


def test_a_waiting_run_is_stopped_by_a_signal_before_its_command_starts(outlive, shell):
    shell("lease", "acquire", "k", "--ttl", "60")
    waiting = outlive.start("lease", "run", "k", "--timeout", "forever", "--", "touch", "ran")

    def queued():
        shown = shell("lease", "show", "k", "-o", "json").document
        return shown["slots"][0]["waiters"] == 1

    wait_until(queued)
    waiting.terminate()
    assert outlive.finish(waiting).code == 143
    assert not (outlive.folder / "ran").exists()


def test_runs_of_one_key_never_overlap(outlive):
    script = "echo in >> log; sleep 0.05; echo out >> log"
    several = [
        outlive.start("lease", "run", "k", "--timeout", "60", "--", "sh", "-c", script)
        for _ in range(6)
    ]
    assert [outlive.finish(process).code for process in several] == [0] * 6
    assert (outlive.folder / "log").read_text().split() == ["in", "out"] * 6


def test_as_many_as_the_limit_run_together(outlive):
    running = outlive.start("lease", "run", "k", "--limit", "2", "--", "sh", "-c", SLEEPER)
    pids(outlive)
    assert outlive("lease", "run", "k", "--limit", "2", "--", "true").code == 0
    running.terminate()
    outlive.finish(running)
