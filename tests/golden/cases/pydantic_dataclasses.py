"""Dataclasses of pydantic: written as dataclasses are, and validated when they are read."""

from __future__ import annotations

import datetime as dt
from typing import Any, Generic, Literal, TypeVar

import pydantic
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from outlive import InvalidPayload
from tests.golden.cases.case import Case

T = TypeVar("T")

NOON = dt.datetime(2031, 5, 17, 12, tzinfo=dt.UTC)


@dataclass
class Line:
    name: str
    count: int = Field(default=3, gt=0)
    tags: list[str] = Field(default_factory=list)


@dataclass
class Aliased:
    first_name: str = Field(alias="firstName")
    at: dt.datetime = NOON


@dataclass(kw_only=True, frozen=True)
class Nested:
    first: Line
    more: dict[str, Line | None]


@dataclass(config=ConfigDict(extra="forbid"))
class Forbids:
    name: str


@dataclass
class Cat:
    lives: int
    kind: Literal["cat"] = "cat"


@dataclass
class Dog:
    loud: bool
    kind: Literal["dog"] = "dog"


@dataclass
class Box(Generic[T]):
    content: T


@dataclass
class Range:
    low: int
    high: int

    @pydantic.model_validator(mode="after")
    def _in_order(self) -> Range:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


@dataclass
class Blob:
    data: bytes


@dataclass
class Login:
    password: pydantic.SecretStr


class Holder(pydantic.BaseModel):
    line: Line
    blob: Blob = Blob(b"x")


DATACLASSES = [
    Case(
        "defaults",
        Line,
        Line("x"),
        reads={
            '{"name":"x"}': Line("x"),
            '{"name":"x","colour":"red"}': Line("x"),
            '{"name":"x","count":"2"}': Line("x", 2),
            '{"name":"x","count":0}': InvalidPayload,
            "{}": InvalidPayload,
        },
    ),
    Case(
        "alias",
        Aliased,
        Aliased(firstName="Ann"),
        reads={
            '{"firstName":"Ann"}': Aliased(firstName="Ann"),
            '{"first_name":"Ann"}': Aliased(firstName="Ann"),
        },
    ),
    Case("nested, kw_only", Nested, Nested(first=Line("x"), more={"b": Line("y"), "a": None})),
    Case(
        "extra=forbid",
        Forbids,
        Forbids("x"),
        reads={'{"name":"x","more":1}': InvalidPayload},
    ),
    Case("in a list", list[Line], [Line("x"), Line("y", 2, ["t"])]),
    Case("in a dictionary by number", dict[int, Line], {10: Line("x"), 9: Line("y")}),
    Case("Optional", Line | None, Line("x"), reads={"null": None}),
    Case("a union", Cat | Dog, Dog(loud=True)),
    Case("a generic", Box[int], Box(1), reads={'{"content":"x"}': InvalidPayload}),
    Case("model_validator", Range, Range(1, 2), reads={'{"low":2,"high":1}': InvalidPayload}),
    Case("in a model", Holder, Holder(line=Line("x"))),
    Case("in plain JSON", Any, [Line("x")], back=[{"name": "x", "count": 3, "tags": []}]),
    Case("bytes", Blob, Blob(b"\xff")),
    Case("bytes, in a list", list[Blob], [Blob(b"\xff")]),
    Case("a secret", Login, Login(pydantic.SecretStr("s"))),
]
