"""Models of pydantic: aliases, unions, generics, nesting, fields, and rules of the model itself."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, Required, TypeVar

import pydantic
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from typing_extensions import TypedDict

from outlive import InvalidPayload
from tests.golden.cases.case import Case

T = TypeVar("T")
K = TypeVar("K")

NOON = dt.datetime(2031, 5, 17, 12, tzinfo=dt.UTC)

# -- aliases --------------------------------------------------------------------------------------


class ByAlias(BaseModel):
    first_name: str = Field(alias="firstName")
    age: int = Field(default=7, alias="ageInYears")


class ByAliasOrName(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    first_name: str = Field(alias="firstName")


class ReadByAlias(BaseModel):
    first_name: str = Field(validation_alias="firstName")


class ReadByChoices(BaseModel):
    first_name: str = Field(validation_alias=AliasChoices("firstName", "givenName"))


class ReadByPath(BaseModel):
    first_name: str = Field(validation_alias=AliasPath("names", 0))


class WrittenByAlias(BaseModel):
    first_name: str = Field(serialization_alias="firstName")


class ReadAndWritten(BaseModel):
    first_name: str = Field(validation_alias="givenName", serialization_alias="firstName")


class Generated(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")
    zip_code: str


class AlwaysByAlias(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)
    first_name: str = Field(alias="firstName")


class AlwaysByUnreadAlias(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)
    first_name: str = Field(serialization_alias="firstName")


class Swapped(BaseModel):
    left: int = Field(alias="right")
    right: int = Field(alias="left")


class HasAliased(BaseModel):
    one: Generated
    more: dict[str, list[Generated]] = {}


ANN = ByAlias.model_validate({"firstName": "Ann"})
ZIP = Generated.model_validate({"zipCode": "1"})

ALIASES = [
    Case(
        "alias",
        ByAlias,
        ANN,
        reads={
            '{"firstName":"Ann","ageInYears":7}': ANN,
            '{"first_name":"Ann"}': ANN,
            '{"first_name":"Ann","firstName":"Bob"}': ByAlias.model_validate({"firstName": "Bob"}),
            '{"firstName":"Ann","shoe_size":41}': ANN,
            "{}": InvalidPayload,
        },
    ),
    Case(
        "alias, populate_by_name",
        ByAliasOrName,
        ByAliasOrName(first_name="Ann"),
        reads={'{"firstName":"Ann"}': ByAliasOrName(first_name="Ann")},
    ),
    Case(
        "validation_alias",
        ReadByAlias,
        ReadByAlias.model_validate({"firstName": "Ann"}),
        reads={'{"firstName":"Ann"}': ReadByAlias.model_validate({"firstName": "Ann"})},
    ),
    Case(
        "validation_alias with choices",
        ReadByChoices,
        ReadByChoices.model_validate({"givenName": "Ann"}),
        reads={
            '{"firstName":"Ann"}': ReadByChoices.model_validate({"givenName": "Ann"}),
            '{"givenName":"Ann"}': ReadByChoices.model_validate({"givenName": "Ann"}),
        },
    ),
    Case(
        "validation_alias with a path",
        ReadByPath,
        ReadByPath.model_validate({"names": ["Ann"]}),
        reads={'{"names":["Ann","Bob"]}': ReadByPath.model_validate({"names": ["Ann"]})},
    ),
    Case(
        "serialization_alias",
        WrittenByAlias,
        WrittenByAlias(first_name="Ann"),
        reads={'{"firstName":"Ann"}': InvalidPayload},
    ),
    Case(
        "validation_alias and serialization_alias",
        ReadAndWritten,
        ReadAndWritten.model_validate({"givenName": "Ann"}),
        reads={
            '{"givenName":"Ann"}': ReadAndWritten.model_validate({"givenName": "Ann"}),
            '{"firstName":"Ann"}': InvalidPayload,
        },
    ),
    Case(
        "alias_generator, extra=forbid",
        Generated,
        ZIP,
        reads={'{"zipCode":"1"}': ZIP, '{"zip":"1"}': InvalidPayload},
    ),
    Case(
        "alias in a nested model",
        HasAliased,
        HasAliased(one=ZIP, more={"b": [ZIP], "a": []}),
        reads={'{"one":{"zipCode":"1"},"more":{}}': HasAliased(one=ZIP)},
    ),
    Case("alias in a list of models", list[Generated], [ZIP, ZIP]),
    Case(
        "serialize_by_alias",
        AlwaysByAlias,
        AlwaysByAlias.model_validate({"firstName": "Ann"}),
        reads={'{"first_name":"Ann"}': AlwaysByAlias.model_validate({"firstName": "Ann"})},
    ),
    Case(
        "serialize_by_alias with an alias that is not read",
        AlwaysByUnreadAlias,
        AlwaysByUnreadAlias(first_name="Ann"),
    ),
    Case(
        "an alias that is the name of another field",
        Swapped,
        Swapped.model_validate({"left": 1, "right": 2}),
    ),
]

# -- unions ---------------------------------------------------------------------------------------


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    loud: bool = True


class Square(BaseModel):
    side: int


class Circle(BaseModel):
    radius: int


class Owner(BaseModel):
    pet: Cat | Dog | None = None
    tagged: Cat | Dog = Field(default=Cat(), discriminator="kind")
    size: int | str | float = 0
    shape: Square | Circle | None = None


def _tag_of(value: Any) -> str:
    return "square" if "side" in value or isinstance(value, Square) else "circle"


Tagged = Annotated[
    Annotated[Square, pydantic.Tag("square")] | Annotated[Circle, pydantic.Tag("circle")],
    pydantic.Discriminator(_tag_of),
]
Pet = Annotated[Cat | Dog, Field(discriminator="kind")]

UNIONS = [
    Case("of models", Cat | Dog, Dog(loud=False), reads={'{"kind":"dog"}': Dog()}),
    Case("of models without a tag", Square | Circle, Circle(radius=2)),
    Case("Optional, a model", Cat | None, Cat(lives=1)),
    Case("Optional, nothing", Cat | None, None),
    Case(
        "discriminated",
        Pet,
        Dog(),
        reads={'{"kind":"cow"}': InvalidPayload, '{"loud":true}': InvalidPayload},
    ),
    Case("discriminated, in a list", list[Pet], [Cat(), Dog()]),
    Case("discriminated, in a dictionary", dict[str, Pet], {"b": Cat(), "a": Dog()}),
    Case(
        "discriminated by a function",
        Tagged,
        Circle(radius=2),
        reads={'{"side":2}': Square(side=2)},
    ),
    Case("of a model and text", Cat | str, "x"),
    Case("of a model, a number and nothing", Cat | int | None, 7),
    Case("of a model and a list", list[Cat] | None, [Cat()]),
    Case(
        "in fields",
        Owner,
        Owner(pet=Dog(), tagged=Dog(loud=False), size="7", shape=Circle(radius=2)),
        reads={
            "{}": Owner(),
            '{"size":1.5}': Owner(size=1.5),
            '{"tagged":{"kind":"cow"}}': InvalidPayload,
        },
    ),
    Case("a number in a union with text", Owner, Owner(size=7)),
]

# -- generics -------------------------------------------------------------------------------------


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: int | None = None


class Pair(BaseModel, Generic[K, T]):
    key: K
    value: T


class Pages(BaseModel):
    dates: Page[dt.date]
    squares: Pair[str, Page[Square]]


class SquarePage(Page[Square]):
    title: str = "squares"


GENERICS = [
    Case(
        "of a number",
        Page[int],
        Page[int](items=[1, 2]),
        reads={'{"items":[]}': Page[int](items=[]), '{"items":["x"]}': InvalidPayload},
    ),
    Case("of a model", Page[Square], Page[Square](items=[Square(side=1)], next=2)),
    Case("of a generic", Page[Page[int]], Page[Page[int]](items=[Page[int](items=[1])])),
    Case(
        "of two",
        Pair[uuid.UUID, list[Square]],
        Pair[uuid.UUID, list[Square]](key=uuid.UUID(int=7), value=[Square(side=1)]),
    ),
    Case(
        "in fields",
        Pages,
        Pages(
            dates=Page[dt.date](items=[NOON.date()]),
            squares=Pair[str, Page[Square]](key="a", value=Page[Square](items=[])),
        ),
    ),
    Case("a class of one", SquarePage, SquarePage(items=[Square(side=1)])),
    Case("in a list", list[Page[int]], [Page[int](items=[1])]),
    Case(
        "without its parameter",
        Page,
        Page(items=[1, "x", None]),
        reads={'{"items":[{"side":1}]}': Page(items=[{"side": 1}])},
    ),
]

# -- nesting and defaults -------------------------------------------------------------------------


class Line(BaseModel):
    name: str
    count: int = 1


class Express(Line):
    hours: int = 24


class Order(BaseModel):
    id: int
    lines: list[Line]
    by_name: dict[str, Line] = {}
    by_number: dict[int, list[Line]] = {}
    pair: tuple[Line, int] | None = None
    tags: set[str] = Field(default_factory=set)
    notes: list[str] = Field(default_factory=lambda: ["new"])
    extra: dict[str, Any] | None = None


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


@dataclass
class Point:
    x: int
    y: int = 0


class Named(TypedDict, total=False):
    to: Required[str]
    copies: int


class Coordinates(NamedTuple):
    x: float
    y: float


class Foreign(BaseModel):
    point: Point
    named: Named
    tuple: Coordinates


FOREIGN = Foreign(point=Point(1), named={"to": "ann"}, tuple=Coordinates(1.0, 2.5))

ORDER = Order(
    id=7,
    lines=[Line(name="x"), Line(name="y", count=2)],
    by_name={"b": Line(name="b"), "a": Line(name="a")},
    by_number={10: [Line(name="x")], 9: []},
    pair=(Line(name="z"), 3),
    tags={"t"},
    extra={"b": [1, None, {"c": 1.5}], "a": "ä"},
)

NESTING = [
    Case(
        "models in all containers",
        Order,
        ORDER,
        reads={
            '{"id":7,"lines":[{"name":"x"}]}': Order(id=7, lines=[Line(name="x")]),
            '{"id":7,"lines":[{"name":"x","colour":"red"}]}': Order(id=7, lines=[Line(name="x")]),
            '{"id":"7","lines":[]}': Order(id=7, lines=[]),
            '{"id":7}': InvalidPayload,
            '{"id":7,"lines":[{}]}': InvalidPayload,
        },
    ),
    Case("only what has no default", Order, Order(id=1, lines=[])),
    Case("a model in itself", Tree, Tree(name="a", children=[Tree(name="b")])),
    Case("in a list", list[Line], [Line(name="x"), Line(name="y")]),
    Case("in a dictionary", dict[str, Line], {"b": Line(name="x"), "a": Line(name="y")}),
    Case("in a dictionary by number", dict[int, Line], {10: Line(name="x"), 9: Line(name="y")}),
    Case("in a tuple", tuple[Line, bytes], (Line(name="x"), b"\xff")),
    Case("in a tuple of any length", tuple[Line, ...], (Line(name="x"),)),
    Case(
        "a class of the annotated one",
        Line,
        Express(name="x", hours=2),
        back=Line(name="x"),
    ),
    Case(
        "a class of the annotated one, in a field",
        Order,
        Order(id=7, lines=[Express(name="x", hours=2)]),
        back=Order(id=7, lines=[Line(name="x")]),
    ),
    Case(
        "a dictionary for a model",
        Line,
        {"name": "x"},
        back=Line(name="x"),
    ),
    Case(
        "dataclass, TypedDict and NamedTuple in a model",
        Foreign,
        FOREIGN,
        reads={'{"point":{"x":1,"z":9},"named":{"to":"ann"},"tuple":[1,2.5]}': FOREIGN},
    ),
    Case("in plain JSON", Any, {"line": Line(name="x")}, back={"line": {"name": "x", "count": 1}}),
]

# -- fields ---------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Times(BaseModel):
    at: dt.datetime
    day: dt.date = dt.date(2031, 5, 17)
    time: dt.time = dt.time(12, 30, 0, 500)
    span: dt.timedelta = dt.timedelta(days=1, seconds=2, microseconds=3)


class Kinds(BaseModel):
    price: Decimal = Decimal("1.10")
    id: uuid.UUID = uuid.UUID(int=7)
    colour: Colour = Colour.RED
    size: Size = Size.LARGE
    path: PurePosixPath = PurePosixPath("/tmp/x")
    url: pydantic.HttpUrl = pydantic.HttpUrl("https://example.org/a")
    ratio: float = 0.1
    whole: float = 2.0
    big: int = 2**63 - 1
    text: str = 'ä "quoted"\n\u2028'
    both: bool = True
    nothing: None = None
    choice: Literal["a", 1] = 1
    frozen: frozenset[int] = frozenset({1})
    by_day: dict[dt.date, int] = {dt.date(2031, 5, 17): 1}
    by_colour: dict[Colour, int] = {Colour.BLUE: 1}


class Blob(BaseModel):
    data: bytes


class Base64Blob(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    data: bytes


class Limited(BaseModel):
    count: int = Field(default=3, gt=0, le=9)
    name: Annotated[str, pydantic.StringConstraints(to_lower=True)] = "x"


class Login(BaseModel):
    name: str
    password: pydantic.SecretStr


class Revealed(BaseModel):
    password: pydantic.SecretStr

    @pydantic.field_serializer("password", when_used="json")
    def _reveal(self, value: pydantic.SecretStr) -> str:
        return value.get_secret_value()


class Key(BaseModel):
    key: pydantic.SecretBytes | None = None


class InJson(BaseModel):
    body: pydantic.Json[list[int]]


class Hidden(BaseModel):
    name: str
    cache: int = Field(default=1, exclude=True)


BERLIN = dt.timezone(dt.timedelta(hours=2))

FIELDS = [
    Case(
        "times",
        Times,
        Times(at=NOON),
        reads={
            '{"at":"2031-05-17T12:00:00+00:00"}': Times(at=NOON),
            '{"at":1936872000}': Times(at=dt.datetime(2031, 5, 18, 12, tzinfo=dt.UTC)),
            '{"at":"noon"}': InvalidPayload,
        },
    ),
    Case("a time of another zone", Times, Times(at=NOON.astimezone(BERLIN))),
    Case("a time without a zone", Times, Times(at=NOON.replace(microsecond=123456, tzinfo=None))),
    Case(
        "kinds",
        Kinds,
        Kinds(),
        reads={
            "{}": Kinds(),
            '{"price":1.1}': Kinds(price=Decimal("1.1")),
            '{"colour":"green"}': InvalidPayload,
        },
    ),
    Case("bytes that are text", Blob, Blob(data=b"abc")),
    Case("bytes that are no text", Blob, Blob(data=b"\x00\xff")),
    Case("bytes as base64", Base64Blob, Base64Blob(data=b"\x00\xff")),
    Case(
        "limits",
        Limited,
        Limited(name="X"),
        reads={'{"count":0}': InvalidPayload, '{"name":"ABC"}': Limited(name="abc")},
    ),
    Case("a secret", Login, Login(name="ann", password=pydantic.SecretStr("s"))),
    Case("a secret or nothing", Key, Key()),
    Case(
        "a secret in plain JSON",
        Any,
        {"login": Login(name="ann", password=pydantic.SecretStr("s"))},
    ),
    Case("a secret with a serializer", Revealed, Revealed(password=pydantic.SecretStr("s"))),
    Case("JSON in JSON", InJson, InJson(body="[1, 2]")),
    Case(
        "a field that is excluded",
        Hidden,
        Hidden(name="x", cache=2),
        back=Hidden(name="x"),
    ),
    Case("a URL by itself", pydantic.HttpUrl, pydantic.HttpUrl("https://example.org/a")),
    Case(
        "a number with a limit by itself",
        Annotated[int, Field(gt=0)],
        1,
    ),
]

# -- rules of a model -----------------------------------------------------------------------------


class Allows(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


class Forbids(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    count: int = 1


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    at: dt.datetime
    count: int = 1


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    name: str


class Range(BaseModel):
    low: int
    high: int

    @pydantic.model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            low, _, high = value.partition("-")
            return {"low": low, "high": high}
        return value

    @pydantic.model_validator(mode="after")
    def _in_order(self) -> Range:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


class Doubled(BaseModel):
    count: int

    @pydantic.field_validator("count", mode="before")
    @classmethod
    def _from_word(cls, value: Any) -> Any:
        return 2 if value == "two" else value


class Computed(BaseModel):
    side: int

    @pydantic.computed_field
    @property
    def area(self) -> int:
        return self.side**2


class ComputedForbids(Computed):
    model_config = ConfigDict(extra="forbid")


class Private(BaseModel):
    name: str
    _seen: int = pydantic.PrivateAttr(default=3)


class Rounded(BaseModel):
    price: Decimal

    @pydantic.field_serializer("price")
    def _rounded(self, value: Decimal) -> str:
        return f"{value:.2f}"


class Wrapped(BaseModel):
    name: str

    @pydantic.model_serializer(mode="wrap")
    def _marked(self, inner: Any) -> dict[str, Any]:
        return inner(self) | {"version": 2}


class Redumped(BaseModel):
    name: str
    cache: int = 1

    def model_dump(self, **options: Any) -> dict[str, Any]:
        return super().model_dump(**options, exclude={"cache"})


Numbers = pydantic.RootModel[list[int]]


class ByName(pydantic.RootModel[dict[str, Line]]):
    pass


class HasRoots(BaseModel):
    numbers: Numbers
    by_name: ByName = ByName({})


RULES = [
    Case(
        "extra=allow",
        Allows,
        Allows.model_validate({"name": "x", "more": [1], "at": "2031"}),
        reads={'{"name":"x"}': Allows(name="x")},
    ),
    Case(
        "extra=forbid",
        Forbids,
        Forbids(name="x"),
        reads={'{"name":"x"}': Forbids(name="x"), '{"name":"x","more":1}': InvalidPayload},
    ),
    Case(
        "strict",
        Strict,
        Strict(at=NOON),
        reads={'{"at":"2031-05-17T12:00:00Z","count":"1"}': InvalidPayload},
    ),
    Case("strict, in a list", list[Strict], [Strict(at=NOON)]),
    Case("frozen", Frozen, Frozen(name="x")),
    Case(
        "model_validator",
        Range,
        Range(low=1, high=2),
        reads={'"1-2"': Range(low=1, high=2), '{"low":2,"high":1}': InvalidPayload},
    ),
    Case("field_validator", Doubled, Doubled(count=3), reads={'{"count":"two"}': Doubled(count=2)}),
    Case("computed_field", Computed, Computed(side=2), reads={'{"side":2}': Computed(side=2)}),
    Case(
        "computed_field, extra=forbid",
        ComputedForbids,
        ComputedForbids(side=2),
        reads={'{"side":2,"area":4}': InvalidPayload},
    ),
    Case("a private attribute", Private, Private(name="x")),
    Case(
        "field_serializer",
        Rounded,
        Rounded(price=Decimal("1.005")),
        back=Rounded(price=Decimal("1.00")),
    ),
    Case("model_serializer", Wrapped, Wrapped(name="x")),
    Case("model_dump of its own", Redumped, Redumped(name="x", cache=2), back=Redumped(name="x")),
    Case("RootModel", Numbers, Numbers([1, 2]), reads={'["x"]': InvalidPayload}),
    Case("RootModel, a class", ByName, ByName({"b": Line(name="x"), "a": Line(name="y")})),
    Case(
        "RootModel in fields",
        HasRoots,
        HasRoots(numbers=Numbers([1])),
        reads={'{"numbers":[]}': HasRoots(numbers=Numbers([]))},
    ),
]
