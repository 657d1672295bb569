"""``outlive bench claims``, with few runs: real processes on a file and on real servers."""

from __future__ import annotations

import signal

import psycopg
import pytest

# A control shows duplicates in nearly every run; so many leave no doubt.
FEW = ("--runs", "6")


def claims(program, *arguments, **environ):
    return program("bench", "claims", *FEW, *arguments, **environ)


def check(done, *strategies: str) -> list[dict]:
    """Every strategy was measured with both numbers of workers, and none is at fault."""
    assert done.code == 0, done.stdout + done.stderr
    document = done.document
    results = document["results"]
    assert [(r["strategy"], r["workers"]) for r in results] == [
        (strategy, workers) for strategy in strategies for workers in (2, 10)
    ]
    for result in results:
        assert result["fault"] is None
        assert result["lost"] == 0
        assert (result["duplicates"] == 0) is result["sound"] is (result["strategy"] != "naive")
        assert result["wins"] == 60 + result["duplicates"]
        assert result["attempts"] >= result["wins"]
        assert 0 < result["p50_ms"] <= result["p95_ms"] <= result["p99_ms"]
    assert document["ok"]
    return results


def test_sound_strategies_on_sqlite_claim_once_and_the_control_does_not(outlive, disk_folder):
    # In memory a commit is over before another looks, and the control claims once as well.
    done = claims(outlive, "--store", "sqlite", "--json", "--sqlite", str(disk_folder))
    check(done, "transaction", "optimistic", "outlive", "naive")
    assert "synchronous=FULL" in done.document["stores"]["sqlite"]


@pytest.mark.service
def test_sound_strategies_on_postgres_claim_once_and_the_control_does_not(outlive, postgres_url):
    done = claims(
        outlive,
        *("--store", "postgres", "--json", "--postgres", "env:DATABASE"),
        DATABASE=postgres_url,
    )
    check(done, "transaction", "optimistic", "outlive", "naive")
    with psycopg.connect(postgres_url) as connection:
        left = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'outlive%'"
        ).fetchall()
    assert left == []


@pytest.mark.service
def test_sound_strategies_on_redis_claim_once_and_the_control_does_not(
    outlive, redis_url, redis_server
):
    done = claims(outlive, "--store", "redis", "--json", "--redis", redis_url)
    check(done, "lock", "lua", "outlive", "naive")
    assert redis_server.command("DBSIZE").strip() == ":0"


def test_a_table_bars_and_a_verdict_are_for_people(outlive):
    done = claims(
        outlive,
        "--store",
        "sqlite",
        "--strategy",
        "transaction",
        "--workers",
        "2",
        "--workers",
        "3",
    )
    assert done.code == 0, done.stderr
    assert "STRATEGY" in done.stdout
    assert "p95 of a claim, 3 workers" in done.stdout
    assert "winner: sqlite/transaction, because with 3 workers it claimed every" in done.stdout
    assert done.stdout.splitlines()[-1] == (
        "verdict: every item was claimed exactly once by every sound strategy"
    )
    assert "sqlite/transaction: 2 workers x 10 items x 6 runs" in done.stderr


def test_a_missing_server_is_skipped_by_name_without_its_password(outlive):
    done = claims(
        outlive,
        *("--strategy", "transaction", "--strategy", "lua", "--workers", "2", "--json"),
        *("--postgres", "postgresql://app:canary-secret@127.0.0.1:1/none"),
    )
    assert done.code == 0, done.stderr
    assert {result["store"] for result in done.document["results"]} == {"sqlite"}
    skipped = done.document["skipped"]
    assert "cannot connect" in skipped["postgres"]
    assert skipped["redis"] == "no --redis URL was given"
    assert "canary-secret" not in done.stdout + done.stderr


def test_nothing_measured_is_no_success(outlive):
    done = claims(outlive, "--store", "redis", "--workers", "2", "--json")
    assert done.code == 1
    assert done.document["ok"] is False


def test_a_strategy_that_the_store_does_not_have_is_wrong_use(shell):
    done = claims(shell, "--store", "sqlite", "--strategy", "lua")
    assert done.code == 2
    assert "redis/lua" in done.stderr


def test_a_reference_to_a_variable_that_is_not_set_is_wrong_use(shell):
    done = claims(shell, "--redis", "env:NOBODY_SET_THIS")
    assert done.code == 2
    assert "NOBODY_SET_THIS" in done.stderr


@pytest.mark.service
def test_an_interrupted_contest_leaves_nothing_behind(outlive, postgres_url):
    arguments = ("--store", "postgres", "--strategy", "naive", "--runs", "5000", "--workers", "3")
    terminal = outlive.at_terminal("bench", "claims", *arguments, "--postgres", postgres_url)
    terminal.expect("postgres/naive: 3 workers")
    terminal.interrupt()
    assert terminal.finish() == 128 + signal.SIGINT
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'outlive%'"
        ).fetchall()
    assert found == []
