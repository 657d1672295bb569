"""``migrate``, ``doctor``, ``config`` and the program as a whole."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing

import outlive as package
from outlive.drivers.sqlite import schema


def test_version_and_help_are_data(outlive, shell):
    assert outlive("--version").stdout == f"outlive {package.__version__}\n"
    for arguments in (("--help",), ("lease", "-h"), ("lease", "run", "--help")):
        done = shell(*arguments)
        assert (done.code, done.stderr) == (0, "")
        assert done.stdout.startswith("Usage: outlive")


def test_the_package_runs_as_a_module(outlive):
    done = subprocess.run(
        [sys.executable, "-m", "outlive", "--version"],
        capture_output=True,
        check=True,
        env=outlive.environ(),
    )
    assert done.stdout.startswith(b"outlive ")


def test_migrate_says_before_and_after(shell):
    first = shell("migrate", "-o", "json")
    assert first.code == 0
    assert set(first.document) == {"url", "before", "after", "changed"}
    again = shell("migrate", "-o", "json").document
    assert again["before"] == again["after"] == first.document["after"]
    assert again["changed"] is False
    check = shell("migrate", "--check", "-o", "json")
    assert (check.code, check.document["up_to_date"]) == (0, True)


def test_a_schema_of_a_newer_release_is_a_mismatch(shell):
    shell("migrate")
    path = shell.url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE outlive_schema SET version = 9999, compatible_with = 9999")
    for arguments in (("migrate", "--check"), ("migrate",), ("lease", "ls")):
        done = shell(*arguments)
        assert (done.code, done.stdout) == (78, "")


def test_doctor_finds_a_healthy_store(shell):
    shell("migrate")
    done = shell("doctor", "-o", "json")
    assert done.code == 0, done.stdout
    assert done.document["ok"] is True
    assert all(set(f) == {"level", "what", "advice"} for f in done.document["findings"])
    said = "\n".join(finding["what"] for finding in done.document["findings"])
    for words in (
        "Python 3",
        "outlive ",
        "extras",
        "server",
        "OUTLIVE_URL",
        "host sessions alive: 0",
    ):
        assert words in said


def test_doctor_leaves_an_older_store_as_it_is_and_says_what_to_do(shell, monkeypatch):
    assert shell("migrate", "-o", "json").document["before"] == 0
    path = shell.url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        before = schema.current(connection)
        longer = (*schema.migrations(), (before.number + 1, "CREATE TABLE outlive_more (x);"))
        hosts = schema.migrations("schema_hosts")
        monkeypatch.setattr(
            schema, "migrations", lambda name="schema": longer if name == "schema" else hosts
        )
        check = shell("migrate", "--check")
        assert (check.code, check.stdout) == (78, "")
        done = shell("doctor", "-o", "json", OUTLIVE_MIGRATE="true")
        (error,) = [each for each in done.document["findings"] if each["level"] == "error"]
        assert (done.code, error["advice"]) == (1, "run `outlive migrate`")
        assert schema.current(connection) == before
    assert shell("migrate", "-o", "json").document["changed"] is True
    assert shell("doctor").code == 0


def test_doctor_exits_1_when_something_is_wrong(shell):
    for url in ("postgresql://u@127.0.0.1:1/db", "sqlit:///x", ""):
        done = shell("doctor", "-o", "json", OUTLIVE_URL=url)
        assert (done.code, done.document["ok"]) == (1, False)
        assert [f["level"] for f in done.document["findings"]].count("error") == 1


def test_config_show_tells_values_and_origins(shell):
    (shell.folder / "outlive.toml").write_text("[leases]\nttl = 45\n")
    done = shell("config", "show", "--origin", "-o", "json", "--namespace", "n")
    rows = {row["name"]: (row["value"], row["origin"]) for row in done.document["settings"]}
    assert rows["url"] == (shell.url, "OUTLIVE_URL")
    assert rows["leases.ttl"] == (45, "outlive.toml")
    assert rows["namespace"] == ("n", "argument")
    assert rows["session_ttl"] == (10, "default")
    plain = shell("config", "show", "-o", "jsonl").lines
    assert all(set(row) == {"name", "value"} for row in plain)
    assert "ORIGIN" not in shell("config", "show").stdout


def test_settings_from_files_reach_the_store(shell):
    (shell.folder / "outlive.toml").write_text('namespace = "filed"\n[leases]\nttl = 45\n')
    shown = shell("lease", "acquire", "k", "-o", "json").document
    assert shown["ttl_s"] == 45
    assert shell("lease", "ls", "--namespace", "filed", "-o", "jsonl").lines != []


def test_a_foreign_encoding_does_not_end_the_program(outlive, shell):
    shell("lease", "acquire", "日本")
    done = outlive("lease", "ls", PYTHONIOENCODING="latin-1", PYTHONUTF8="0")
    assert done.code == 0
    assert "\\u65e5\\u672c" in done.stdout


def test_a_group_without_a_command_shows_its_help(shell):
    done = shell("lease")
    assert done.code == 2
    assert "\\n" not in done.stderr
    assert "acquire" in done.stderr + done.stdout
