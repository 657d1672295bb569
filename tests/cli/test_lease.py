"""Looking at leases, owning them from scripts, and breaking them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

FIELDS = {
    "key",
    "slot",
    "limit",
    "token",
    "version",
    "owner",
    "host",
    "active",
    "ttl_s",
    "remaining_s",
    "acquired_at",
    "renewed_at",
    "expires_at",
    "metadata",
    "state",
    "waiters",
}


def acquire(outlive, key, *more):
    return outlive("lease", "acquire", key, "-o", "json", *more).document


def test_an_acquired_lease_stays_owned_until_it_is_released(outlive):
    first = acquire(outlive, "report", "--ttl", "60")
    assert set(first) == {"key", "slot", "token", "owner", "ttl_s", "expires_at"}
    assert datetime.fromisoformat(first["expires_at"]).utcoffset() == timedelta(0)
    refused = outlive("lease", "acquire", "report")
    assert refused.code == 75
    assert first["owner"] in refused.stderr
    assert refused.stdout == ""
    proof = ("--owner", first["owner"], "--token", str(first["token"]))
    assert outlive("lease", "release", "report", *proof).code == 0
    assert acquire(outlive, "report")["token"] > first["token"]


def test_a_stale_release_is_refused_and_harms_nobody(shell):
    first = acquire(shell, "report")
    wrong = shell("lease", "release", "report", "--owner", "x/1", "--token", "1")
    stale = shell("lease", "release", "report", "--owner", first["owner"], "--token", "99")
    assert (wrong.code, stale.code) == (76, 76)
    assert shell("lease", "acquire", "report").code == 75


def test_acquire_waits_as_long_as_it_is_told(shell):
    acquire(shell, "long")
    assert shell("lease", "acquire", "long", "--timeout", "0.1").code == 75
    acquire(shell, "brief", "--ttl", "1.5")
    assert shell("lease", "acquire", "brief", "--timeout", "forever").code == 0


def test_slots_of_a_semaphore_are_owned_and_shown_one_by_one(shell):
    slots = [acquire(shell, "gpu", "--limit", "2")["slot"] for _ in range(2)]
    assert sorted(slots) == [0, 1]
    assert shell("lease", "acquire", "gpu", "--limit", "2").code == 75
    shown = shell("lease", "show", "gpu", "-o", "json").document
    assert [slot["slot"] for slot in shown["slots"]] == [0, 1]
    assert shell("lease", "acquire", "gpu", "--limit", "3").code == 2


def test_ls_lists_pages_in_three_shapes(shell):
    for key in ("a/1", "a/2", "b"):
        acquire(shell, key)
    page = shell("-o", "json", "lease", "ls", "--limit", "2")
    assert [lease["key"] for lease in page.document["leases"]] == ["a/1", "a/2"]
    assert page.document["next_after"] == "a/2"
    assert set(page.document["leases"][0]) == FIELDS
    rest = shell("lease", "ls", "--after", "a/2", "-o", "json").document
    assert [lease["key"] for lease in rest["leases"]] == ["b"]
    assert rest["next_after"] is None
    lines = shell("lease", "ls", "--prefix", "a/", "-o", "jsonl").lines
    assert [lease["key"] for lease in lines] == ["a/1", "a/2"]
    table = shell("lease", "ls")
    assert table.stdout.splitlines()[0].split()[:3] == ["KEY", "OWNER", "TOKEN"]
    assert all(len(line) <= 80 for line in table.stdout.splitlines())


def test_ls_filters_by_owner_and_activity(shell):
    mine = acquire(shell, "mine")
    shell("lease", "acquire", "theirs", OUTLIVE_NAME="other")
    by_host = shell("lease", "ls", "--owner", "other", "-o", "jsonl").lines
    assert [lease["key"] for lease in by_host] == ["theirs"]
    by_owner = shell("lease", "ls", "--owner", mine["owner"], "-o", "jsonl").lines
    assert [lease["key"] for lease in by_owner] == ["mine"]
    shell("lease", "break", "mine", "--reason", "test")
    active = shell("lease", "ls", "-o", "jsonl").lines
    everything = shell("lease", "ls", "--all", "-o", "jsonl").lines
    assert [lease["key"] for lease in active] == ["theirs"]
    assert [lease["key"] for lease in everything] == ["mine", "theirs"]


def test_ls_shows_what_one_owner_holds_now(shell):
    acquire(shell, "held")
    shell("lease", "acquire", "ended", "--ttl", "0.2", OUTLIVE_NAME="other")
    shell("lease", "acquire", "theirs", OUTLIVE_NAME="other")
    shell("lease", "acquire", "ended", "--timeout", "5")
    owned = shell("lease", "ls", "--active", "--owner", "other", "-o", "jsonl").lines
    assert [lease["key"] for lease in owned] == ["theirs"]


def test_show_raw_gives_the_stored_record_in_every_shape(shell):
    first = acquire(shell, "report")
    document = shell("lease", "show", "report", "--raw", "-o", "json").document
    (line,) = shell("lease", "show", "report", "--raw", "-o", "jsonl").lines
    assert document == line
    (record,) = document["raw"]
    assert (record["owner"], record["token"]) == (first["owner"], first["token"])
    # Columns that only the SQLite table has.
    assert {"domain", "expires_us", "endings"} <= set(record)
    table = shell("lease", "show", "report", "--raw").stdout.splitlines()
    assert [line.split()[0] for line in table] == list(record)


def test_show_raw_refuses_what_it_cannot_show(shell):
    shell("migrate")
    assert shell("lease", "show", "nope", "--raw").code == 66
    both = shell("lease", "show", "nope", "--raw", "--history")
    assert (both.code, both.stdout) == (2, "")


def test_namespaces_are_apart(shell):
    acquire(shell, "k")
    assert shell("lease", "ls", "--namespace", "other", "-o", "jsonl").lines == []
    assert shell("--namespace", "other", "lease", "acquire", "k").code == 0


def test_break_ends_a_lease_and_history_tells(shell):
    first = acquire(shell, "stuck")
    broken = shell("lease", "break", "stuck", "--reason", "on call", "-o", "json")
    assert [lease["owner"] for lease in broken.document["broken"]] == [first["owner"]]
    again = shell("lease", "break", "stuck", "--reason", "twice", "-o", "json")
    assert (again.code, again.document) == (0, {"broken": []})
    second = acquire(shell, "stuck")
    entries = shell("lease", "history", "stuck", "-o", "json").document["history"]
    assert entries[0]["token"] == second["token"]
    assert entries[0]["ended"] is None
    old = next(entry for entry in entries if entry["token"] == first["token"])
    assert (old["ended"], old["detail"]) == ("broken", "on call")
    shown = shell("lease", "show", "stuck", "--history", "-o", "json").document
    assert set(shown) == {"key", "slots", "history"}
    table = shell("lease", "show", "stuck", "--history").stdout
    assert "on call" in table
    assert "waiters" in table


@pytest.mark.parametrize(
    "arguments",
    [("show", "nope"), ("history", "nope"), ("break", "nope", "--reason", "r")],
)
def test_an_unknown_lease_is_not_found(shell, arguments):
    acquire(shell, "nope-not-quite")
    done = shell("lease", *arguments)
    assert (done.code, done.stdout) == (66, "")
    assert done.stderr.startswith("outlive: no lease 'nope'")


def test_watch_tells_each_change_as_it_happens(outlive, shell):
    first = acquire(shell, "w", "--ttl", "60")
    watching = outlive.start(
        "lease", "watch", "w", "--interval", "0.05", "--count", "3", "-o", "jsonl"
    )
    assert watching.stdout is not None
    lines = [watching.stdout.readline()]
    shell("lease", "break", "w", "--reason", "r")
    lines.append(watching.stdout.readline())
    acquire(shell, "w")
    done = outlive.finish(watching)
    assert done.code == 0
    events = [json.loads(line) for line in (*lines, done.stdout)]
    assert [event["event"] for event in events] == ["seen", "freed", "acquired"]
    assert events[0]["owner"] == first["owner"]
    assert set(events[0]) == {*FIELDS, "at", "event"}


def test_a_watch_shows_version_and_end_move_with_each_renewal(outlive):
    outlive("migrate")
    running = outlive.start("lease", "run", "w", "--ttl", "4", "--", "sleep", "60")
    watching = outlive.start(
        "lease", "watch", "w", "--interval", "0.05", "--count", "4", "-o", "jsonl"
    )
    events = outlive.finish(watching).lines
    running.terminate()
    held = [event for event in events if event["active"]]
    assert len(held) >= 3
    assert {event["token"] for event in held} == {held[0]["token"]}
    for before, after in pairwise(held):
        assert after["event"] == "renewed"
        assert after["version"] > before["version"]
        assert after["expires_at"] > before["expires_at"]


def test_a_watched_line_names_token_version_and_end(shell):
    first = acquire(shell, "w", "--ttl", "60")
    line = shell("lease", "watch", "w", "--count", "1").stdout
    assert f"seen w token {first['token']} version 1 owner {first['owner']} until 20" in line


def test_a_watch_ends_quietly_when_nobody_reads_or_somebody_interrupts(outlive, shell):
    acquire(shell, "w")
    unread = outlive.start("lease", "watch", "--interval", "0.05")
    assert unread.stdout is not None
    assert unread.stdout.readline().split()[2:4] == ["seen", "w"]
    unread.stdout.close()
    shell("lease", "break", "w", "--reason", "r")
    assert unread.wait(60) == 141
    assert unread.stderr is not None
    assert unread.stderr.read() == ""
    watching = outlive.start("lease", "watch", "w", "--interval", "0.05")
    assert watching.stdout is not None
    watching.stdout.readline()
    watching.send_signal(2)
    done = outlive.finish(watching)
    assert (done.code, done.stderr) == (130, "")


def test_a_waiter_that_is_told_to_stop_leaves_the_queue(outlive, shell):
    acquire(shell, "q", "--ttl", "60")
    waiting = outlive.start("lease", "acquire", "q", "--timeout", "forever")

    def waiters():
        return shell("lease", "show", "q", "-o", "json").document["slots"][0]["waiters"]

    while waiters() == 0:
        assert waiting.poll() is None
    waiting.terminate()
    assert outlive.finish(waiting).code == 143
    assert waiters() == 0
