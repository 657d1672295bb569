"""Structs of msgspec."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from outlive import InvalidPayload
from tests.golden.cases.case import Case
from tests.golden.cases.dataclass_classes import Line as DataLine
from tests.golden.cases.pydantic_models import Cat as PydanticCat

T = TypeVar("T")


class Line(Struct):
    name: str
    count: int = 1
    tags: list[str] = []


class Order(Struct, kw_only=True, frozen=True):
    id: int
    lines: list[Line]
    by_name: dict[str, Line] = {}
    first: Line | None = None
    at: dt.datetime = dt.datetime(2031, 5, 17, tzinfo=dt.UTC)


class Renamed(Struct, rename="camel"):
    first_name: str
    zip_code: str = "1"


class FieldNamed(Struct):
    first_name: str = msgspec.field(name="firstName")


class Forbids(Struct, forbid_unknown_fields=True):
    name: str


class Compact(Struct, omit_defaults=True):
    name: str
    count: int = 1
    tags: list[str] = []


class Point(Struct, array_like=True):
    x: int
    y: int
    label: str = ""


class Cat(Struct, tag="cat"):
    lives: int = 9


class Dog(Struct, tag="dog"):
    loud: bool = True


class Circle(Struct, tag=1, tag_field="sides"):
    radius: int


class Square(Struct, tag=4, tag_field="sides"):
    side: int


class Box(Struct, Generic[T]):
    content: T


class Limited(Struct):
    count: Annotated[int, Meta(gt=0)] = 1


class Partial(Struct):
    name: str | UnsetType = UNSET
    count: int | UnsetType | None = UNSET


class Checked(Struct):
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


class Express(Line):
    hours: int = 24


class HasOthers(Struct):
    line: DataLine
    pet: PydanticCat
    point: Point
    raw: msgspec.Raw = msgspec.Raw(b"null")


STRUCTS = [
    Case(
        "defaults",
        Line,
        Line("x"),
        reads={
            '{"name":"x"}': Line("x"),
            '{"name":"x","colour":"red"}': Line("x"),
            '{"name":"x","count":"2"}': InvalidPayload,
            "{}": InvalidPayload,
        },
    ),
    Case(
        "nested, kw_only",
        Order,
        Order(id=7, lines=[Line("x", 2)], by_name={"b": Line("b"), "a": Line("a")}),
        reads={'{"id":7,"lines":[]}': Order(id=7, lines=[])},
    ),
    Case(
        "rename",
        Renamed,
        Renamed("Ann"),
        reads={'{"firstName":"Ann"}': Renamed("Ann"), '{"first_name":"Ann"}': InvalidPayload},
    ),
    Case("a field with a name in JSON", FieldNamed, FieldNamed("Ann")),
    Case(
        "forbid_unknown_fields",
        Forbids,
        Forbids("x"),
        reads={'{"name":"x","more":1}': InvalidPayload},
    ),
    Case("omit_defaults", Compact, Compact("x"), reads={'{"name":"x","count":1}': Compact("x")}),
    Case("omit_defaults, with others", Compact, Compact("x", 2, ["t"])),
    Case(
        "array_like",
        Point,
        Point(2, 1),
        reads={"[2,1]": Point(2, 1), '[2,1,"a","more"]': Point(2, 1, "a"), "[2]": InvalidPayload},
    ),
    Case("array_like, in a list", list[Point], [Point(2, 1), Point(1, 2, "a")]),
    Case(
        "a tagged union",
        Cat | Dog,
        Dog(),
        reads={'{"type":"cat"}': Cat(), '{"type":"cow"}': InvalidPayload, "{}": InvalidPayload},
    ),
    Case("a tagged union, in a list", list[Cat | Dog], [Cat(), Dog(loud=False)]),
    Case("a union tagged by numbers", Circle | Square, Square(2)),
    Case("a tagged union or nothing", Cat | Dog | None, None),
    Case("a generic", Box[Line], Box(Line("x")), reads={'{"content":1}': InvalidPayload}),
    Case("a generic of a generic", Box[Box[int]], Box(Box(1))),
    Case("a generic without its parameter", Box, Box([1, "x"])),
    Case("a limit", Limited, Limited(2), reads={'{"count":0}': InvalidPayload}),
    Case(
        "UNSET", Partial, Partial(count=None), reads={"{}": Partial(), '{"name":"x"}': Partial("x")}
    ),
    Case("__post_init__", Checked, Checked(1, 2), reads={'{"low":2,"high":1}': InvalidPayload}),
    Case("inheritance", Express, Express("x"), reads={'{"name":"x"}': Express("x")}),
    Case("a class of the annotated one", Line, Express("x", hours=2), back=Line("x")),
    Case(
        "a dataclass, a model and JSON in fields",
        HasOthers,
        HasOthers(DataLine("x"), PydanticCat(), Point(2, 1), msgspec.Raw(b'{"b":1,"a":2}')),
    ),
    Case("Optional", Line | None, Line("x"), reads={"null": None}),
    Case("in a dictionary by number", dict[int, Line], {10: Line("x"), 9: Line("y")}),
    Case("a dictionary for a struct", Line, {"name": "x"}, back=Line("x")),
    Case("in plain JSON", Any, [Line("x")], back=[{"name": "x", "count": 1, "tags": []}]),
]
