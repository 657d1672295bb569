"""The stored JSON of payloads, arguments and results, to the letter, and the values read from it.

``python -m tests.golden.payloads write`` writes the golden files anew; a run of the tests compares.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import attrs
import msgspec
import pydantic
import pytest

from tests.golden.payloads import FOLDER, GROUPS, read, write

CASES = [
    pytest.param(group, case, id=f"{group}: {case.name}")
    for group, cases in GROUPS.items()
    for case in cases
]
READS = [
    pytest.param(case, text, expected, id=f"{group}: {case.name}: {text}")
    for group, cases in GROUPS.items()
    for case in cases
    for text, expected in case.reads.items()
]


def exact(value: Any) -> Any:
    """A value with the types of all its parts, which ``==`` does not compare."""
    if isinstance(value, dict):
        parts: Any = {repr(exact(key)): exact(each) for key, each in value.items()}
    elif isinstance(value, (list, tuple)):
        parts = [exact(each) for each in value]
    elif isinstance(value, (set, frozenset)):
        parts = sorted(repr(exact(each)) for each in value)
    elif hasattr(value, "isoformat"):
        # Each library has a time zone of its own for UTC.
        parts = value.isoformat()
    elif isinstance(value, (bytes, msgspec.Raw)):
        parts = bytes(value)
    elif isinstance(value, msgspec.Struct):
        parts = exact(msgspec.structs.asdict(value))
    elif isinstance(value, pydantic.BaseModel):
        parts = exact(dict(value))
    elif dataclasses.is_dataclass(value):
        parts = [exact(getattr(value, each.name)) for each in dataclasses.fields(value)]
    elif attrs.has(type(value)):
        parts = [exact(getattr(value, each.name)) for each in attrs.fields(type(value))]
    else:
        parts = repr(value)
    return type(value), parts


def test_each_group_has_its_file_and_each_case_its_entry():
    assert sorted(path.stem for path in FOLDER.glob("*.json")) == sorted(GROUPS)
    for group, cases in GROUPS.items():
        # In this order, and each once.
        assert list(read(group)) == [case.name for case in cases]


@pytest.mark.parametrize(("group", "case"), CASES)
def test_a_value_is_stored_as_the_golden_text(group, case):
    assert case.entry() == read(group)[case.name]


@pytest.mark.parametrize(("group", "case"), CASES)
def test_a_golden_text_is_read_as_its_value(group, case):
    stored = {key: text for key, text in read(group)[case.name].items() if "refused" not in key}
    for text in stored.values():
        for reader in case.readers():
            found = reader(text)
            assert found == case.expected
            assert exact(found) == exact(case.expected)


@pytest.mark.parametrize(("case", "text", "expected"), READS)
def test_json_of_other_shapes_is_read_as_expected(case, text, expected):
    for reader in case.readers():
        if isinstance(expected, type) and issubclass(expected, Exception):
            with pytest.raises(expected):
                reader(text)
        else:
            found = reader(text)
            assert found == expected
            assert exact(found) == exact(expected)


def test_a_file_holds_the_texts_to_the_letter(monkeypatch, tmp_path):
    monkeypatch.setattr("tests.golden.payloads.FOLDER", tmp_path)
    entries = {'a "case"': {"job": '{"b":1,"a":[1.0,"\u2028"]}', "flow": "null"}, "b": {}}
    write("name", entries)
    assert read("name") == entries
