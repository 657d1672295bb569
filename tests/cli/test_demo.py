"""The competition, as people watch it in several terminals and as scripts read it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from outlive.connect import find_factory
from outlive.demo import __main__ as story
from tests.cli.conftest import COMMAND

FIRST = ("--instance", "us-east-1", "--region", "us-east")
SECOND = ("--instance", "eu-west-1", "--region", "eu-west")


def compete(program, *arguments, **environ):
    return program.at_terminal("demo", "compete", *arguments, **environ)


def least_ttl(program) -> str:
    """A ttl that the store accepts and that a test can wait for."""
    scheme = program.url.partition("://")[0]
    return str(max(3.0, find_factory(scheme).capabilities.ttl_min_s))


def test_one_wins_and_the_other_learns_who(shared):
    winner = compete(shared, *FIRST, "--work", "60")
    winner.expect(r"LOCK ACQUIRED")
    for line in (r"instance +us-east-1", r"region +us-east", r"lease id +\S+"):
        winner.expect(line)
    token = winner.expect(r"token +(\d+)\n")[1]
    winner.expect(r"version +\d+")
    winner.expect(r"item +1/60 +elapsed +1\.\d s +renewals 0 +version \d+ +left \d")
    loser = compete(shared, *SECOND)
    loser.expect(r"LOCK ACQUISITION FAILED")
    loser.expect(rf"owned by +us-east-1\n +region +us-east\n +token +{token}\n")
    assert loser.finish() == 0
    winner.interrupt()
    assert winner.finish() == 128 + signal.SIGINT
    # What an interrupted instance owned is free at once.
    last = compete(shared, *SECOND, "--work", "0.2")
    last.expect(r"LOCK ACQUIRED")
    last.expect(r"LOCK RELEASED\W+items: 1 in 0\.\d s; renewals: 0")
    assert last.finish() == 0


def test_another_takes_over_from_one_that_was_killed(shared):
    ttl = least_ttl(shared)
    winner = compete(shared, *FIRST, "--work", "60", "--ttl", ttl)
    token = winner.expect(r"token +(\d+)\n")[1]
    follower = compete(shared, *SECOND, "--wait", "60", "--work", "0.2", "--ttl", ttl)
    follower.expect(r"LOCK ACQUISITION FAILED")
    follower.expect(r"waiting for the lock for at most 60 s")
    winner.expect(r"renewals [1-9]")
    winner.process.kill()
    follower.expect(r"LOCK ACQUIRED")
    assert int(follower.expect(r"token +(\d+)\n")[1]) > int(token)
    follower.expect(r"taken over from +us-east-1/")
    assert follower.finish() == 0


def test_a_late_comer_need_not_wait_for_one_that_was_killed(shared):
    """Step 3 of the guide: each attempt is a process of its own, which has watched nothing."""
    ttl = least_ttl(shared)
    winner = compete(shared, *FIRST, "--work", "60", "--ttl", ttl)
    token = winner.expect(r"token +(\d+)\n")[1]
    assert compete(shared, *SECOND, "--work", "0.2", "--ttl", ttl).finish() == 0
    winner.process.kill()

    def tries() -> list[Any]:
        arguments = ("--work", "0.2", "--ttl", ttl, "-o", "jsonl")
        return shared("demo", "compete", *SECOND, *arguments).lines

    # Azure Cosmos DB allows for five seconds between the clocks of the service.
    until = time.monotonic() + float(ttl) + 15
    while (told := tries())[0]["event"] == "refused":
        assert time.monotonic() < until
        time.sleep(0.5)
    assert told[0]["token"] > int(token)
    assert told[0]["previous_owner"].startswith("us-east-1/")


def test_of_those_who_start_at_once_one_wins(shared):
    done = shared("demo", "compete", "--race", "3", "--work", "1.5", "-o", "jsonl")
    assert done.code == 0, done.stderr
    won = [line for line in done.lines if line["event"] == "acquired"]
    refused = [line for line in done.lines if line["event"] == "refused"]
    assert (len(won), len(refused)) == (1, 2)
    assert {line["owner"] for line in refused} == {won[0]["instance"]}
    assert {line["owner_region"] for line in refused} == {won[0]["region"]}
    assert done.lines[-1] == {
        "event": "result",
        "instances": 3,
        "winners": [{"instance": won[0]["instance"], "token": won[0]["token"]}],
    }


def test_a_race_survives_the_death_of_its_winner(outlive):
    done = outlive("demo", "compete", "--race", "2", "--crash", "--work", "2", "--ttl", "3")
    assert done.code == 0, done.stderr
    for words in ("is killed (SIGKILL)", "taken over from", "with token 1, then"):
        assert words in done.stdout


def test_an_interrupted_race_leaves_nothing_behind(outlive, shell):
    race = compete(outlive, "--race", "2", "--work", "60")
    race.expect(r"item +1/60")
    race.interrupt()
    assert race.finish() == 128 + signal.SIGINT
    assert shell("lease", "ls", "-o", "jsonl").lines == []


def test_an_interrupted_race_ends_those_who_do_not_hear(outlive):
    race = compete(outlive, "--race", "2", "--work", "60", "--ttl", "3")
    race.expect(r"item +1/60")
    main = race.process.pid
    children = [int(pid) for pid in Path(f"/proc/{main}/task/{main}/children").read_text().split()]
    assert len(children) >= 1
    for child in children:
        os.kill(child, signal.SIGSTOP)
    race.interrupt()
    try:
        assert race.finish() == 128 + signal.SIGINT
        assert [child for child in children if Path(f"/proc/{child}").exists()] == []
    finally:
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def test_a_broken_lock_stops_the_winner(outlive, shell):
    winner = compete(outlive, *FIRST, "--work", "60", "--ttl", "3")
    winner.expect(r"item +1/60")
    shell("lease", "break", "demo/competition", "--reason", "curious")
    winner.expect(r"LOCK LOST(.|\n)+was lost \(broken: curious\)")
    assert winner.finish() == 76


def test_a_script_reads_events(outlive):
    done = outlive("demo", "compete", *FIRST, "--work", "0.1", "-o", "jsonl")
    assert (done.code, done.stderr) == (0, "")
    assert [line["event"] for line in done.lines] == ["acquired", "item", "released"]
    assert {line["instance"] for line in done.lines} == {"us-east-1"}
    assert done.lines[0]["token"] == 1


def test_a_gate_lets_a_script_start_several_at_once(outlive):
    waiting = outlive.at_terminal("demo", "compete", "--gate", "-o", "jsonl", "--work", "0.1")
    waiting.expect(r'"event": "ready"')
    assert "acquired" not in waiting.screen
    waiting.type("go")
    waiting.expect(r'"event": "released"')
    assert waiting.finish() == 0


def test_a_gate_needs_something_to_wait_on(outlive):
    (outlive.folder / "words").write_text("go\n")
    with (outlive.folder / "words").open() as words:
        done = subprocess.run(
            [*COMMAND, "demo", "compete", "--gate"],
            env=outlive.environ(),
            stdin=words,
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, "stdin is a file" in done.stderr) == (2, True)


def test_memory_is_one_process_and_says_so(outlive):
    alone = outlive("demo", "compete", "--work", "0.1", "--store", "memory://")
    assert alone.code == 0
    assert "no other process can compete" in alone.stderr
    assert "LOCK ACQUIRED" in alone.stdout
    race = outlive("demo", "compete", "--race", "2", "--store", "memory://")
    assert (race.code, race.stdout) == (2, "")
    assert "a lock of its own" in race.stderr


def test_without_a_store_a_terminal_is_asked_and_the_competition_goes_on(outlive):
    terminal = compete(outlive, *FIRST, "--work", "0.1", OUTLIVE_URL="")
    terminal.expect(r"no store is configured here")
    terminal.expect(r"Store \[1\]: ")
    terminal.type("")
    terminal.expect(r"Endpoint .*\[sqlite:///outlive.db\]: ")
    terminal.type("")
    terminal.expect(r"connected to sqlite:///outlive.db: it works")
    terminal.expect(r"outlive.local.toml was written")
    terminal.expect(r"LOCK ACQUIRED")
    assert terminal.finish() == 0
    assert (outlive.folder / "outlive.local.toml").stat().st_mode & 0o777 == 0o600
    again = outlive("demo", "compete", "--work", "0.1", "-o", "jsonl", OUTLIVE_URL="")
    assert (again.code, again.lines[0]["token"]) == (0, 2)


def test_without_a_store_and_without_a_terminal_nothing_is_asked(shell):
    done = shell("demo", "compete", OUTLIVE_URL="")
    assert (done.code, done.stdout) == (2, "")
    assert "outlive configure" in done.stderr
    assert list(shell.folder.iterdir()) == []


def test_the_wizard_can_be_asked_for_first(outlive):
    terminal = compete(outlive, "--configure", "--store", "sqlite:///other.db", "--work", "0.1")
    terminal.expect(r"connected to sqlite:///other.db")
    terminal.expect(r"OUTLIVE_URL is set in this shell and wins")
    terminal.expect(r"LOCK ACQUIRED")
    assert terminal.finish() == 0


def test_the_guide_names_commands_for_several_terminals(shell):
    said = shell("demo", "compete", "--guide").stdout
    assert said.count("outlive demo compete") >= 5
    assert "Watch for" in said
    given = shell("demo", "compete", "--guide", "--store", "postgresql://u:canary1@h/db").stdout
    assert "canary1" not in given
    assert "OUTLIVE_URL" in given
    plain = shell("demo", "compete", "--guide", "--store", "sqlite:///d.db").stdout
    assert "outlive lease watch demo/competition --url sqlite:///d.db" in plain


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--crash",), "--race"),
        (("--race", "0"), "1<=x<=16"),
        (("--work", "0"), "work"),
        (("--instance", "a/b"), "host name"),
        (("-o", "json"), "jsonl"),
    ],
)
def test_wrong_use_is_refused(shell, arguments, said):
    done = shell("demo", "compete", *arguments)
    assert (done.code, done.stdout) == (2, "")
    assert said in done.stderr.splitlines()[-1]


def test_a_race_on_a_store_that_is_away_says_so(outlive):
    done = outlive("demo", "compete", "--race", "2", "--store", "postgresql://u@127.0.0.1:1/db")
    assert done.code == 69
    assert "only 0 of 2 instances were ready" in done.stderr


def test_the_story_is_the_one_of_make_demo(shell, monkeypatch):
    """The telling itself takes a while: tests/process/test_demonstration.py listens to it."""
    monkeypatch.setattr(story, "main", lambda: print("once upon a time") or 3)
    told = shell("demo", "story")
    assert (told.code, told.stdout) == (3, "once upon a time\n")
    assert "compete" in shell("demo").stdout


def test_events_of_a_race_are_json_lines(outlive):
    done = outlive("demo", "compete", "--race", "1", "--work", "0.1", "-o", "jsonl")
    assert [json.loads(line)["event"] for line in done.stdout.splitlines()] == [
        "ready",
        "acquired",
        "item",
        "released",
        "result",
    ]
