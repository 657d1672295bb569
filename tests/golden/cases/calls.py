"""Calls of steps and flows: arguments are one object, by parameter, with the defaults in it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from outlive import App, InvalidPayload
from tests.golden.cases.case import Entry
from tests.golden.cases.dataclass_classes import Line
from tests.golden.cases.pydantic_models import Order

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

NOON = dt.datetime(2031, 5, 17, 12, tzinfo=dt.UTC)
FIRST = Line("x")


@dataclass(frozen=True)
class Call:
    """A call, and how its function reads other stored arguments.

    Attributes:
        name: Says in the golden file what the case shows.
        function: The function that is called.
        given: The arguments, as the caller gives them.
        back: The arguments that the function is given.
        reads: The arguments that are read from other stored JSON; an exception class where the text
            is refused.
    """

    name: str
    function: Callable[..., Any]
    given: Arguments
    back: Arguments
    reads: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def expected(self) -> Any:
        """The value that is read from the stored text."""
        return self.back

    def entry(self) -> Entry:
        """The text that is stored now."""
        args, kwargs = self.given
        return {"flow": bytes(self._arguments.encode(args, kwargs)).decode()}

    def readers(self) -> tuple[Callable[[str], Any], ...]:
        """The readers of stored arguments: of a step, and of a flow."""
        return self._arguments.decode, lambda text: self._arguments.decode(msgspec.Raw(text))

    @property
    def _arguments(self) -> Any:
        return App("golden").step(self.function).arguments


def nothing() -> None: ...


def plain(b: int, a: str = "x") -> None: ...


def typed(line: Line, at: dt.datetime, more: list[Line] | None = None) -> None: ...


def model(order: Order, count: int = 1) -> None: ...


def untyped(b, a=None): ...


def keyword_only(b: int, *, a: Line = FIRST) -> None: ...


def positional_only(b: int, /, a: int = 2) -> None: ...


def variadic(*lines: Line, **counts: int) -> None: ...


LINE = Line("y", 2)
ORDER = Order(id=7, lines=[])

CALLS = [
    Call("no parameters", nothing, ((), {}), ((), {}), {'{"a":1}': InvalidPayload}),
    Call(
        "a default",
        plain,
        ((1,), {}),
        ((1, "x"), {}),
        {
            '{"b":1}': ((1, "x"), {}),
            '{"b":1,"a":"y"}': ((1, "y"), {}),
            '{"b":1,"c":2}': InvalidPayload,
            '{"a":"y"}': InvalidPayload,
            "[1]": InvalidPayload,
        },
    ),
    Call("by name", plain, ((), {"a": "y", "b": 1}), ((1, "y"), {})),
    Call(
        "dataclasses",
        typed,
        ((LINE, NOON, [LINE]), {}),
        ((LINE, NOON, [LINE]), {}),
        {
            '{"line":{"name":"y"},"at":"2031-05-17T12:00:00Z"}': ((Line("y"), NOON, None), {}),
            '{"line":{"name":1},"at":"2031-05-17T12:00:00Z"}': InvalidPayload,
        },
    ),
    Call(
        "a model of pydantic",
        model,
        ((ORDER,), {}),
        ((ORDER, 1), {}),
        {'{"order":{"id":"7","lines":[]}}': ((ORDER, 1), {}), '{"order":{}}': InvalidPayload},
    ),
    Call(
        "no types",
        untyped,
        ((LINE,), {"a": ORDER.lines}),
        (({"name": "y", "count": 2, "tags": []}, []), {}),
    ),
    Call(
        "keyword only",
        keyword_only,
        ((1,), {}),
        ((1,), {"a": FIRST}),
        {'{"b":1,"a":{"name":"y"}}': ((1,), {"a": Line("y")})},
    ),
    Call("positional only", positional_only, ((1, 3), {}), ((1, 3), {})),
    Call(
        "as many as are given",
        variadic,
        ((LINE, LINE), {"b": 1, "a": 2}),
        ((LINE, LINE), {"b": 1, "a": 2}),
        {"{}": ((), {})},
    ),
]
