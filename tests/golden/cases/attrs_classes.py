"""Classes of attrs."""

from __future__ import annotations

import datetime as dt
from typing import Any, Generic, TypeVar

import attrs

from outlive import InvalidPayload
from tests.golden.cases.case import Case

T = TypeVar("T")


@attrs.define
class Line:
    name: str
    count: int = 1
    tags: list[str] = attrs.Factory(list)


@attrs.frozen(kw_only=True)
class Order:
    id: int
    lines: list[Line]
    by_name: dict[str, Line] = attrs.Factory(dict)
    first: Line | None = None
    at: dt.datetime = dt.datetime(2031, 5, 17, tzinfo=dt.UTC)


@attrs.define
class Express(Line):
    hours: int = 24


def _upper(value: str) -> str:
    return value.upper()


@attrs.define
class Converted:
    name: str = attrs.field(converter=_upper)


def _unconverted(name: str) -> Converted:
    """An instance as it is read: converters do not run on stored values."""
    made = Converted("")
    object.__setattr__(made, "name", name)
    return made


@attrs.define
class Checked:
    count: int = attrs.field(validator=attrs.validators.gt(0))


@attrs.define
class Private:
    _name: str


@attrs.define
class PrivateDefault:
    name: str
    _seen: int = 3


@attrs.define
class Cached:
    name: str
    _seen: int = attrs.field(init=False, default=3)


@attrs.define
class Derived:
    side: int
    area: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.area = self.side**2


@attrs.define
class Box(Generic[T]):
    content: T


@attrs.define(slots=False)
class Unslotted:
    name: str


@attrs.define
class Aliased:
    name: str = attrs.field(alias="title")


ATTRS = [
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
    Case("a class of the annotated one", Line, Express("x", hours=2), back=Line("x")),
    Case("inheritance", Express, Express("x"), reads={'{"name":"x"}': Express("x")}),
    Case("converter", Converted, Converted("x"), reads={'{"name":"y"}': _unconverted("y")}),
    Case("validator", Checked, Checked(1), reads={'{"count":0}': InvalidPayload}),
    Case("a private attribute", Private, Private("x")),
    Case("a private attribute with a default", PrivateDefault, None),
    Case("a private attribute that is not given", Cached, Cached("x")),
    Case(
        "an attribute that is not given", Derived, Derived(2), reads={'{"side":2}': InvalidPayload}
    ),
    Case("a generic", Box[Line], Box(Line("x")), reads={'{"content":1}': InvalidPayload}),
    Case("Optional", Line | None, None),
    Case("in a list", list[Line], [Line("x"), Line("y")]),
    Case("without slots", Unslotted, Unslotted("x")),
    Case("alias", Aliased, Aliased("x")),
    Case(
        "in plain JSON",
        Any,
        {"b": Line("x"), "a": 1},
        back={"b": {"name": "x", "count": 1, "tags": []}, "a": 1},
    ),
]
