"""Names in etcd: folders apart from each other, in code-point order, and read back exactly."""

from __future__ import annotations

import pytest

from outlive.drivers.etcd.keys import Names

NAMES = Names("outlive", "shop")
KEYS = ["a", "a ", "a!", "a/b", "ab", "b", "\u00e9", "\u7530", "\U0001f511", "\U0010ffff", " "]


def within(name: bytes, span: tuple[bytes, bytes]) -> bool:
    return span[0] <= name < span[1]


@pytest.mark.parametrize("key", KEYS)
def test_everything_about_a_key_lies_in_its_folder_alone(key: str) -> None:
    names = [
        NAMES.record(key),
        NAMES.state(key),
        NAMES.slot(key, 0),
        NAMES.slot(key, 59),
        NAMES.live(key, 7, 1),
        NAMES.place(key, "host/1"),
    ]
    for name in names:
        assert [other for other in KEYS if within(name, NAMES.folder(other))] == [key]
        part = NAMES.part(name)
        assert part is not None
        assert part.key == key


def test_folders_are_in_code_point_order() -> None:
    assert sorted(KEYS) == sorted(KEYS, key=NAMES.record)


def test_history_and_bells_are_no_part_of_a_folder() -> None:
    for name in (NAMES.ended("a", 0, 3), NAMES.bell(None), NAMES.bell("h")):
        assert not within(name, (NAMES.leases, NAMES.leases_end))
        assert NAMES.part(name) is None


def test_a_host_named_like_the_bell_of_all_has_its_own() -> None:
    assert NAMES.bell("*") != NAMES.bell(None)


def test_a_listing_begins_after_the_key_it_is_given() -> None:
    start, end = NAMES.listing("a", "a")
    assert not within(NAMES.record("a"), (start, end))
    assert within(NAMES.record("a "), (start, end))
    assert within(NAMES.record("ab"), (start, end))
    assert not within(NAMES.record("b"), (start, end))


def test_a_listing_of_all_ends_with_the_namespace() -> None:
    span = NAMES.listing("", None)
    assert all(within(NAMES.record(key), span) for key in KEYS)
    assert not within(Names("outlive", "shop.x").record("a"), span)
    assert not within(NAMES.ended("a", 0, 0), span)


def test_strangers_are_not_taken_for_ours() -> None:
    for name in (b"other", NAMES.leases + b"no tab", NAMES.leases + b"\xff\trecord"):
        assert NAMES.part(name) is None
