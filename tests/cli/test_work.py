"""Jobs from a shell: enqueued, claimed by one process, settled by another, steered."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("made_store")

CLAIM_FIELDS = {
    "id",
    "queue",
    "token",
    "claim",
    "worker",
    "attempt",
    "losses",
    "payload",
    "headers",
    "claimed_until",
}


def enqueue(outlive, *arguments):
    return outlive("work", "enqueue", *arguments, "-o", "json").document["id"]


def claim(outlive, *arguments):
    done = outlive("work", "claim", *arguments, "-o", "json")
    assert done.code == 0, done.stderr
    return done.document["claims"]


def proof(claimed):
    return claimed["id"], "--token", str(claimed["token"]), "--claim", claimed["claim"]


def shown(outlive, job):
    return outlive("work", "show", job, "-o", "json").document


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_jobs_that_are_not_there_do_not_keep_others_from_being_changed(shell, verb):
    jobs = [enqueue(shell, "q", "--delay", "600") for _ in range(2)]
    named = ("gone-1", jobs[0], "gone-2", jobs[1])
    done = shell("work", verb, *named, "-o", "json")
    assert (done.code, list(done.document.values())) == (66, [2])
    assert [f"no job '{name}'" in done.stderr for name in ("gone-1", "gone-2")] == [True, True]
    states = {row["state"] for row in shell("work", "ls", "-o", "json").document["jobs"]}
    assert states == {"cancelled" if verb == "cancel" else "ready"}
    # Nothing is done if one of them cannot be a job.
    assert shell("work", verb, jobs[0], "\n").code == 2


def test_a_known_id_is_existing_and_another_payload_is_told(shell):
    entries, told = [], []
    for payload in ("1", "1", "2"):
        done = shell("work", "enqueue", "q", payload, "--id", "j", "-o", "json")
        entries.append(done.document["entry"])
        told.append(done.stderr)
    assert entries == ["created", "existing", "existing"]
    assert told == ["", "", "outlive: job 'j' exists with another payload, which stays\n"]
    assert shown(shell, "j")["payload"] == 1


def test_a_table_shows_what_is_meant_and_no_more(shell):
    enqueue(shell, "q", "--id", "j")
    enqueue(shell, "long" * 75, "--id", "k")
    heading, row, long = shell("work", "ls").stdout.splitlines()
    assert len(heading) < 150
    assert "long" * 75 in long
    # Never claimed: no token.
    assert row.split() == ["j", "q", "ready", "0", "-", "-", "-"]
    fields = dict(line.split(maxsplit=1) for line in shell("work", "show", "j").stdout.splitlines())
    assert (fields["retry"], fields["max_attempts"]) == ("of its handler", "of its handler")
    assert not {"cursor", "session"} & fields.keys()


def test_settling_a_job_that_does_not_exist_says_so(shell):
    enqueue(shell, "q")
    for verb in ("complete", "release"):
        done = shell("work", verb, "nope", "--token", "1")
        assert (done.code, "no job 'nope'" in done.stderr) == (66, True)


def test_the_table_of_jobs_names_a_claimant_only_while_there_is_one(shell):
    enqueue(shell, "q")
    (claimed,) = claim(shell, "q", "--worker", "shell-1")
    assert "shell-1" in shell("work", "ls").stdout
    assert shell("work", "release", *proof(claimed)).code == 0
    assert "shell-1" not in shell("work", "ls").stdout
    assert "shell-1" in shell("work", "ls", "-o", "json").stdout


def test_a_job_is_claimed_by_one_process_and_completed_by_another(outlive, shell):
    job = enqueue(shell, "mails", '{"to": "ann"}', "--priority", "3", "--header", "trace=1")
    (claimed,) = claim(outlive, "mails", "--worker", "shell-1")
    assert set(claimed) == CLAIM_FIELDS
    assert (claimed["id"], claimed["payload"]) == (job, {"to": "ann"})
    assert claimed["headers"] == {"trace": "1"}
    listed = shell("work", "ls")
    assert listed.stdout.splitlines()[0].split()[:5] == [
        "ID",
        "QUEUE",
        "STATE",
        "FAILURES",
        "TOKEN",
    ]
    (row,) = listed.stdout.splitlines()[1:]
    assert "claimed" in row
    assert "shell-1" in row
    assert shell("work", "claim", "mails").code == 75
    done = outlive("work", "complete", *proof(claimed), "--result", "[1]")
    assert done.code == 0, done.stderr
    after = shown(shell, job)
    assert (after["state"], after["result"], after["claimed_by"]) == ("done", [1], "shell-1")
    # Again after a lost reply is fine; under an older token it is not.
    assert shell("work", "complete", *proof(claimed), "--result", "[1]").code == 0
    assert shell("work", "complete", job, "--token", "0").code == 76


def test_failures_are_kept_until_the_job_is_dead_and_may_be_retried(shell):
    job = enqueue(shell, "q", "--max-attempts", "2")
    (first,) = claim(shell, "q")
    failed = shell("work", "fail", *proof(first), "--error", "no route", "--retry-in", "0")
    assert failed.code == 0, failed.stderr
    (second,) = claim(shell, "q", "--wait", "10")
    assert second["attempt"] == 2
    assert second["token"] > first["token"]
    again = ("--error", "still none", "--retry-in", "0")
    assert shell("work", "fail", *proof(second), *again).code == 0
    dead = shell("work", "dead", "-o", "json").document["jobs"]
    assert [(row["id"], row["attempts"], row["reason"]) for row in dead] == [(job, 2, "still none")]
    history = shown(shell, job)["history"]
    assert [entry["reason"] for entry in history] == ["still none", "no route"]
    assert shell("work", "retry", "--state", "dead", "-o", "json").document == {"retried": 1}
    assert (shown(shell, job)["state"], shown(shell, job)["attempts"]) == ("ready", 0)


def test_a_released_job_can_be_had_at_once_and_a_stale_claim_harms_nobody(shell):
    job = enqueue(shell, "q")
    (first,) = claim(shell, "q")
    assert shell("work", "release", *proof(first)).code == 0
    (second,) = claim(shell, "--job", job)
    assert (second["id"], second["attempt"], second["losses"]) == (job, 1, 0)
    assert shell("work", "complete", *proof(first)).code == 76
    assert shown(shell, job)["state"] == "claimed"


def test_what_a_claim_left_behind_is_taken_back_after_its_ttl(shell):
    job = enqueue(shell, "q")
    (lost,) = claim(shell, "q", "--ttl", "0.2")
    (found,) = claim(shell, "q", "--wait", "10")
    assert (found["id"], found["losses"]) == (job, 1)
    assert shell("work", "complete", *proof(lost)).code == 76


def test_lines_of_a_file_become_jobs_in_one_step(shell):
    added = shell(
        "work", "enqueue", "q", "-", "--lines", "-o", "jsonl", stdin='{"n": 1}\n\n{"n": 2}\n3'
    )
    assert [row["entry"] for row in added.lines] == ["created"] * 3
    page = shell("work", "ls", "--queue", "q", "--limit", "2", "-o", "json")
    assert [row["payload"] for row in page.document["jobs"]] == [{"n": 1}, {"n": 2}]
    rest = shell("work", "ls", "--after", page.document["next_after"], "-o", "jsonl").lines
    assert [row["payload"] for row in rest] == [3]
    wrong = shell("work", "enqueue", "q", "-", "--lines", stdin="{}\nnope\n")
    assert (wrong.code, wrong.stdout) == (2, "")
    assert "line 2" in wrong.stderr


def test_a_job_has_a_retry_policy_of_its_own(shell):
    job = enqueue(shell, "q", "--retry", '{"first": 5, "max_attempts": 3}')
    shown = shell("work", "show", job, "-o", "json").document
    assert shown["max_attempts"] == 3
    for wrong in ("[]", '{"frist": 5}', "5 s"):
        refused = shell("work", "enqueue", "q", "--retry", wrong)
        assert (refused.code, refused.stdout) == (2, "")


def test_queues_are_paused_drained_and_opened(shell):
    enqueue(shell, "q")
    assert shell("work", "pause", "q").code == 0
    assert shell("work", "claim", "q").code == 75
    assert shell("work", "drain", "q").code == 0
    closed = shell("work", "enqueue", "q")
    assert (closed.code, closed.stdout) == (75, "")
    assert shell("work", "resume", "q").code == 0
    assert len(claim(shell, "q", "--limit", "5")) == 1
    (row,) = shell("work", "stats", "-o", "json").document["queues"]
    assert (row["queue"], row["mode"], row["claimed"], row["ready"]) == ("q", "open", 1, 0)
    top = shell("work", "top", "--once", "-o", "jsonl").lines
    assert [(each["queue"], each["claimed"]) for each in top] == [("q", 1)]
    assert shell("work", "top", "-o", "json").code == 2


def test_queues_are_limited_and_the_limits_lifted(shell):
    def limits(*arguments):
        done = shell("work", "limit", "q", *arguments)
        assert (done.code, done.stdout) == (0, ""), done.stderr
        (row,) = shell("work", "stats", "-o", "json").document["queues"]
        assert row["mode"] == "paused"
        return row["concurrency"], row["rate"], row["per_s"], row["limits_by"]

    enqueue(shell, "q")
    enqueue(shell, "q")
    assert shell("work", "pause", "q").code == 0
    assert limits("--concurrency", "5", "--rate", "100/60") == (5, 100, 60.0, "operator")
    assert limits("--rate", "7") == (None, 7, 1.0, "operator")
    assert limits("--concurrency", "1") == (1, None, 1.0, "operator")
    assert shell("work", "resume", "q").code == 0
    assert len(claim(shell, "q", "--limit", "5")) == 1
    assert shell("work", "pause", "q").code == 0
    assert limits("--lift") == (None, None, 1.0, None)
    for wrong in (
        (),
        ("--lift", "--rate", "1"),
        ("--concurrency", "0"),
        ("--concurrency", "many"),
        *(("--rate", rate) for rate in ("0", "5/", "5/0", "/5", "1.5", "5/x", "5/nan", "5/-1")),
    ):
        assert shell("work", "limit", "q", *wrong).code == 2, wrong


def test_top_goes_on_until_it_is_told_to_stop(outlive):
    enqueue(outlive, "q")
    watching = outlive.start("work", "top", "--interval", "0.1", "-o", "jsonl")
    first, second = (watching.stdout.readline() for _ in range(2))
    assert '"ended_per_s": null' in first
    assert '"ended_per_s": 0' in second
    watching.terminate()
    assert outlive.finish(watching).code == 143
    terminal = outlive.at_terminal("work", "top", "--interval", "0.1")
    terminal.expect(r"QUEUE +MODE +READY")
    terminal.expect(r"q +open +1")
    terminal.interrupt()
    assert terminal.process.wait(60) == 130


def test_unique_keys_and_cancelling_by_filter(shell):
    first = enqueue(shell, "q", "--unique-key", "k", "--delay", "60")
    assert shell("work", "enqueue", "q", "--unique-key", "k").code == 75
    same = shell(
        "work", "enqueue", "q", "--unique-key", "k", "--on-duplicate", "return", "-o", "json"
    )
    assert same.document == {"id": first, "queue": "q", "entry": "existing"}
    cancelled = shell("work", "cancel", "--queue", "q", "--reason", "mistake", "-o", "json")
    assert cancelled.document == {"cancelled": 1}
    assert shown(shell, first)["state"] == "cancelled"


def test_wrong_use_says_what_to_do_and_changes_nothing(shell):
    job = enqueue(shell, "q")
    for arguments in (
        ("enqueue", "q", "{nope"),
        ("enqueue", "q", "NaN"),
        ("enqueue", "q", "--at", "tomorrow"),
        ("enqueue", "q", "--header", "novalue"),
        ("claim",),
        ("cancel",),
        ("cancel", job, "--queue", "q"),
        ("fail", job, "--token", "1", "--error", "x", "--dead", "--retry-in", "1"),
    ):
        done = shell("work", *arguments)
        assert (done.code, done.stdout) == (2, ""), arguments
    assert shell("work", "show", "nope").code == 66
    assert shell("work", "retry", "nope").code == 66
    assert shell("work", "stats", OUTLIVE_URL=f"sqlite:///{shell.folder}/none.db").code == 78


def test_a_dead_letter_that_nobody_claimed_says_so(shell):
    job = enqueue(shell, "q", "--expires", "0.001")
    # A claim ends what has expired.
    assert shell("work", "claim", "q").code == 75
    (letter,) = shell("work", "dead", "-o", "json").document["jobs"]
    assert (letter["id"], letter["reason"]) == (job, "expired: not claimed within 0.001 s")
    assert "expired: not claimed within 0.001 s" in shell("work", "show", job).stdout
