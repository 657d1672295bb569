"""Types of pydantic as payloads: by name and by alias, in unions, and with nothing masked."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

import pydantic
import pytest
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as pydantic_dataclass

from outlive import App, InvalidPayload, UsageError
from outlive.serialization.payloads import codec_of, encode

T = TypeVar("T")


def there_and_back(kind: Any, value: Any) -> Any:
    return codec_of(kind).decode(encode(value, "it", canonical=True))


# -- secrets --------------------------------------------------------------------------------------


class Login(pydantic.BaseModel):
    name: str
    password: pydantic.SecretStr


class Site(pydantic.BaseModel):
    logins: dict[str, list[Login | None]] = {}


class Key(pydantic.BaseModel):
    metadata: pydantic.SecretBytes | None = None


class Number(pydantic.BaseModel):
    number: pydantic.Secret[int]


class Tree(pydantic.BaseModel):
    login: Login | None = None
    left: Tree | None = None
    right: Tree | None = None


class Around(pydantic.BaseModel):
    password: pydantic.SecretStr
    open: bool = True

    @pydantic.model_serializer(mode="wrap")
    def _around(self, inner: Any) -> dict[str, Any]:
        shown = {"password": self.password.get_secret_value()} if self.open else {}
        return inner(self) | shown


@dataclass
class Plain:
    password: pydantic.SecretStr


@pydantic_dataclass
class Validated:
    password: pydantic.SecretStr

    @pydantic.field_serializer("password")
    def _reveal(self, value: pydantic.SecretStr) -> str:
        return value.get_secret_value()


class Own(pydantic.SecretStr):
    pass


@pytest.mark.parametrize(
    "kind",
    [
        *(Login, Site, Key, Number, Tree, Plain, Validated, Own),
        *(pydantic.SecretStr, pydantic.SecretBytes, pydantic.SecretStr | None),
        *(list[Login], dict[str, Plain], Login | Key, Annotated[Login, "noted"]),
    ],
)
def test_a_type_that_would_be_stored_with_a_mask_is_refused(kind):
    with pytest.raises(UsageError, match=r"a secret.*pass a reference.*serializer that reveals it"):
        codec_of(kind)


@pytest.mark.parametrize(
    "value",
    [
        Login(name="ann", password=pydantic.SecretStr("x")),
        [Site()],
        Plain(pydantic.SecretStr("x")),
        {"a": pydantic.SecretStr("x")},
        Around(password=pydantic.SecretStr("x"), open=False),
    ],
)
def test_a_value_that_would_be_stored_with_a_mask_is_refused(value):
    with pytest.raises(UsageError, match=r"the payload cannot be stored.*secret"):
        encode(value, "the payload")


class Revealed(pydantic.BaseModel):
    password: pydantic.SecretStr
    others: list[
        Annotated[
            pydantic.SecretStr, pydantic.PlainSerializer(lambda secret: secret.get_secret_value())
        ]
    ] = []

    @pydantic.field_serializer("password", when_used="json")
    def _reveal(self, value):
        return value.get_secret_value()


class RevealedTwice(pydantic.BaseModel):
    first: Revealed
    second: Revealed


class Whole(pydantic.BaseModel):
    password: pydantic.SecretStr

    @pydantic.model_serializer
    def _reveal(self):
        return {"password": self.password.get_secret_value()}


class Hidden(pydantic.BaseModel):
    name: str
    password: pydantic.SecretStr | None = pydantic.Field(default=None, exclude=True)


def test_a_secret_that_is_revealed_by_its_own_serializer_is_stored():
    one = Revealed(password=pydantic.SecretStr("x"), others=[pydantic.SecretStr("y")])
    values = [one, RevealedTwice(first=one, second=one), Whole(password=pydantic.SecretStr("x"))]
    values += [Around(password=pydantic.SecretStr("x")), Hidden(name="ann")]
    for value in values:
        assert there_and_back(type(value), value) == value
        assert there_and_back(list[type(value)], [value]) == [value]


# -- aliases --------------------------------------------------------------------------------------


class Address(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(alias_generator=to_camel)
    zip_code: str


class Person(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(alias_generator=to_camel, extra="forbid")
    first_name: str
    home_address: Address
    more_addresses: list[Address] = []


@dataclass
class Household:
    head: Person


PERSON = Person.model_validate(
    {"firstName": "Ann", "homeAddress": {"zipCode": "1"}, "moreAddresses": [{"zipCode": "2"}]}
)


def test_a_model_with_aliases_comes_out_as_it_went_in():
    assert there_and_back(Person, PERSON) == PERSON
    assert there_and_back(list[Person], [PERSON]) == [PERSON]
    assert there_and_back(Household, Household(PERSON)) == Household(PERSON)


def test_a_model_with_aliases_is_stored_by_the_names_of_its_fields_as_it_always_was():
    text = encode(PERSON, "it")
    assert text == PERSON.model_dump_json()
    assert "first_name" in text


def test_a_model_with_aliases_takes_json_by_alias():
    assert codec_of(Person).decode(PERSON.model_dump_json(by_alias=True)) == PERSON
    given = PERSON.model_dump(by_alias=True)
    assert codec_of(Person).fitted(given, "queue 'q'") == PERSON
    assert codec_of(Household).fitted({"head": given}, "queue 'q'") == Household(PERSON)


def test_what_is_neither_name_nor_alias_is_refused():
    with pytest.raises(InvalidPayload, match="firstname"):
        codec_of(Person).decode('{"firstname": "Ann", "homeAddress": {"zipCode": "1"}}')


def test_an_alias_that_is_the_name_of_another_field_is_refused():
    class Swapped(pydantic.BaseModel):
        left: int = pydantic.Field(alias="right")
        right: int = pydantic.Field(alias="left")

    with pytest.raises(UsageError, match=r"'left' has the alias 'right'.*ambiguous"):
        codec_of(Swapped)


@pytest.mark.skipif(
    "serialize_by_alias" not in pydantic.ConfigDict.__annotations__,
    reason="pydantic writes by alias by itself since 2.11",
)
def test_a_model_that_is_written_by_aliases_it_does_not_read_is_stored_by_name():
    class Shown(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(serialize_by_alias=True)
        first_name: str = pydantic.Field(serialization_alias="firstName")

    class Both(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(serialize_by_alias=True)
        first_name: str = pydantic.Field(alias="firstName")

    assert there_and_back(Shown, Shown(first_name="Ann")) == Shown(first_name="Ann")
    both = Both(firstName="Ann")
    assert encode(both, "it") == '{"firstName":"Ann"}'
    assert there_and_back(Both, both) == both


# -- dataclasses ----------------------------------------------------------------------------------


@pydantic_dataclass
class Line:
    name: str
    at: dt.datetime
    count: int = pydantic.Field(default=3, gt=0)
    unit_price: int = pydantic.Field(default=1, alias="unitPrice")


@pydantic_dataclass
class Blob:
    data: bytes


LINE = Line("x", dt.datetime(2031, 5, 17, tzinfo=dt.UTC), 2)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((Line, LINE), (Line | None, LINE), (list[Line], [LINE]), (dict[int, Line], {1: LINE})),
        (list[Blob], [Blob(b"\xff")]),
    ],
)
def test_a_pydantic_dataclass_comes_out_as_it_went_in(kind, value):
    assert there_and_back(kind, value) == value


@pytest.mark.parametrize("kind", [Line, Line | None, list[Line]])
def test_a_pydantic_dataclass_is_validated(kind):
    line = '{"name": "x", "at": "2031-05-17T00:00:00Z", "unitPrice": 4%s}'
    read = codec_of(kind).decode(f"[{line % ''}]" if kind == list[Line] else line % "")
    (read,) = read if isinstance(read, list) else [read]
    assert (read.count, read.unit_price) == (3, 4)
    with pytest.raises(InvalidPayload, match="greater than 0"):
        codec_of(kind).decode((f"[{line}]" if kind == list[Line] else line) % ', "count": 0')


def test_a_pydantic_dataclass_whose_bytes_would_be_others_is_refused():
    with pytest.raises(UsageError, match="bytes"):
        codec_of(Blob)


def test_bytes_of_a_dataclass_in_a_model_are_left_to_the_model():
    class Two(pydantic.BaseModel):
        first: Blob
        second: Blob

    two = Two(first=Blob(b"a"), second=Blob(b"b"))
    assert there_and_back(Two, two) == two


# -- unions, and what else there is ---------------------------------------------------------------


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    loud: bool = True


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


Pet = Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((Cat | Dog, Dog()), (Cat | Dog | None, None), (Cat | str, "x"), (Pet, Dog(loud=False))),
        *((list[Cat | Dog], [Cat(), Dog()]), (dict[str, Pet], {"a": Cat()})),
        *((tuple[Cat, bytes], (Cat(), b"\xff")), (list[Cat] | None, [Cat()])),
        *((Page[Dog], Page[Dog](items=[Dog()])), (pydantic.RootModel[list[int]], None)),
        (pydantic.HttpUrl, pydantic.TypeAdapter(pydantic.HttpUrl).validate_python("https://a/b")),
    ],
)
def test_unions_and_urls_come_out_as_they_went_in(kind, value):
    value = pydantic.RootModel[list[int]]([1]) if kind is pydantic.RootModel[list[int]] else value
    read = there_and_back(kind, value)
    assert read == value
    assert type(read) is type(value)


def test_what_no_member_of_a_union_takes_is_refused():
    with pytest.raises(InvalidPayload):
        codec_of(Pet).decode('{"kind": "cow"}')
    with pytest.raises(InvalidPayload, match="URL"):
        codec_of(pydantic.HttpUrl).decode('"no url"')


def test_computed_fields_are_left_out_only_where_they_would_be_refused():
    class Strict(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        side: int

        @pydantic.computed_field
        @property
        def area(self) -> int:
            return self.side**2

    class Loose(Strict):
        model_config = pydantic.ConfigDict(extra="ignore")

    assert there_and_back(Strict, Strict(side=2)) == Strict(side=2)
    assert there_and_back(list[Strict], [Strict(side=2)]) == [Strict(side=2)]
    assert encode(Loose(side=2), "it") == '{"side":2,"area":4}'
    assert there_and_back(Loose, Loose(side=2)) == Loose(side=2)


def test_json_in_a_model_stays_json():
    class Note(pydantic.BaseModel):
        body: pydantic.Json[list[int]]

    note = Note(body="[1, 2]")
    assert there_and_back(Note, note) == note


def test_a_strict_model_is_read_wherever_it_stands():
    class Strict(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(strict=True)
        at: dt.datetime

    strict = Strict(at=dt.datetime(2031, 5, 17, tzinfo=dt.UTC))
    assert there_and_back(list[Strict], [strict]) == [strict]


# -- where it is told -----------------------------------------------------------------------------


def test_the_error_names_who_has_the_type():
    app = App("told")

    @app.step
    def sign_in(name: str, login: Login) -> None: ...

    @app.handler("logins")
    def handle(login: Login) -> None: ...

    with pytest.raises(UsageError, match=r"step sign_in, argument login: .*Login.*a secret"):
        sign_in.arguments.encode(("ann", None), {})
    with pytest.raises(UsageError, match=r"queue 'logins'.*Login.*a secret"):
        _ = handle.takes
