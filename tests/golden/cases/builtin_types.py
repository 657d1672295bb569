"""Types of the standard library, and plain JSON."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, TypedDict

import msgspec

from outlive import InvalidPayload
from tests.golden.cases.case import Case

NOON = dt.datetime(2031, 5, 17, 12, tzinfo=dt.UTC)
BERLIN = dt.timezone(dt.timedelta(hours=2))
SEVEN, NINE = uuid.UUID(int=7), uuid.UUID(int=9)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Word(enum.StrEnum):
    YES = "yes"


class Mode(enum.Flag):
    READ = 1
    WRITE = 2


class Mail(TypedDict):
    to: str
    copies: NotRequired[int]


class Loose(TypedDict, total=False):
    to: str
    lines: list[Mail]


class Point(NamedTuple):
    x: int
    y: int = 0


JobName = NewType("JobName", str)


class Plain:
    """Of no supported kind."""


async def _coroutine() -> None: ...


JSON = {"b": [1, 1.5, True, None, "ä", {"c": {}}], "a": -(2**63), "": []}

SCALARS = [
    Case("nothing", type(None), None),
    Case("true", bool, True, reads={"1": InvalidPayload}),
    Case(
        "a number",
        int,
        7,
        reads={"7.0": InvalidPayload, "7.5": InvalidPayload, '"7"': InvalidPayload},
    ),
    Case("the largest number of 64 bits", int, 2**64 - 1),
    Case("a number of more than 64 bits", int, 2**70),
    Case("a fraction", float, 0.1, reads={"1": 1.0}),
    Case("a whole fraction", float, 2.0),
    Case("a large fraction", float, 1e300),
    Case("not a number", float, float("nan")),
    Case("infinity, in a list", list[float], [1.0, float("inf")]),
    Case("text", str, 'ä "quoted" \\ / \n\t\x00 \u2028 \U0001f600'),
    Case("text that is not valid Unicode", str, "\ud800"),
    Case("bytes", bytes, b"\x00\xff", reads={'"not base64!"': InvalidPayload}),
    Case("bytearray", bytearray, bytearray(b"\x00\xff")),
    Case("Decimal", Decimal, Decimal("1.10"), reads={"1.10": Decimal("1.10"), "1": Decimal(1)}),
    Case("UUID", uuid.UUID, SEVEN, reads={'"00000000000000000000000000000007"': SEVEN}),
    Case("datetime", dt.datetime, NOON, reads={'"2031-05-17T12:00:00+00:00"': NOON}),
    Case("datetime of another zone", dt.datetime, NOON.astimezone(BERLIN)),
    Case("datetime with microseconds", dt.datetime, NOON.replace(microsecond=120)),
    Case("datetime without a zone", dt.datetime, NOON.replace(tzinfo=None)),
    Case("date", dt.date, NOON.date()),
    Case("time", dt.time, dt.time(12, 30, 0, 500)),
    Case("time of a zone", dt.time, dt.time(12, 30, tzinfo=dt.UTC)),
    Case("timedelta", dt.timedelta, dt.timedelta(days=1, seconds=2, microseconds=3)),
    Case("timedelta below zero", dt.timedelta, dt.timedelta(seconds=-1.5)),
    Case("Enum", Colour, Colour.RED, reads={'"blue"': Colour.BLUE, '"green"': InvalidPayload}),
    Case("IntEnum", Size, Size.LARGE, reads={"1": Size.SMALL}),
    Case("StrEnum", Word, Word.YES),
    Case("Flag", Mode, Mode.READ | Mode.WRITE),
    Case(
        "Literal",
        Literal["a", 1] | None,
        1,
        reads={'"a"': "a", "null": None, '"b"': InvalidPayload},
    ),
    Case("NewType", JobName, JobName("x")),
    Case("a union", int | str | None, "7", reads={"7": 7, "null": None, "true": InvalidPayload}),
    Case("a limit", Annotated[int, msgspec.Meta(ge=1)], 1, reads={"0": InvalidPayload}),
    Case("complex", complex, 1j),
    Case("a class of no supported kind", Plain, Plain()),
    Case("a function", Any, _coroutine),
]

CONTAINERS = [
    Case(
        "a list", list[int], [2, 1], reads={"[]": [], '["x"]': InvalidPayload, "{}": InvalidPayload}
    ),
    Case("a list without a type", list, [1, "x", [None]]),
    Case("a tuple", tuple[int, str], (1, "x"), reads={"[1]": InvalidPayload}),
    Case("a tuple of any length", tuple[int, ...], (1, 2)),
    Case("a tuple in plain JSON", Any, (1, (2,)), back=[1, [2]]),
    Case("a set", set[int], {3, 1, 2}, reads={"[1,1]": {1}}),
    Case("a set of text", set[str], {"x"}),
    Case("frozenset", frozenset[Decimal], frozenset({Decimal("1.10")})),
    Case("deque", collections.deque[int], collections.deque([1])),
    Case("Sequence", Sequence[int], [1, 2]),
    Case("a dictionary", dict[str, int], {"b": 1, "a": 2}),
    Case("Mapping", Mapping[str, int], {"b": 1, "a": 2}),
    Case("keys that are numbers", dict[int, str], {10: "a", 9: "b", -1: "c"}),
    Case("keys that are fractions", dict[float, str], {1.5: "a", -0.25: "b"}),
    Case("keys that are UUIDs", dict[uuid.UUID, int], {NINE: 1, SEVEN: 2}),
    Case("keys that are dates", dict[dt.date, int], {NOON.date(): 1, dt.date(2001, 1, 1): 2}),
    Case("keys that are datetimes", dict[dt.datetime, int], {NOON: 1}),
    Case("keys that are members of an Enum", dict[Colour, int], {Colour.RED: 1, Colour.BLUE: 2}),
    Case("keys that are bytes", dict[bytes, int], {b"x": 1}),
    Case("keys in keys", dict[str, dict[int, set[int]]], {"b": {2: {1}, 1: set()}, "a": {}}),
    Case("keys with the same text", Any, {1: 1, "1": 2}, back={"1": 2}),
    Case("keys that are tuples", Any, {(1, 2): 1}),
    Case(
        "TypedDict",
        Mail,
        {"to": "ann"},
        reads={'{"to":"ann","more":1}': {"to": "ann"}, "{}": InvalidPayload},
    ),
    Case(
        "TypedDict, total=False", Loose, {"lines": [{"to": "ann", "copies": 2}]}, reads={"{}": {}}
    ),
    Case("NamedTuple", Point, Point(1, 2), reads={"[1]": Point(1), "[1,2,3]": InvalidPayload}),
    Case("NamedTuple in plain JSON", Any, {"at": Point(1)}, back={"at": [1, 0]}),
    Case("plain JSON", Any, JSON),
    Case("object", object, JSON),
    Case(
        "dates in plain JSON",
        Any,
        {"at": NOON, "price": Decimal("1.10")},
        back={"at": "2031-05-17T12:00:00Z", "price": "1.10"},
    ),
    Case("numbers as keys of plain JSON", Any, {2: "b", 1: "a"}, back={"2": "b", "1": "a"}),
    Case("objects in a dictionary", dict[str, object], {"b": [1, None], "a": "x"}),
    Case("32 levels", Any, [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]),
]
