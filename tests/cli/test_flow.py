"""Flows from a shell: started, found, shown, watched, signalled, steered, forgotten."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.cli.flow_apps import Shop


@pytest.fixture
def shop(shell):
    assert shell("migrate").code == 0
    return Shop(shell.folder, shell.url)


def start(shell, flow, *arguments):
    done = shell("flow", "start", "checkout", *arguments, "--id", flow, "--json")
    assert done.code == 0, done.stderr
    return done.document


def shown(shell, flow, *options):
    return shell("flow", "show", flow, *options, "--json").document


def test_a_flow_is_started_found_and_shown_with_its_end(shell, shop):
    arguments = ('{"item": "pen", "amount": 3}', "--attribute", "tier=gold", "--attribute", "n=5")
    created = {"id": "o-1", "name": "checkout", "entry": "created"}
    assert start(shell, "o-1", *arguments) == created
    start(shell, "o-2", '{"item": "cup", "amount": -1}')
    assert start(shell, "o-1", '{"item": "other"}')["id"] == "o-1"
    assert shown(shell, "o-1")["status"] == "pending"
    shop.approve("o-1", "o-2")
    done = shown(shell, "o-1", "--input", "--history")
    assert (done["status"], done["outcome"]) == ("completed", 6)
    assert done["input"] == {"item": "pen", "amount": 3}
    assert done["attributes"] == {"tier": "gold", "n": 5}
    assert done["history"][-1]["what"].endswith("the end of the flow (completed)")
    assert "input" not in shown(shell, "o-2")
    assert shown(shell, "o-2")["outcome"]["message"] == "step charge#0 failed: ValueError: negative"
    listed = shell("flow", "ls", "--status", "completed", "--json").document
    assert ([row["id"] for row in listed["flows"]], listed["next_after"]) == (["o-1"], None)
    (row,) = shell("flow", "ls", "--attribute", "n=5", "-o", "jsonl").lines
    assert row["id"] == "o-1"
    heading, *rows = shell("flow", "ls", "--prefix", "o-", "--name", "checkout").stdout.splitlines()
    assert heading.split()[:3] == ["ID", "FLOW", "STATUS"]
    assert [line.split()[:3] for line in rows] == [
        ["o-1", "checkout", "completed"],
        ["o-2", "checkout", "failed"],
    ]


def test_an_id_that_was_started_before_is_told(shell, shop):
    again = ("flow", "start", "checkout", '{"item": "pen"}', "--id", "o")
    first = shell(*again)
    assert first.code == 0
    assert "nothing was started" not in first.stderr
    assert "entry  created" in first.stdout
    second = shell(*again)
    assert second.code == 0
    assert "entry  existing" in second.stdout
    assert second.stderr == (
        "outlive: nothing was started: flow 'o' already exists and keeps its arguments\n"
    )
    assert shell(*again, "--json").document["entry"] == "existing"


def test_what_a_newer_release_wrote_is_shown_by_its_name(shell, shop):
    start(shell, "o", '{"item": "pen"}')
    shop.reach_the_wait("o")
    shop.approve("o")
    with closing(sqlite3.connect(shell.folder / "leases.db", isolation_level=None)) as connection:
        changed = connection.execute(
            "UPDATE outlive_history SET events = replace(events, 'step-ended', 'step-dreamt')"
        )
        assert changed.rowcount >= 2
    assert shown(shell, "o", "--history")["history"][0]["what"] == "step-dreamt"
    assert shell("flow", "watch", "o").code == 0
    assert "step-dreamt" in shell("flow", "history", "o").stdout


def test_pages_of_flows_follow_each_other(shell, shop):
    for number in range(3):
        start(shell, f"o-{number}", '{"item": "pen"}')
    first = shell("flow", "ls", "--limit", "2", "--json")
    assert [row["id"] for row in first.document["flows"]] == ["o-0", "o-1"]
    assert "--after 'o-1'" in first.stderr
    rest = shell("flow", "ls", "--limit", "2", "--after", "o-1", "-o", "jsonl").lines
    assert [row["id"] for row in rest] == ["o-2"]


def test_flows_are_listed_from_an_instant_on(shell, shop):
    start(shell, "o", '{"item": "pen"}')
    before, after = "2020-01-31T03:00+01:00", "2090-01-31T03:00Z"
    listed = shell("flow", "ls", "--created-after", before, "-o", "jsonl").lines
    assert [row["id"] for row in listed] == ["o"]
    assert shell("flow", "ls", "--created-after", after, "-o", "jsonl").lines == []


def test_an_app_checks_the_name_and_takes_arguments_by_position(shell, shop):
    given = ("--app", shop.name, '"pen"', "7")
    assert shell("flow", "start", "checkout", "--id", "o", *given).code == 0
    assert shown(shell, "o", "--input")["input"] == {"item": "pen", "amount": 7}
    wrong = shell("flow", "start", "chekcout", *given)
    assert (wrong.code, wrong.stdout) == (2, "")
    assert "did you mean 'checkout'?" in wrong.stderr
    assert "app" in shell("flow", "start", "checkout", '"pen"', "7").stderr


def test_a_flow_that_is_to_begin_later_waits(shell, shop):
    assert shell("flow", "start", "checkout", "{}", "--id", "a", "--delay", "3600").code == 0
    at = ("--at", "2090-01-31T03:00+01:00")
    assert shell("flow", "start", "checkout", "{}", "--id", "b", *at).code == 0
    assert shown(shell, "b")["due_at"] == "2090-01-31T02:00:00.000+00:00"
    assert shown(shell, "a")["due_at"] is not None


def test_the_exit_code_of_a_watch_says_how_the_flow_ended(shell, shop):
    for flow, amount in (("good", 1), ("bad", -1), ("stopped", 1)):
        start(shell, flow, f'{{"item": "pen", "amount": {amount}}}')
    shop.approve("good", "bad")
    done = shell("flow", "terminate", "stopped", "--reason", "drill", "--json")
    assert done.document == {"terminated": 1}
    good = shell("flow", "watch", "good")
    assert (good.code, good.stdout.splitlines()[-1].split()[-2:]) == (0, ["completed:", "2"])
    bad = shell("flow", "watch", "bad", "-o", "jsonl")
    assert (bad.code, [line["event"] for line in bad.lines][-2:]) == (10, ["commit", "ended"])
    stopped = shell("flow", "watch", "stopped", "--json")
    assert (stopped.code, stopped.document["outcome"]["message"]) == (
        12,
        "drill",
    )
    assert shell("flow", "watch", "nobody").code == 66


def test_a_flow_is_signalled_suspended_and_resumed(shell, shop):
    start(shell, "o", '{"item": "pen"}')
    assert shell("flow", "suspend", "o", "--json").document == {"suspended": 1}
    assert shown(shell, "o")["status"] == "suspended"
    assert shell("flow", "resume", "o", "--json").document == {"resumed": 1}
    sent = shell("flow", "signal", "o", "approved", "-", "--id", "once", stdin="true")
    assert sent.code == 0, sent.stderr
    assert shell("flow", "signal", "o", "approved", "true", "--id", "once").code == 0

    async def until(host):
        assert await host.flows.get("o").result() == 2

    shop.run(until)
    for verb in ("suspend", "resume", "terminate", "cancel"):
        assert shell("flow", verb, "o").code == 75
    assert shell("flow", "signal", "o", "approved").code == 75
    assert shell("flow", "signal", "nobody", "approved").code == 66


def test_a_cancelled_flow_ends_as_such(shell, shop):
    start(shell, "o", '{"item": "pen"}')
    shop.reach_the_wait("o")
    assert shell("flow", "cancel", "o", "--reason", "drill", "--json").document == {"cancelled": 1}

    async def until(host):
        with pytest.raises(Exception, match="drill"):
            await host.flows.get("o").result()

    shop.run(until)
    assert shell("flow", "watch", "o").code == 11


def test_a_failed_flow_is_retried_and_forked_with_other_arguments(shell, shop):
    start(shell, "o", '{"item": "pen", "amount": -1}')
    shop.approve("o")
    forked = shell(
        *("flow", "fork", "o", "--at", "charge#0", "--id", "copy", "--json"),
        *("--input", '["pen", 4]', "--app", shop.name),
    )
    assert forked.document == {"id": "copy", "forked_from": "o"}
    unknown = shell("flow", "fork", "o", "--at", "pay#0")
    assert (unknown.code, "history()" in unknown.stderr) == (2, False)
    assert "--app" in shell("flow", "fork", "o", "--at", "1", "--input", "[1]").stderr
    by_name = ("--at", "charge#0", "--id", "named", "--input", '{"item": "pen", "amount": 5}')
    assert shell("flow", "fork", "o", *by_name).code == 0
    assert shell("flow", "fork", "o", "--at", "0", "--id", "named").code == 75
    assert shell("flow", "retry", "o", "--rerun-unknown", "--json").document == {"retried": 1}
    shop.change('raise ValueError("negative")', "return 0")

    async def until(host):
        assert await host.flows.get("copy").result() == 8
        assert await host.flows.get("named").result() == 10
        assert await host.flows.get("o").result() == 0

    shop.run(until)
    refused = shell("flow", "retry", "o")
    assert refused.code == 75
    assert "only a failed, cancelled or terminated flow can be retried" in refused.stderr


@pytest.mark.parametrize("verb", ["cancel", "suspend", "resume", "terminate", "retry", "purge"])
def test_a_flow_that_is_not_there_keeps_no_other_from_being_changed(shell, shop, verb):
    flows = ("a", "b")
    for flow in flows:
        start(shell, flow, '{"item": "pen"}')
    if verb in ("retry", "purge"):
        shell("flow", "terminate", *flows)
    done = shell("flow", verb, "gone-1", "a", "gone-2", "b", "gone-3", "--json")
    assert (done.code, list(done.document.values())) == (66, [2])
    told = [line for line in done.stderr.splitlines() if "no flow" in line]
    assert [f"gone-{n}" in line for n, line in enumerate(told, start=1)] == [True] * 3
    # Nothing is done if one of them cannot be a flow, and nothing is counted if none is there.
    assert shell("flow", verb, "a", "\n").code == 2
    assert shell("flow", verb, "gone-1", "gone-2").stdout == ""


def test_flows_whose_status_does_not_allow_it_are_named(shell, shop):
    for flow in ("a", "live", "b"):
        start(shell, flow, '{"item": "pen"}')
    assert shell("flow", "terminate", "a", "b").code == 0
    done = shell("flow", "purge", "a", "live", "b", "--json")
    assert (done.code, done.document) == (75, {"purged": 2})
    assert "'live' has not ended" in done.stderr


def test_ended_flows_are_purged_by_name_or_by_what_they_have_in_common(shell, shop):
    for flow in ("a", "b", "c", "live"):
        start(shell, flow, '{"item": "pen"}')
    shell("flow", "terminate", "a", "b", "c")
    assert shell("flow", "purge", "a", "--json").document == {"purged": 1}
    assert shell("flow", "purge", "a").code == 66
    refused = shell("flow", "purge", "live")
    assert (refused.code, "terminate it first" in refused.stderr) == (75, True)
    assert shell("flow", "purge", "--older-than", "3600", "--json").document == {"purged": 0}
    assert shell("flow", "purge", "--status", "terminated", "--json").document == {"purged": 2}
    assert [row["id"] for row in shell("flow", "ls", "-o", "jsonl").lines] == ["live"]
    assert shell("flow", "purge").code == 2
    assert shell("flow", "purge", "a", "--name", "checkout").code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("ls",),
        ("show", "o"),
        ("watch", "o"),
        ("history", "o"),
        ("start", "checkout", "{}"),
        ("signal", "o", "approved"),
        ("cancel", "o"),
        ("terminate", "o"),
        ("suspend", "o"),
        ("resume", "o"),
        ("retry", "o"),
        ("fork", "o", "--at", "1"),
        ("purge", "o"),
    ],
)
def test_no_verb_makes_a_store_and_each_says_that_a_flow_is_not_there(shell, arguments):
    done = shell("flow", *arguments)
    assert (done.code, done.stdout) == (78, "")
    assert list(shell.folder.iterdir()) == []
    if arguments[0] not in ("ls", "start"):
        shell("migrate")
        assert shell("flow", *arguments).code == 66


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("start", "checkout", "{"), "JSON"),
        (("start", "checkout", "[1]"), "one JSON object, such as"),
        (("start", "checkout", '"o-3"'), """such as '{"order": "o-3"}'"""),
        (("start", "checkout", "{}", "--attribute", "tier"), "NAME=VALUE"),
        (("start", "checkout", "{}", "--at", "tomorrow"), "2030-01-31"),
        (("start", "checkout", "{}", "--app", "nowhere:app"), "cannot be imported"),
        (("ls", "--status", "done"), "completed"),
        (("ls", "--created-after", "yesterday"), "--created-after must be an instant"),
        (("ls", "--created-after", "2030-01-31T03:00"), "--created-after needs an offset"),
        (("watch", "o", "--interval", "0"), "interval"),
        (("strat",), "start"),
    ],
)
def test_wrong_use_is_refused(shell, shop, arguments, said):
    done = shell("flow", *arguments)
    assert (done.code, done.stdout) == (2, "")
    assert said in done.stderr


def test_json_may_stand_anywhere_on_the_line(shell, shop):
    for line in (("--json", "flow", "ls"), ("flow", "ls", "--json"), ("-o", "json", "flow", "ls")):
        assert shell(*line).document == {"flows": [], "next_after": None}
    assert shell("--json", "flow", "ls", "-o", "jsonl").stdout == ""
