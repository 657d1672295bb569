"""Payloads: the types that go in come out, and what cannot be is refused with a reason."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive import InvalidPayload, UsageError
from outlive.errors import OutliveError
from outlive.serialization.failures import describe, kind_of
from outlive.serialization.payloads import codec_of, decode_plain, encode, values_of


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Line:
    name: str
    count: int = 1


@dataclass
class Order:
    id: uuid.UUID
    lines: list[Line]
    price: Decimal
    at: dt.datetime
    colour: Colour = Colour.RED
    notes: dict[str, Any] = field(default_factory=dict)


class Struct(msgspec.Struct):
    a: int
    inner: Line


@attrs.define
class Attrs:
    a: int
    tags: set[str] = attrs.Factory(set)


class Model(pydantic.BaseModel):
    a: int
    at: dt.datetime
    inner: Line | None = None


@dataclass
class Holder:
    model: Model


NOW = dt.datetime(2031, 5, 17, 12, tzinfo=dt.UTC)
ORDER = Order(uuid.UUID(int=7), [Line("x"), Line("y", 2)], Decimal("1.10"), NOW)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Order, ORDER),
        (Struct, Struct(1, Line("x"))),
        (Attrs, Attrs(1, {"b"})),
        (Model, Model(a=1, at=NOW, inner=Line("x"))),
        (Holder, Holder(Model(a=1, at=NOW))),
        (list[Model], [Model(a=1, at=NOW)]),
        (dict[str, Line], {"a": Line("x")}),
        (Line | None, None),
        (bytes, b"\x00\xff"),
        (int, 2**63 - 1),
        (Any, {"a": [1, None, "ä"]}),
    ],
)
def test_what_goes_in_comes_out(kind, value):
    assert codec_of(kind).decode(encode(value, "it")) == value
    assert codec_of(kind) is codec_of(kind)


@attrs.define
class Private:
    _a: int


@attrs.define
class PrivateByDefault:
    b: int
    _a: int = 3


@attrs.define
class Cached:
    b: int
    _a: int = attrs.field(init=False, default=3)


@pytest.mark.parametrize("kind", [Private, PrivateByDefault, list[Private], Private | None])
def test_a_private_attribute_that_would_not_be_stored_is_refused(kind):
    with pytest.raises(UsageError, match=r"'_a' of Private.*is private.*init=False"):
        codec_of(kind)


def test_an_attribute_that_nobody_gives_may_be_private():
    assert codec_of(Cached).decode(encode(Cached(1), "it")) == Cached(1)


@dataclass
class Keyed:
    by_day: dict[dt.date, set[str]]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (dict[int, str], {10: "a", 9: "b", -1: "c"}),
        (dict[float, str], {1.5: "a", -0.25: "b"}),
        (dict[uuid.UUID, int], {uuid.UUID(int=9): 1, uuid.UUID(int=7): 2}),
        (dict[Colour, int], {Colour.RED: 1}),
        (dict[dt.datetime, int], {NOW: 1}),
        (dict[str, dict[int, int]], {"b": {2: 1, 1: 2}, "a": {}}),
        (Keyed, Keyed({NOW.date(): {"y", "x", "z"}, dt.date(2001, 1, 1): set()})),
        (list[Keyed | None], [Keyed({NOW.date(): {"y", "x"}}), None]),
    ],
)
def test_keys_that_are_no_text_are_canonical_as_others_are(kind, value):
    text = encode(value, "it", canonical=True)
    assert codec_of(kind).decode(text) == value
    if isinstance(value, dict):
        assert encode(dict(reversed(value.items())), "it", canonical=True) == text
    assert msgspec.json.encode(msgspec.json.decode(text), order="deterministic").decode() == text


@pytest.mark.parametrize("value", [{1: 1, "1": 2}, {None: 1}, {(1, 2): 1}, {1: object()}])
def test_keys_that_json_cannot_tell_apart_or_carry_are_refused(value):
    with pytest.raises(UsageError, match="the payload cannot be stored"):
        encode(value, "the payload", canonical=True)


def test_a_type_with_a_note_that_cannot_be_hashed_is_read():
    assert codec_of(Annotated[int, pydantic.Field(gt=0)]).decode("1") == 1


@dataclass
class Loose:
    notes: dict[str, object]


@pytest.mark.parametrize("kind", [Loose, Loose | None, dict[str, object], dict[str, object | None]])
def test_objects_are_whatever_json_says(kind):
    value = Loose({"a": [1, None]}) if kind in {Loose, Loose | None} else {"a": [1, None]}
    assert codec_of(kind).decode(encode(value, "it")) == value
    assert codec_of(Loose).fitted({"notes": {"a": 1}}, "queue 'q'") == Loose({"a": 1})


MEMBERS: dict[str, tuple[Any, Any]] = {
    "order": (Order, ORDER),
    "class": (list[Model], [Model(a=1, at=NOW)]),
    "a b": (Line | None, None),
    "__init__": (object, {"a": [1, "ä"]}),
    "self": (int, 7),
}


def test_members_are_decoded_at_once_as_they_are_one_by_one():
    codecs = {name: codec_of(kind) for name, (kind, _) in MEMBERS.items()}
    decoded = values_of(codecs)
    assert decoded is not None
    given = {name: value for name, (_, value) in reversed(MEMBERS.items())}
    assert decoded(encode(given, "it")) == tuple(value for _, value in MEMBERS.values())


@pytest.mark.parametrize(
    "text",
    [
        '{"self": "no number", "x": 1}',
        '{"self": 1}',
        '{"self": 1, "x": 1, "more": 1}',
        '{"self": 1, "x": ' + "[" * 40 + "]" * 40 + "}",
        '{"self": 1, "x": "' + "x" * (1 << 20) + '"}',
        "[1, 2]",
        "{",
        "",
    ],
)
def test_members_that_do_not_fit_are_left_to_be_looked_at_one_by_one(text):
    decoded = values_of({"self": codec_of(int), "x": codec_of(object)})
    assert decoded is not None
    assert decoded(text) is None
    assert decoded('{"x": null, "self": 1}') == (1, None)


def test_a_type_that_decodes_by_itself_is_left_to_do_so():
    assert values_of({"a": codec_of(int), "b": codec_of(Model)}) is None


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=30,
)


@given(json_values)
def test_plain_json_is_never_changed(value):
    try:
        text = encode(value, "it")
    except UsageError as error:
        assert "deeper" in str(error)  # noqa: PT017 - the only reason there may be
    else:
        assert decode_plain(text) == value


@pytest.mark.parametrize(
    "value",
    [
        object(),
        float("nan"),
        {"a": [float("inf")]},
        {"a": float("nan")},
        {"a": 1, "b": nested(40)},
        {"a": "\ud800"},
        {str(number): 1 for number in range(20)} | {"deep": nested(40)},
        {str(number): 1 for number in range(20)} | {"odd": float("nan")},
        Line("x", float("nan")),
        nested(40),
        nested(5000),
        "x" * (1 << 20),
        "\ud800",
        {1, object()},
        lambda: None,
    ],
)
def test_what_cannot_be_stored_is_refused(value):
    with pytest.raises(UsageError, match="the payload"):
        encode(value, "the payload")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Line, '{"name": 1}'),
        (Line, "{}"),
        (Line, "not json"),
        (Model, '{"a": "x", "at": "2031"}'),
        (Holder, '{"model": {"a": 1}}'),
        (Any, "[" * 40 + "]" * 40),
        (Any, "[" * 100_000 + "]" * 100_000),
        (int, "1.5"),
        *((kind, "[" * 100_000) for kind in (str, int, bool, float, type(None))),
        *((kind, '{"a":' * 100_000) for kind in (str, int, bool, float, type(None))),
        (str, '"' + "x" * (1 << 20) + '"'),
    ],
)
def test_what_does_not_fit_on_arrival_says_why(kind, text):
    with pytest.raises(InvalidPayload) as caught:
        codec_of(kind).decode(text)
    assert str(caught.value)
    assert isinstance(caught.value, OutliveError)


def test_a_types_own_check_that_raises_anything_is_an_invalid_payload():
    @dataclass
    class Picky:
        a: int

        def __post_init__(self) -> None:
            raise RuntimeError("no")

    with pytest.raises(InvalidPayload, match="no"):
        codec_of(Picky).decode('{"a": 1}')


def test_a_type_that_nothing_can_be_decoded_as_is_refused():
    with pytest.raises(UsageError, match="cannot be stored"):
        codec_of(dict[Line, Line] | list[int] | tuple[int])
    with pytest.raises(InvalidPayload, match="not supported"):
        codec_of(threading_lock()).decode("{}")


def threading_lock() -> type:
    class Custom:
        pass

    return Custom


def test_an_error_is_kept_small_and_without_secrets():
    try:
        raise ValueError("postgresql://ann:s3cret@db/x" + "y" * 5000)
    except ValueError as caught:
        document = msgspec.json.decode(describe(caught))
        kind, error = kind_of(caught), caught
    assert kind is error
    assert document["type"] == "ValueError"
    assert "s3cret" not in str(document)
    assert len(document["message"]) < 2200
    assert "test_an_error_is_kept_small" in document["traceback"]


def test_errors_may_be_words():
    assert msgspec.json.decode(describe("away: password=s3cret")) == {
        "message": "away: password=***"
    }
    said = {"type": "Busy", "message": "later", "colour": "red"}
    assert msgspec.json.decode(describe(said)) == {"type": "Busy", "message": "later"}
    assert (kind_of(said), kind_of("x"), kind_of({"message": "x"})) == ("Busy", None, None)


def test_an_error_that_cannot_be_printed_is_told_all_the_same():
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert "unprintable" in msgspec.json.decode(describe(Odd()))["message"]
    assert "\\udc80" in msgspec.json.decode(describe(OSError("\udc80")))["message"]


def test_a_truth_is_no_number():
    with pytest.raises(UsageError, match="of type int"):
        codec_of(int).fitted(True, "queue 'q'")
    assert codec_of(int).fitted(1, "queue 'q'") == 1
    assert codec_of(bool).fitted(True, "queue 'q'") is True


class Named(TypedDict):
    to: str


@pytest.mark.parametrize(("kind", "value"), [(Any, 1), (Named, {"to": "ann"}), (object, 1)])
def test_what_nothing_is_an_instance_of_takes_what_it_is_given(kind, value):
    assert codec_of(kind).fitted(value, "queue 'q'") is value
