"""The pieces below the commands: clean text, exit codes, masked secrets, changes of a watch."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from outlive import errors as library
from outlive.cli import errors
from outlive.cli.lease_watch import changes
from outlive.cli.output import cell, clean, timestamp
from outlive.leases.info import LeaseInfo
from outlive.names import Token

AT = datetime(2026, 1, 2, 3, 4, 5, 678900, UTC)


def info(**fields) -> LeaseInfo:
    whole = LeaseInfo(
        key="k",
        slot=0,
        limit=1,
        token=Token(1),
        version=1,
        owner="h/1",
        host="h",
        active=True,
        ttl_s=30.0,
        remaining_s=30.0,
        acquired_at=AT,
        renewed_at=AT,
        expires_at=AT,
        metadata={},
        state=None,
        waiters=0,
    )
    return replace(whole, **fields)


@pytest.mark.parametrize("text", ["plain", "naïve 日本 🎈", "[red]x[/red]"])
def test_harmless_text_stays_as_it_is(text):
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb\r\t", "a\\nb\\r\\t"),
        ("\x7f\x9b\x00", "\\x7f\\x9b\\x00"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_could_act_on_a_terminal_is_escaped(text, shown):
    assert clean(text) == shown
    assert clean(shown) == shown


def test_cells_are_one_clean_line():
    assert cell(None) == "-"
    assert cell(AT.astimezone(timezone(timedelta(hours=9)))) == "2026-01-02 03:04:05Z"
    assert cell({"a": "\x1b"}) == '{"a": "\\u001b"}'
    assert [cell(True), cell(0.25), cell(3)] == ["yes", "0.25", "3"]
    assert timestamp(AT) == "2026-01-02T03:04:05.678+00:00"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (library.UsageError("x"), 2),
        (library.ConfigurationError("x"), 2),
        (library.InvalidName("x"), 2),
        (library.UnsupportedByDriver("x"), 2),
        (library.LeaseNotFound("k"), 66),
        (library.JobNotFound("j"), 66),
        (library.DuplicateJob("q", "k", "j"), 75),
        (library.JobExists("j", "q"), 75),
        (library.QueueClosed("q"), 75),
        (library.ClaimLost("j", "fenced"), 76),
        (library.StoreUnavailable("x"), 69),
        (library.OutcomeUnknown("x"), 74),
        (library.LeaseHeld("k", "o"), 75),
        (library.AlreadyOwned("k", "o"), 75),
        (library.AcquireTimeout("k", "o", 1.0), 75),
        (library.LeaseExpired("k"), 76),
        (library.Fenced("k"), 76),
        (library.SchemaMismatch("x", found=1, expected=2), 78),
        (library.OutliveError("x"), 1),
        (ValueError("x"), 1),
    ],
)
def test_every_error_has_its_exit_code(error, code):
    assert errors.exit_code_of(error) == code


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p%40ssword@h/db",
        "postgresql://u:p@ssword@h/db",
        "postgresql://u@h/db?password=p%40ssword",
    ],
)
def test_a_secret_is_found_escaped_and_plain(url):
    assert errors.scrub("x p@ssword y", errors.secrets_in(url)) == "x *** y"


def test_changes_are_named_for_what_happened():
    seen = {}
    told = [
        [event["event"] for event in changes(seen, [now], first=first)]
        for now, first in [
            (info(), True),
            (info(), False),
            (info(remaining_s=3.0, expires_at=AT + timedelta(seconds=1)), False),
            (info(version=2), False),
            (info(version=2, active=False), False),
            (info(version=3, owner="h/2", token=Token(2)), False),
            (info(version=4, owner=None, active=False, token=Token(2)), False),
        ]
    ]
    assert told == [["seen"], [], [], ["renewed"], ["expired"], ["acquired"], ["freed"]]


def test_a_key_that_appears_later_was_acquired():
    assert [event["event"] for event in changes({}, [info()], first=False)] == ["acquired"]
