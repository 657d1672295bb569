"""Names of blobs: reversible, safe, in the order of their keys, and within Azure's rules."""

from __future__ import annotations

import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.drivers.azblob.blob_names import key_of, lease_id_of, name_of, prefix_of
from outlive.names import KEY_BYTES_MAX, NAMESPACE_LENGTH_MAX

pytestmark = pytest.mark.whitebox

keys = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)


@given(keys)
def test_a_name_leads_back_to_its_key(key):
    assert key_of("default", name_of("default", key)) == key


@given(keys, keys)
def test_names_sort_as_their_keys_do(one, two):
    assert (name_of("n", one) < name_of("n", two)) == (one < two)


@given(keys, keys)
def test_a_prefix_of_a_key_is_a_prefix_of_its_name(prefix, rest):
    assert name_of("n", prefix + rest).startswith(prefix_of("n", prefix))


@given(keys)
def test_names_are_plain_in_every_url_and_account(key):
    assert re.fullmatch(r"n/[0-9a-v]+", name_of("n", key))


@pytest.mark.parametrize("key", ["k" * KEY_BYTES_MAX, "\U0001f511" * (KEY_BYTES_MAX // 4)])
def test_the_longest_names_fit(key):
    assert len(name_of("n" * NAMESPACE_LENGTH_MAX, key)) <= 1024


def test_a_namespace_that_ends_with_a_dot_makes_no_such_folder():
    assert name_of("ns.", "k").startswith("ns.~/")
    assert name_of("n.s", "k").startswith("n.s/")


@pytest.mark.parametrize(
    "name", ["n/", "n/!", "n/cc.txt", "n/CC", "n/0", "other/cc", "cc", "n/ccc", "n/~"]
)
def test_a_foreign_name_is_no_key(name):
    assert key_of("n", name) is None


def test_an_owner_has_one_lease_id_and_no_other_has_it():
    assert lease_id_of("web/1") == lease_id_of("web/1")
    assert lease_id_of("web/1") != lease_id_of("web/2")
    assert uuid.UUID(lease_id_of("web/1")).version == 5
