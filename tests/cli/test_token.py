"""``outlive token``: shown once, listed without its text, revoked, and who did it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from outlive.model.bearer import bearer_digest, claimed_namespace

pytestmark = pytest.mark.usefixtures("made_store")


def created(outlive, *arguments):
    done = outlive("token", "create", *arguments, "-o", "json")
    assert done.code == 0, done.stderr
    return done.document


def test_a_token_is_shown_once_and_stored_as_a_digest(outlive):
    made = created(outlive, "ci", "--scope", "work", "--scope", "read", "--scope", "work")
    text = made["token"]
    assert text.startswith("olt_")
    assert claimed_namespace(text) == "default"
    assert made["scopes"] == "work read"
    listed = outlive("token", "ls", "-o", "json")
    assert text not in listed.stdout
    assert [token["id"] for token in listed.document["tokens"]] == [made["id"]]
    assert "digest" not in listed.document["tokens"][0]
    with closing(sqlite3.connect(Path(outlive.folder) / "leases.db")) as store:
        dump = "\n".join(store.iterdump())
    assert text not in dump
    assert text[4:47] not in dump
    assert bearer_digest(text) in dump


def test_no_two_tokens_are_alike(shell):
    texts = {created(shell, "ci", "--scope", "read")["token"] for _ in range(2)}
    assert len(texts) == 2


def test_a_token_belongs_to_the_namespace_of_the_call(shell):
    made = created(shell, "ci", "--scope", "read", "--namespace", "shop")
    assert claimed_namespace(made["token"]) == "shop"
    assert shell("token", "ls", "-o", "json").document["tokens"] == []
    shop = shell("token", "ls", "-o", "json", "--namespace", "shop")
    assert len(shop.document["tokens"]) == 1


def test_a_revoked_token_is_listed_as_such_and_the_audit_says_who(shell):
    made = created(shell, "ci", "--scope", "read", "--days", "0")
    assert made["expires_at"] is None
    done = shell("token", "revoke", made["id"], "-o", "json")
    assert (done.code, done.document["active"]) == (0, False)
    acts = shell("token", "audit", "-o", "json").document["acts"]
    assert [act["action"] for act in acts] == ["token revoke", "token create"]
    assert {act["subject"] for act in acts} == {made["id"]}
    assert all("@" in act["actor"] for act in acts)
    assert made["token"] not in str(acts)


def test_wrong_use_is_said_with_its_code(shell):
    created(shell, "ci", "--scope", "read")
    assert shell("token", "revoke", "nope").code == 66
    assert shell("token", "create", "ci").code == 2
    assert shell("token", "create", "ci", "--scope", "all").code == 2
    missing = shell("token", "create", "ci")
    assert missing.code == 2
    assert "Choose from: read, enqueue, work, admin, payload:read\n" in missing.stderr
    assert shell("token", "create", "c\x1bi", "--scope", "read").code == 2
    assert shell("token", "create", "x" * 101, "--scope", "read").code == 2
    done = shell("token", "ls", "--url", "redis://127.0.0.1:1")
    assert done.code in (2, 69)


@pytest.mark.parametrize("days", ["-1", "nan", "inf", "1e-12", "1e7", "1e300"])
def test_a_life_that_no_calendar_has_is_refused_and_leaves_no_token(shell, days):
    created(shell, "ci", "--scope", "read")
    done = shell("token", "create", "ci", "--scope", "read", "--days", days)
    assert done.code == 2, done.stderr
    assert "unexpected" not in done.stderr
    assert "olt_" not in done.stdout
    assert len(shell("token", "ls", "-o", "json").document["tokens"]) == 1


def test_who_only_looks_makes_no_store(shell):
    for verb in ("ls", "audit"):
        assert shell("token", verb, "--url", "sqlite:///other.db").code == 78
    assert not (shell.folder / "other.db").exists()


def test_serve_refuses_what_it_cannot_serve_or_bind(outlive):
    done = outlive("serve", "--host", "192.0.2.1")
    assert done.code == 2
    assert "outlive token create" in done.stderr
    created(outlive, "ci", "--scope", "read")
    done = outlive("serve", "--host", "192.0.2.1")
    assert done.code == 2
    assert "cannot listen on port" in done.stderr
    done = outlive("serve", "--allowed-host", "http://work.example:80/")
    assert done.code == 2
    assert "not a host name" in done.stderr
