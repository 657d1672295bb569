"""Dataclasses of the standard library."""

from __future__ import annotations

import datetime as dt
from dataclasses import KW_ONLY, InitVar, dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Generic, TypeVar

import pydantic

from outlive import InvalidPayload
from tests.golden.cases.case import Case
from tests.golden.cases.pydantic_models import Cat, Generated, Login

T = TypeVar("T")


@dataclass
class Line:
    name: str
    count: int = 1
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    kind: ClassVar[str] = "order"
    id: int
    lines: list[Line]
    by_name: dict[str, Line] = field(default_factory=dict)
    pair: tuple[Line, int] | None = None
    first: Line | None = None
    price: Decimal = Decimal("1.10")
    at: dt.datetime = dt.datetime(2031, 5, 17, tzinfo=dt.UTC)


@dataclass
class Express(Line):
    hours: int = 24


@dataclass
class Mixed:
    name: str
    _: KW_ONLY
    loud: bool = False


@dataclass
class Box(Generic[T]):
    content: T


@dataclass
class IntBox(Box[int]):
    label: str = "ints"


@dataclass
class Derived:
    side: int
    area: int = field(init=False)

    def __post_init__(self) -> None:
        if self.side < 0:
            raise ValueError("a side is not negative")
        self.area = self.side**2


@dataclass
class Initial:
    name: str
    suffix: InitVar[str] = "!"

    def __post_init__(self, suffix: str) -> None:
        self.name = self.name.rstrip(suffix) + suffix


@dataclass
class Underscored:
    _name: str


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


@dataclass
class HasModels:
    pet: Cat
    zips: list[Generated] = field(default_factory=list)


@dataclass
class HasSecret:
    login: Login


@dataclass
class Blob:
    data: bytes


DATACLASSES = [
    Case(
        "defaults",
        Line,
        Line("x"),
        reads={
            '{"name":"x"}': Line("x"),
            '{"name":"x","colour":"red"}': Line("x"),
            '{"name":"x","count":"2"}': InvalidPayload,
            '{"name":"x","count":2.0}': InvalidPayload,
            "{}": InvalidPayload,
        },
    ),
    Case(
        "nested, kw_only",
        Order,
        Order(
            id=7,
            lines=[Line("x", 2)],
            by_name={"b": Line("b"), "a": Line("a")},
            pair=(Line("z"), 3),
        ),
        reads={'{"id":7,"lines":[]}': Order(id=7, lines=[])},
    ),
    Case("inheritance", Express, Express("x"), reads={'{"name":"x"}': Express("x")}),
    Case("a class of the annotated one", Line, Express("x", hours=2), back=Line("x")),
    Case("KW_ONLY", Mixed, Mixed("x", loud=True), reads={'{"name":"x"}': Mixed("x")}),
    Case("a generic", Box[Line], Box(Line("x")), reads={'{"content":1}': InvalidPayload}),
    Case("a generic of a generic", Box[Box[int]], Box(Box(1))),
    Case("a generic without its parameter", Box, Box([1, "x"])),
    Case("a class of a generic", IntBox, IntBox(1), reads={'{"content":1}': IntBox(1)}),
    Case("Optional, a dataclass", Line | None, Line("x")),
    Case("Optional, nothing", Line | None, None),
    Case("a union of two", Line | Order, Line("x")),
    Case("a union with text", Line | str, "x", reads={'{"name":"x"}': Line("x")}),
    Case(
        "a field that is not given",
        Derived,
        Derived(2),
        reads={'{"side":2}': InvalidPayload, '{"side":-1,"area":1}': InvalidPayload},
    ),
    Case("InitVar", Initial, Initial("x")),
    Case("a name with an underscore", Underscored, Underscored("x")),
    Case("a dataclass in itself", Tree, Tree("a", [Tree("b")])),
    Case("in a list", list[Line], [Line("x"), Line("y")]),
    Case("in a dictionary by number", dict[int, Line], {10: Line("x"), 9: Line("y")}),
    Case(
        "models in fields",
        HasModels,
        HasModels(Cat(lives=1), [Generated.model_validate({"zipCode": "1"})]),
        reads={
            '{"pet":{},"zips":[{"zipCode":"1"}]}': HasModels(
                Cat(), [Generated.model_validate({"zipCode": "1"})]
            )
        },
    ),
    Case(
        "a secret in a model",
        HasSecret,
        HasSecret(Login(name="a", password=pydantic.SecretStr("s"))),
    ),
    Case("bytes", Blob, Blob(b"\x00\xff")),
    Case("a dictionary for a dataclass", Line, {"name": "x"}, back=Line("x")),
    Case("in plain JSON", Any, [Line("x")], back=[{"name": "x", "count": 1, "tags": []}]),
]
