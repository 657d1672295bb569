"""``outlive flow replay-check``: what changed code would do to flows that have begun."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest

from outlive.drivers.sqlite.instance_store import SqliteInstanceStore
from outlive.flows.recording import record_flow
from tests.cli.flow_apps import Shop


@pytest.fixture
def shop(shell):
    """One flow that has completed, and one that waits."""
    assert shell("migrate").code == 0
    made = Shop(shell.folder, shell.url)
    for flow in ("ended", "waits"):
        shell("flow", "start", "checkout", '{"item": "pen", "amount": 2}', "--id", flow)
    made.reach_the_wait("ended", "waits")
    made.approve("ended")
    return made


MORE_ENDED = "some ended flows were not checked; --limit N sets the total, live flows first"


def check(shell, shop, *arguments, **environ):
    done = shell("flow", "replay-check", shop.name, *arguments, "--json", **environ)
    found = done.document
    assert done.code == (found["mismatched"] > 0 or found["left_out"]["live"]), done.stderr
    return found


def test_code_that_did_not_change_fits(shell, shop):
    found = check(shell, shop)
    assert (found["checked"], found["mismatched"]) == (2, 0)
    assert {row["id"]: row["status"] for row in found["flows"]} == {
        "ended": "completed",
        "waits": "running",
    }


def test_a_step_that_went_away_is_named_with_what_came_instead(shell, shop):
    shop.change("await charge(amount)", "await charge(amount + 1)")
    told = shell("flow", "replay-check", shop.name)
    assert told.code == 1
    assert told.stdout.splitlines() == [
        "ended (checkout, completed)",
        '  expected  charge#0 called with {"amount":2}',
        '  found     charge#0 called with {"amount":3}',
    ]
    assert told.stderr == "outlive: checked flows: 1 live, 1 ended; mismatches: 1\n"
    assert check(shell, shop, "--status", "running")["mismatched"] == 0
    assert check(shell, shop, "--id", "waits")["checked"] == 1


def test_no_number_of_ended_flows_hides_a_live_one(shell, shop, monkeypatch):
    monkeypatch.setattr("outlive.cli.flow_check._ENDED_MAX", 1)
    monkeypatch.setattr("outlive.cli.flow_check._PAGE", 1)
    for flow in ("second", "third"):
        shell("flow", "start", "checkout", '{"item": "pen", "amount": 2}', "--id", flow)
    shop.approve("second")
    shop.reach_the_wait("third")
    found = check(shell, shop)
    assert [row["id"] for row in found["flows"]] == ["waits", "third", "ended"]
    assert found["left_out"] == {"live": False, "ended": True}
    told = shell("flow", "replay-check", shop.name)
    assert told.code == 0
    assert told.stderr.splitlines() == [
        "outlive: checked flows: 2 live, 1 ended; mismatches: 0",
        f"outlive: {MORE_ENDED}",
    ]
    more = check(shell, shop, "--limit", "3")
    assert [row["id"] for row in more["flows"]] == ["waits", "third", "ended"]
    assert check(shell, shop, "--limit", "4")["left_out"] == {"live": False, "ended": False}


def test_a_limit_that_leaves_live_flows_out_is_no_pass(shell, shop):
    shell("flow", "start", "checkout", '{"item": "pen"}', "--id", "later")
    found = check(shell, shop, "--limit", "1")
    assert [row["id"] for row in found["flows"]] == ["waits"]
    assert found["left_out"] == {"live": True, "ended": True}
    told = shell("flow", "replay-check", shop.name, "--limit", "1")
    assert told.code == 1
    assert "some live flows were NOT checked: leave out --limit" in told.stderr
    assert shell("flow", "replay-check", shop.name, "--limit", "2").code == 0


def test_a_flow_that_ends_meanwhile_stands_for_none_that_was_left_out(shell, shop, monkeypatch):
    shell("flow", "start", "checkout", '{"item": "pen"}', "--id", "later")

    async def ending(store, id_):
        recording = await record_flow(store, id_)
        await store.terminate(id_, outcome="{}")
        return recording

    monkeypatch.setattr("outlive.cli.flow_check.record_flow", ending)
    found = check(shell, shop, "--limit", "1", "--status", "pending", "--status", "running")
    assert [row["id"] for row in found["flows"]] == ["waits"]
    assert found["left_out"] == {"live": True, "ended": False}


def test_what_was_left_out_is_not_counted(shell, shop, monkeypatch):
    async def counting(*_args):
        pytest.fail("a count reads the whole store")

    monkeypatch.setattr(SqliteInstanceStore, "count", counting)
    monkeypatch.setattr("outlive.cli.flow_check._ENDED_MAX", 1)
    assert check(shell, shop)["checked"] == 2
    assert check(shell, shop, "--limit", "1")["left_out"] == {"live": False, "ended": True}


def test_flows_that_are_started_while_it_checks_do_not_keep_it_from_ending(
    shell, shop, monkeypatch
):
    monkeypatch.setattr("outlive.cli.flow_check._STARTED_WITHIN", timedelta(hours=-1))
    found = check(shell, shop)
    assert [row["id"] for row in found["flows"]] == ["ended"]


def test_a_branch_for_flows_that_have_begun_fits_both(shell, shop):
    shop.change(
        "await charge(amount)",
        'await charge(amount + 1 if outlive.patched("tax") else amount)',
    )
    assert check(shell, shop)["mismatched"] == 0


def test_a_parameter_that_came_without_a_default_is_the_reason_given(shell, shop):
    shop.change("item: str, amount: int = 1)", "item: str, amount: int, currency: str)")
    found = check(shell, shop)
    assert found["mismatched"] == 2
    assert all("currency" in row["found"] for row in found["flows"])


def test_a_flow_that_is_gone_from_the_app_does_not_fit(shell, shop):
    shop.change("async def checkout", "async def check_out")
    (row,) = check(shell, shop, "--id", "waits")["flows"]
    assert row["found"] == "no such flow; did you mean 'check_out'?"


def test_a_live_flow_that_the_app_lacks_is_no_pass_unless_it_is_anothers(shell, shop):
    shop.change("async def checkout", "async def check_out")
    told = shell("flow", "replay-check", shop.name)
    assert told.code == 1
    assert told.stdout.splitlines() == [
        "waits (checkout, running)",
        "  expected  flow 'checkout'",
        "  found     no such flow; did you mean 'check_out'?",
    ]
    assert "--only-defined" in told.stderr
    assert check(shell, shop, "--only-defined")["checked"] == 0
    shell("flow", "start", "checkout", '{"item": "pen"}', "--id", "unbegun")
    assert check(shell, shop, "--status", "pending")["mismatched"] == 1
    assert check(shell, shop, "--name", "check_out")["checked"] == 0
    assert check(shell, shop, "--name", "checkout")["mismatched"] == 3
    for chosen in (("--name", "checkout"), ("--id", "waits")):
        assert "--only-defined" not in shell("flow", "replay-check", shop.name, *chosen).stderr


def test_files_are_checked_without_a_store(shell, shop):
    exported = shell("flow", "history", "ended", "--json")
    file = shell.folder / "ended.json"
    file.write_text(exported.stdout)
    nowhere = {"OUTLIVE_URL": "sqlite:///nowhere/at-all.db"}
    assert check(shell, shop, file.name, **nowhere)["mismatched"] == 0
    shop.change("await charge(amount)", "await reserve(item)")
    (row,) = check(shell, shop, str(file), **nowhere)["flows"]
    assert (row["file"], row["fits"]) == (str(file), False)


def test_a_history_of_a_newer_release_is_none_that_fits(shell, shop):
    document = shell("flow", "history", "ended", "--json").document
    document["history"][0]["events"][0]["event"] = "from-the-future"
    (shell.folder / "new.json").write_text(json.dumps(document))
    (row,) = check(shell, shop, "new.json")["flows"]
    assert "newer" in row["found"]


def test_nothing_is_written(shell, shop):
    def content():
        with closing(sqlite3.connect(shell.folder / "leases.db")) as connection:
            return list(connection.iterdump())

    before = content()
    check(shell, shop)
    assert content() == before


def test_the_table_and_the_lines_of_a_history_are_for_reading(shell, shop):
    heading, *rows = shell("flow", "history", "ended").stdout.splitlines()
    assert heading.split() == ["VERSION", "TOKEN", "HOST", "AT", "WHAT"]
    assert "the end of step reserve#0" in rows[0]
    lines = shell("flow", "history", "ended", "-o", "jsonl").lines
    assert [line["version"] for line in lines] == [1, 2, 3]
    assert lines[0]["events"][0]["event"] == "step-ended"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere:app",), "cannot be imported"),
        (("nowhere",), "MODULE:NAME"),
        (("{app}", "missing.json"), "cannot be read"),
        (("{app}", "broken.json"), "not a history"),
        (("{app}", "broken.json", "--id", "waits"), "leave out options that select"),
        (("{app}", "broken.json", "--only-defined"), "leave out options that select"),
        (("{app}", "broken.json", "--limit", "1"), "leave out options that select"),
        (("{app}", "--only-defined", "--name", "checkout"), "leave out --only-defined"),
        (("{app}", "--only-defined", "--id", "waits"), "leave out --only-defined"),
        (("{app}", "--id", ""), "the id of a flow must not be empty"),
    ],
)
def test_wrong_use_is_refused(shell, shop, arguments, said):
    (shell.folder / "broken.json").write_text("{}")
    done = shell("flow", "replay-check", *(each.format(app=shop.name) for each in arguments))
    assert (done.code, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_flow_that_is_not_there_is_not_found_and_an_app_without_flows_is_refused(shell, shop):
    assert shell("flow", "replay-check", shop.name, "--id", "nobody").code == 66
    shop.write('import outlive\n\napp = outlive.App("empty")\nother = app\n')
    assert "has no flows" in shell("flow", "replay-check", shop.name).stderr
    wrong = shell("flow", "replay-check", shop.name.replace(":app", ":ap"))
    assert "its apps: app, other" in wrong.stderr


def test_no_store_is_made(shell):
    made = Shop(shell.folder, shell.url)
    before = set(shell.folder.iterdir())
    assert shell("flow", "replay-check", made.name).code == 78
    after = set(shell.folder.iterdir())
    assert {file.name for file in after - before} <= {"__pycache__"}


def test_calls_that_a_replay_could_not_repeat_are_listed(shell, shop):
    clean = shell("flow", "lint", shop.name)
    assert (clean.code, clean.stdout) == (0, "")
    assert clean.stderr == "outlive: 1 flows checked, 0 calls found\n"
    shop.change("await reserve(item)", "import time\n    await reserve(f'{item} {time.time()}')")
    file, text = f"{shop.name.partition(':')[0]}.py", "time.time()"
    line = 1 + (shell.folder / file).read_text().partition(text)[0].count("\n")
    told = shell("flow", "lint", shop.name)
    assert told.code == 1
    assert told.stdout == f"{file}:{line}: flow 'checkout' calls {text}: use outlive.now()\n"
    row = {"file": file, "line": line, "flow": "checkout", "call": text}
    row["instead"] = "outlive.now()"
    found = shell("flow", "lint", shop.name, "--json")
    assert (found.code, found.document) == (1, {"checked": 1, "findings": [row]})
    assert json.loads(shell("flow", "lint", shop.name, "-o", "jsonl").stdout) == row
