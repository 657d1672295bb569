"""Claim ids: only the bearer's key makes one, and one text is one id."""

from __future__ import annotations

import pytest

from outlive.model.bearer import bearer_text, claimed_namespace
from outlive.names import HostId, JobId, Token
from outlive.server.claim_ids import ClaimRef, derived, sign, signing_key, verify

KEY = signing_key("olt_a.shop")
CLAIM = ClaimRef("shop", HostId("s1"), JobId("j1"), "mail", Token(7), 1_000_000)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def test_what_was_signed_is_read_back():
    assert verify(KEY, "shop", sign(KEY, CLAIM)) == CLAIM


def test_another_key_or_namespace_reads_nothing():
    text = sign(KEY, CLAIM)
    assert verify(signing_key("olt_b.shop"), "shop", text) is None
    assert verify(KEY, "other", text) is None


def test_no_other_text_is_the_same_id():
    text = sign(KEY, CLAIM)
    for place, character in enumerate(text):
        for other in (ALPHABET[(ALPHABET.find(character) + 1) % 64], "", "=", ".", "é"):
            changed = text[:place] + other + text[place + 1 :]
            assert changed == text or verify(KEY, "shop", changed) is None
    for more in (f"{text}=", f"{text}.", f" {text}", f"{text}\n", f"{text}A", text + text):
        assert verify(KEY, "shop", more) is None


@pytest.mark.parametrize("text", ["", ".", "..", "A.A", "\ud800.x", "W10.x", "x" * 5000])
def test_what_is_no_id_is_none(text):
    assert verify(KEY, "shop", text) is None


def test_derived_names_differ_by_every_part_and_do_not_run_together():
    names = {
        derived(KEY, "a", "bc"),
        derived(KEY, "ab", "c"),
        derived(KEY, "abc"),
        derived(signing_key("x"), "abc"),
    }
    assert len(names) == 4


def test_the_text_of_a_token_tells_where_to_look():
    assert claimed_namespace(bearer_text(b"\xff" * 32, "shop.a-b_c")) == "shop.a-b_c"
    for text in ("", "olt_", "olt_x.shop", "olx_" + "A" * 43 + ".shop", "olt_" + "A" * 43 + "."):
        assert claimed_namespace(text) is None
    assert claimed_namespace("olt_" + "A" * 43 + ".a/b") is None
