"""What people read of flows in tables: how one ended, what each commit did, what it waits for."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from outlive.drivers.sqlite.instance_store import SqliteInstanceStore
from outlive.flows.handle import FlowHandle
from outlive.model.instance import InstanceStatus
from tests.cli.flow_apps import SHOP, Shop

SAID = "no money\\nin the " + "deep " * 40 + "pocket"

FAILING = (
    SHOP.replace(
        'raise ValueError("negative")',
        f'raise ValueError("{SAID}") from KeyError("card")',
    ).replace("@app.step\nasync def charge", "@app.step(retry=TWICE)\nasync def charge")
    + """

@app.flow
async def basket(amount: int) -> int:
    return await checkout("pen", amount)


@app.flow
async def quick() -> int:
    return 1


@app.flow
async def talker() -> None:
    outlive.set_status("here")
    await outlive.wait_signal("never")


@app.flow
async def sleeper() -> None:
    await outlive.sleep_until(outlive.now().replace(year=2090))
"""
).replace(
    'app = outlive.App("shop")',
    'app = outlive.App("shop")\nTWICE = outlive.Retry(max_attempts=2, first=0.01)',
)


@pytest.fixture
def shop(shell):
    assert shell("migrate").code == 0
    made = Shop(shell.folder, shell.url)
    made.write(FAILING)
    return made


@pytest.fixture
def failed(shell, shop):
    """A basket whose checkout failed, because charging did."""
    assert shell("flow", "start", "basket", '{"amount": -1}', "--id", "b").code == 0

    async def until(host):
        # A start rings nobody; only ends do.
        while not await host.flows.list(parent="b"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        (child,) = await host.flows.list(parent="b")
        await host.flows.get(child.id).signal("approved", True)
        with pytest.raises(Exception, match="pocket"):
            await host.flows.get("b").result()

    shop.run(until)
    return shell("flow", "ls", "--parent", "b", "-o", "jsonl").lines[0]["id"]


def fields(outcome):
    """The names of the fields of a table, without lines that go on with one."""
    lines = outcome.stdout.splitlines()
    return [line.split()[0] for line in lines if line and not line.startswith(" ")]


def value(outcome, field):
    """What a table says in the line of one field."""
    return re.search(rf"^{field} +(.+)$", outcome.stdout, re.MULTILINE)[1]


def test_a_failed_flow_shows_the_error_and_a_line_for_each_cause(shell, failed):
    shown = shell("flow", "show", failed)
    (begins, goes_on, cause) = (
        line for line in shown.stdout.splitlines() if "no money" in line or line.startswith("    ")
    )
    assert begins.startswith("outcome     ")
    assert begins.endswith("step charge#0 failed: ValueError: no money")
    assert goes_on.endswith("pocket")
    assert "caused by" in cause
    assert "card" in cause
    assert "Traceback" not in shown.stdout
    assert "Traceback" in shell("flow", "show", failed, "--traceback").stdout
    whole = shell("flow", "show", failed, "--json").document["outcome"]
    assert "Traceback" in whole["details"]["traceback"]


def test_a_watch_ends_with_the_error_and_without_its_traceback(shell, failed):
    watched = shell("flow", "watch", failed)
    assert (watched.code, "Traceback" in watched.stdout) == (10, False)
    assert "failed: outlive.errors.StepFailed: step charge#0 failed" in watched.stdout
    assert watched.stdout.splitlines()[-1].startswith("  caused by ")


def test_a_history_says_what_failed_on_one_line_each(shell, failed):
    told = shell("flow", "history", failed).stdout
    assert "attempt 1 of step charge#0 failed: ValueError: no money in the deep" in told
    assert "step charge#0 failed: ValueError: no money in the deep" in told
    assert "pocket" not in told
    assert "the end of step reserve#0" in told
    assert "child checkout#0 failed: " in shell("flow", "history", "b").stdout


COPIED = (
    "(no event: none was recorded, as for a status text, or the fork did not copy it, as for an "
    "end or for attempts of a repeated step)"
)


def copied_commit(shell, flow, at):
    """The commit before the mark of a copy of ``flow``."""
    assert shell("flow", "fork", flow, "--at", at, "--id", "copy").code == 0
    *_, copied, mark = shell("flow", "show", "copy", "--history", "--json").document["history"]
    assert mark["what"].startswith("a fork of flow ")
    return copied


def test_a_copied_end_of_which_nothing_is_left_is_told_as_one_of_what_it_may_be(shell, shop):
    shell("flow", "start", "quick", "--id", "q")

    async def until(host):
        await host.flows.get("q").result()

    shop.run(until)
    copied = copied_commit(shell, "q", "1")
    assert (copied["events"], copied["what"]) == ([], COPIED)


def test_a_copied_status_text_is_not_told_as_an_end(shell, shop):
    shell("flow", "start", "talker", "--id", "t")
    shop.reach_the_wait("t")
    copied = copied_commit(shell, "t", "1")
    assert (copied["events"], copied["what"]) == ([], COPIED)


def test_copied_attempts_of_the_step_that_is_forked_at_are_not_told_as_an_end(shell, failed):
    copied = copied_commit(shell, failed, "charge#0")
    assert (copied["events"], copied["what"]) == ([], COPIED)


def test_a_history_says_why_the_flow_ended(shell, shop, failed):
    *_, last = shell("flow", "history", failed).stdout.splitlines()
    why = (
        "the end of the flow (failed): outlive.errors.StepFailed: step charge#0 failed: ValueError"
    )
    assert why in last
    assert "pocket" not in last
    *_, commit, _ = shell("flow", "watch", failed, "-o", "jsonl").lines
    assert why in commit["what"]
    shell("flow", "retry", "b")
    *_, void, _ = shell("flow", "history", "b", "-o", "jsonl").lines
    assert void["what"].endswith("the end of the flow (failed): child checkout#0")
    shell("flow", "terminate", "b", "--reason", "drill")
    assert "the flow was terminated after version" in shell("flow", "history", "b").stderr
    assert "drill" in shell("flow", "history", "b").stderr


def test_a_commit_of_a_status_text_alone_says_what_it_may_be(shell, shop):
    shell("flow", "start", "talker", "--id", "t")
    shop.reach_the_wait("t")
    (commit,) = shell("flow", "history", "t", "-o", "jsonl").lines
    assert commit["events"] == []
    assert commit["what"].startswith(
        "(no event: a status text, attributes, a reply or the next due time was set"
    )


def test_a_signal_that_does_not_fit_is_seen_with_the_end_that_it_led_to(shell, shop):
    shell("flow", "start", "checkout", '{"item": "pen"}', "--id", "o")
    shop.reach_the_wait("o")
    shell("flow", "signal", "o", "approved", '"perhaps"')

    async def until(host):
        with pytest.raises(Exception, match="approved"):
            await host.flows.get("o").result()

    shop.run(until)
    last = shell("flow", "history", "o", "-o", "jsonl").lines[-1]["what"]
    assert "signal 'approved' received; the end of the flow (failed): " in last
    assert "InvalidPayload: signal 'approved'" in last


def test_a_watch_tells_the_error_of_an_end_that_came_while_it_looked(shell, failed, monkeypatch):
    looks, status = [], FlowHandle.status

    async def late(handle):
        info = await status(handle)
        looks.append(info)
        if len(looks) > 1:
            return info
        return replace(info, status=InstanceStatus.RUNNING, outcome=None, version=info.version - 1)

    monkeypatch.setattr(FlowHandle, "status", late)
    *_, commit, running, ended = shell("flow", "watch", failed, "-o", "jsonl").lines
    assert "the end of the flow (failed): outlive.errors.StepFailed: " in commit["what"]
    assert (running["status"], ended["status"]) == ("running", "failed")


def test_a_table_leaves_out_what_only_programs_need(shell, failed):
    assert not {"cursor", "steps"} & set(fields(shell("flow", "show", failed)))
    assert {"cursor", "steps"} <= shell("flow", "show", failed, "--json").document.keys()


def test_a_flow_that_waits_in_the_store_says_for_what(shell, shop):
    shell("flow", "start", "checkout", '{"item": "pen"}', "--id", "signal")
    shell("flow", "start", "sleeper", "--id", "time")
    shop.reach_the_wait("signal", "time")
    told = shell("flow", "show", "signal").stdout
    waits = "(none: waiting for a signal, a child or a queued step; --app shows which)"
    assert f"host        {waits}" in told
    assert "(none: waiting until 2090-" in shell("flow", "show", "time").stdout
    assert shell("flow", "ls").stdout.count("(waits)") == 2
    assert shell("flow", "show", "time", "--json").document["host"] is None
    assert "unread" not in fields(shell("flow", "show", "time"))


def test_the_code_of_a_flow_tells_which_signal_or_child_it_waits_for(shell, shop):
    shell("flow", "start", "basket", '{"amount": 1}', "--id", "parent")
    shell("flow", "start", "sleeper", "--id", "time")
    shop.reach_the_wait("parent", "time")
    child = shell("flow", "ls", "--parent", "parent", "--json").document["flows"][0]["id"]
    shop.reach_the_wait(child)
    shown = {each: shell("flow", "show", each, "--app", shop.name) for each in ("parent", child)}
    assert value(shown[child], "waits_for") == "signal 'approved'"
    assert value(shown["parent"], "waits_for") == f"child {child!r}"
    told = shell("flow", "show", child, "--app", shop.name, "--json").document
    assert told["waits_for"] == [{"kind": "signal", "name": "approved"}]
    asleep = shell("flow", "show", "time", "--app", shop.name)
    assert value(asleep, "waits_for") == "(no signal, step or child)"
    assert "waits_for" not in shell("flow", "show", child, "--json").document


def test_what_a_flow_waits_for_is_not_known_before_it_begins_or_by_other_code(shell, shop):
    shell("flow", "start", "checkout", '{"item": "pen"}', "--id", "o")
    unbegun = shell("flow", "show", "o", "--app", shop.name, "--json")
    assert (unbegun.document["waits_for"], unbegun.stderr) == (None, "")
    shop.reach_the_wait("o")
    shop.change("await reserve(item)", "await charge(amount)")
    other = shell("flow", "show", "o", "--app", shop.name)
    assert (other.code, value(other, "waits_for"), value(other, "status")) == (0, "-", "running")
    assert "cannot find out what flow" in other.stderr
    shop.change("async def checkout", "async def purchase")
    unknown = shell("flow", "show", "o", "--app", shop.name)
    assert (unknown.code, value(unknown, "waits_for")) == (0, "-")
    assert "has no flow 'checkout'" in unknown.stderr


def test_what_the_code_prints_is_no_part_of_the_document(shell, shop):
    shell("flow", "start", "checkout", '{"item": "pen"}', "--id", "o")
    shop.reach_the_wait("o")
    shop.change("await reserve(item)", "print('printed'); await reserve(item)")
    shown = shell("flow", "show", "o", "--app", shop.name, "--json")
    assert shown.document["waits_for"] == [{"kind": "signal", "name": "approved"}]
    assert "printed" in shown.stderr


READY = (
    r"host +\(none: ready since 20.+Z, but no host has claimed it; check that a host runs an app "
    r"with flow "
)


def test_a_flow_that_nobody_takes_says_so(shell, shop):
    shell("flow", "start", "checkuot", '{"item": "pen"}', "--id", "typo")
    assert re.search(READY + r"'checkuot'\)", shell("flow", "show", "typo").stdout)
    assert shell("flow", "ls").stdout.count("(ready)") == 1
    shell("flow", "suspend", "typo")
    assert "(ready)" not in shell("flow", "ls").stdout
    assert not re.search(READY, shell("flow", "show", "typo").stdout)


MINUTE_US = 60_000_000


@pytest.mark.parametrize(
    ("host", "due", "told"),
    [
        # From the claim on, until a commit says what it waits for.
        ("web-1", "updated_at_us", False),
        ("web-1", "created_at_us", False),
        ("web-1", "NULL", False),
        # The host may be slow to see that the time has come, or dead.
        ("web-1", f"updated_at_us + {MINUTE_US}", True),
        ("web-1", "updated_at_us + 1", True),
        (None, "created_at_us", True),
    ],
)
def test_a_table_tells_when_a_flow_is_due_unless_its_host_has_heard_of_it(
    shell, shop, host, due, told
):
    shell("flow", "start", "checkout", '{"item": "pen"}', "--id", "o")
    with closing(sqlite3.connect(shell.folder / "leases.db", isolation_level=None)) as connection:
        connection.execute(
            "UPDATE outlive_instance SET session = ?, worker = ?, "
            f"updated_at_us = updated_at_us + {MINUTE_US}",
            (host, host),
        )
        connection.execute(f"UPDATE outlive_instance SET due_at_us = {due}")
    shown = shell("flow", "show", "o")
    assert (value(shown, "due_at") != "-") is told
    heading, line = shell("flow", "ls").stdout.splitlines()
    assert (line[heading.index("DUE") :] != "-") is told
    for document in (
        shell("flow", "show", "o", "--json").document,
        *shell("flow", "ls", "--json").document["flows"],
    ):
        assert (document["due_at"] is None) is (due == "NULL")


def test_a_flow_that_has_letters_and_that_nobody_takes_says_so(shell, shop):
    shell("flow", "start", "sleeper", "--id", "time")
    shop.reach_the_wait("time")
    shell("flow", "signal", "time", "wake")
    told = shell("flow", "show", "time").stdout
    assert re.search(READY + r"'sleeper'", told)
    assert re.search("unread +1\n", told)


def test_no_more_letters_are_read_than_a_table_tells_of(shell, shop, monkeypatch):
    shell("flow", "start", "checkout", '{"item": "pen"}', "--id", "o")
    asked, letters = [], SqliteInstanceStore.letters

    async def counting(store, id_, *, after, limit):
        asked.append(limit)
        return await letters(store, id_, after=after, limit=limit)

    for number in range(11):
        shell("flow", "signal", "o", "approved", "true", "--id", f"{number}")
        if number == 8:
            assert re.search("unread +9\n", shell("flow", "show", "o").stdout)
    monkeypatch.setattr(SqliteInstanceStore, "letters", counting)
    assert re.search("unread +10 or more\n", shell("flow", "show", "o").stdout)
    assert asked == [10]
    for output in ("json", "jsonl"):
        assert shell("flow", "show", "o", "-o", output).document["id"] == "o"
    assert asked == [10]


def test_a_letter_begins_no_flow_before_its_time_unless_it_cancels_it(shell, shop):
    given = ('{"item": "pen"}', "--id", "later", "--delay", "3600")
    shell("flow", "start", "checkout", *given)
    shell("flow", "signal", "later", "approved", "true")
    assert not re.search(READY, shell("flow", "show", "later").stdout)
    shell("flow", "cancel", "later")
    told = shell("flow", "show", "later").stdout
    assert re.search(READY, told)
    assert re.search("unread +2\n", told)


def test_a_flow_that_is_stuck_is_found_and_says_why(shell, shop):
    shell("flow", "start", "checkout", '{"item": "pen"}', "--id", "fine")
    for flow in ("stuck", "ended"):
        given = ("--attribute", "outlive.stuck=NonDeterminism: expected\nfound")
        shell("flow", "start", "checkout", '{"item": "pen"}', "--id", flow, *given)
    shell("flow", "terminate", "ended")
    (row,) = shell("flow", "ls", "--stuck", "-o", "jsonl").lines
    assert (row["id"], row["stuck"]) == ("stuck", "NonDeterminism: expected\nfound")
    assert shell("flow", "ls").stdout.count("pending (stuck)") == 1
    told = shell("flow", "show", "stuck").stdout
    assert "stuck       NonDeterminism: expected" in told
    assert "stuck" not in fields(shell("flow", "show", "fine"))
    assert "stuck" not in fields(shell("flow", "show", "ended"))
    ended = shell("flow", "ls", "--stuck", "--status", "terminated", "-o", "jsonl")
    assert (ended.code, ended.lines) == (0, [])
