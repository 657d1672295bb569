"""What is wrong is said in one line, with the documented exit code and without any secret."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing

import psycopg
import pytest

CANARY = "hunter2-canary"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("lease", "acquire", ""), "must not be empty"),
        (("lease", "acquire", "a\x1b[31m"), "U+001B"),
        (("lease", "acquire", "a\nb"), "U+000A"),
        (("lease", "acquire", "x" * 513), "513 bytes"),
        (("lease", "acquire", "k", "--ttl", "0"), "above 0"),
        (("lease", "acquire", "k", "--ttl", "-1"), "above 0"),
        (("lease", "acquire", "k", "--ttl", "nan"), "finite"),
        (("lease", "acquire", "k", "--ttl", "1e300"), "ten years"),
        (("lease", "acquire", "k", "--ttl", "soon"), "is no duration"),
        (("lease", "acquire", "k", "--timeout", "-1"), "'forever'"),
        (("lease", "acquire", "k", "--limit", "0"), "limit"),
        (("lease", "run", "k"), "COMMAND"),
        (("lease", "run", "", "--", "true"), "must not be empty"),
        (("lease", "run", "k", "--stop-grace", "nan", "--", "true"), "finite"),
        (("lease", "break", "k"), "--reason"),
        (("lease", "break", "k", "--reason", ""), "reason"),
        (("lease", "ls", "--limit", "0"), "1<=x<=1000"),
        (("lease", "ls", "--limit", "1001"), "1<=x<=1000"),
        (("lease", "run", "k", "ls", "-la"), "go after `--`"),
        (("lease", "ls", "--namespace", "a b"), "namespace"),
        (("lease", "watch", "k", "--prefix", "p"), "not both"),
        (("lease", "watch", "-o", "json"), "jsonl"),
        (("lease", "watch", "--interval", "0"), "interval"),
        (("lease", "frobnicate"), "No such command"),
        (("frobnicate",), "No such command 'frobnicate'."),
        (("leese", "ls"), "No such command 'leese'. Did you mean 'lease'?"),
        (("workr", "shop:app"), "Did you mean 'work"),
        (("--frobnicate",), "No such option"),
        (("lease", "ls", "-o", "xml"), "not one of"),
        (("lease", "ls", "--url", "sqlit:///x"), "did you mean sqlite://"),
        (("lease", "ls", "--url", "sqlite:///x.db?bogus=1"), "unknown option 'bogus'"),
        (("lease", "ls", "--url", "leases.db"), "scheme://"),
    ],
)
def test_wrong_use_is_refused_before_anything_happens(shell, arguments, said):
    done = shell(*arguments)
    assert (done.code, done.stdout) == (2, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("outlive: ")
    assert said in last
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr


def test_the_help_names_every_feature(shell):
    said = shell("--help").stdout
    assert all(word in said for word in ("Leases", "work queues", "flows", "statecharts"))


def test_no_url_names_the_ways_to_give_one(shell):
    done = shell("lease", "ls", OUTLIVE_URL="")
    assert done.code == 2
    assert "OUTLIVE_URL" in done.stderr
    assert "--url" in done.stderr


def test_a_doctor_without_a_url_says_what_to_do_in_its_own_column(shell):
    finding = shell("doctor", "--json", OUTLIVE_URL="").document["findings"][-1]
    assert (finding["level"], finding["what"]) == ("error", "no store URL")
    assert "set OUTLIVE_URL" in finding["advice"]


def test_a_wrong_variable_is_named(shell):
    done = shell("lease", "ls", OUTLIVE_SESSION_TTL="abc")
    assert done.code == 2
    assert "OUTLIVE_SESSION_TTL='abc'" in done.stderr


def test_a_missing_extra_is_named_with_the_line_that_installs_it(outlive):
    (outlive.folder / "asyncpg").mkdir()
    (outlive.folder / "asyncpg" / "__init__.py").write_text("raise ImportError('hidden')")
    path = ":".join([str(outlive.folder), *filter(None, sys.path)])
    done = outlive("lease", "ls", "--url", "postgresql://u@127.0.0.1:1/db", PYTHONPATH=path)
    assert done.code == 2
    assert "outlive[postgres]" in done.stderr


def test_a_store_that_cannot_be_reached_is_unavailable(outlive):
    done = outlive("lease", "ls", "--url", "postgresql://u@127.0.0.1:1/db")
    assert (done.code, done.stdout) == (69, "")
    assert "127.0.0.1:1" in done.stderr


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{CANARY}@127.0.0.1:1/db",
        f"postgresql://u@127.0.0.1:1/db?password={CANARY}",
        f"postgresql://u:{CANARY}/x@127.0.0.1:1/db",
        f"postgresql://u:1/{CANARY}@127.0.0.1:1/db",
        f"postgresql://u:{CANARY}@127.0.0.1:notaport/db",
        f"sqlit://u:{CANARY}@h/db",
        f"u:{CANARY}@h/db",
    ],
)
def test_a_password_is_never_printed(shell, url):
    asked = shell("lease", "run", "k", "--url", url, "-v", "--", "true")
    assert asked.code in {2, 69}
    for done in (
        asked,
        shell("--verbose", "doctor", OUTLIVE_URL=url),
        shell("--verbose", "config", "show", "--origin", OUTLIVE_URL=url),
    ):
        assert done.stdout + done.stderr
        assert CANARY not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("lease", "ls"),
        ("lease", "show", "k", "--raw"),
        ("lease", "history", "k"),
        ("lease", "watch", "k"),
        ("lease", "break", "k", "--reason", "r"),
        ("lease", "release", "k", "--owner", "x/1", "--token", "1"),
        ("migrate", "--check"),
        ("work", "enqueue", "mails"),
        ("token", "create", "ops", "--scope", "read"),
        ("flow", "start", "shop"),
    ],
)
def test_who_only_looks_makes_no_store_out_of_a_mistyped_url(shell, arguments):
    done = shell(*arguments)
    assert (done.code, done.stdout) == (78, "")
    assert "is the URL right?" in done.stderr
    assert "so does any program that connects, such as `outlive worker`" in done.stderr
    assert list(shell.folder.iterdir()) == []


def test_a_doctor_makes_no_store_out_of_a_mistyped_url(shell):
    done = shell("doctor", "--json")
    assert done.code == 1
    assert "is the URL right?" in done.document["findings"][-1]["what"]
    assert list(shell.folder.iterdir()) == []


@pytest.mark.service
def test_a_mistyped_database_gets_no_schema(shell, postgres_url):
    done = shell("work", "enqueue", "mails", "--url", postgres_url)
    assert done.code == 78
    assert "is the URL right?" in done.stderr
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute("SELECT FROM pg_namespace WHERE nspname = 'outlive'")
        assert found.fetchall() == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("work", "enqueue", "mails"),
        ("token", "create", "ops", "--scope", "read"),
        ("flow", "start", "shop"),
    ],
)
def test_a_command_that_adds_something_makes_a_store_when_told_to(shell, arguments):
    done = shell(*arguments, "--create")
    assert done.code == 0, done.stderr
    assert (shell.folder / "leases.db").exists()


def test_a_file_of_somebody_else_is_left_as_it_is(shell):
    path = shell.folder / "leases.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (id INTEGER)")
    before = path.read_bytes()
    for arguments in (("lease", "ls"), ("migrate", "--check")):
        assert shell(*arguments).code == 78
    assert path.read_bytes() == before
    path.write_text("no database at all, but long enough to be read as the header of one" * 9)
    refused = shell("lease", "ls")
    assert (refused.code, "not an SQLite database" in refused.stderr) == (2, True)


def test_an_unknown_lease_is_looked_for_among_the_free_ones_too(shell):
    shell("lease", "acquire", "k")
    assert "lease ls --all" in shell("lease", "show", "nope").stderr


def test_a_traceback_is_shown_only_when_asked_for(outlive):
    outlive("migrate")
    quiet = outlive("lease", "show", "nope")
    loud = outlive("lease", "show", "nope", "--verbose")
    assert (quiet.code, loud.code) == (66, 66)
    assert len(quiet.stderr.splitlines()) == 1
    assert "Traceback" in loud.stderr


def test_hostile_text_does_not_reach_the_terminal(shell):
    shell("lease", "acquire", "k")
    refused = shell("lease", "break", "k", "--reason", "\x1b]0;owned\x07")
    assert refused.code == 2
    assert "\x1b" not in refused.stderr
    hostile = "\u202eowned"
    shell("lease", "break", "k", "--reason", hostile)
    for output in ("table", "json", "jsonl"):
        done = shell("lease", "history", "k", "-o", output)
        assert done.code == 0
        assert not set("\x1b\x07\x9b\u202e") & set(done.stdout)
        assert "owned" in done.stdout
    entry = shell("lease", "history", "k", "-o", "json").document["history"][0]
    assert entry["detail"] == hostile
