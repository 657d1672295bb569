"""Types that validate themselves, which are pydantic's: how they become JSON, and come back.

Owns all that is known of pydantic. It is recognised by what its types have, and imported only once
there is one. What would be lost on the way is refused when its type is first met, and is never
stored. What a store returned is validated, and else neither evaluated nor imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache, partial
from importlib import import_module
from inspect import signature
from operator import methodcaller
from typing import Any

import msgspec
from msgspec.inspect import CustomType, type_info

from outlive.work.pydantic_schema import Schema

# Types are written in programs, not made by them; a program that makes some loses only speed.
_TYPES_MAX = 1024

# What pydantic writes in place of a secret.
_MASK = b"**********"

_MASKED = (
    "it holds a secret, of which only the mask ********** would be stored: pass a reference to the "
    "secret, or give its field in a pydantic model a serializer that reveals it"
)
_BYTES = (
    "it is a pydantic dataclass that holds bytes, which pydantic would not read as they are "
    "written: make it a pydantic model, or a dataclass of the standard library"
)


class BytesUnread(TypeError):
    """A pydantic dataclass holds bytes: they are read as they are written only without pydantic."""


class Form:
    """How values of one type of pydantic's are written and read."""

    __slots__ = ("decode", "dumped", "validated")

    decode: Callable[[str | bytes], Any]
    """The value of a JSON text, by the names of fields or by their aliases."""

    validated: Callable[[object], Any]
    """The value of an object of Python, by the names of fields or by their aliases."""

    dumped: Callable[[object], Any]
    """A value as plain JSON; ``TypeError`` if it holds a secret that would be masked."""

    def __init__(self, kind: Any) -> None:
        adapter = import_module("pydantic").TypeAdapter(kind)
        schema = Schema(adapter.core_schema)
        if schema.masks() or schema.loses_secrets():
            raise TypeError(_MASKED)
        if schema.loses_bytes():
            raise BytesUnread(_BYTES)
        twice = schema.ambiguous()
        if twice is not None:
            name, alias = twice
            raise TypeError(
                f"its field {name!r} has the alias {alias!r}, which is the name of another field: "
                "what is stored could be read in two ways; rename one of them"
            )
        self.decode, self.validated = _readers(adapter, schema)
        options = {"mode": "json", **_options(schema)}
        if hasattr(kind, "model_dump"):
            # By its own method: there are programs that have changed what it does.
            self.dumped = methodcaller("model_dump", **options)
        else:
            self.dumped = partial(adapter.dump_python, **options)
        if schema.masks(around=True):
            # A serializer around a whole model may reveal what is in it, or not: each value shows.
            self.dumped = partial(_unmasked, self.dumped)

    def from_plain(self, value: object) -> Any:
        """The value of plain JSON that was decoded already."""
        # In JSON a strict type takes text for a date; of an object of Python it does not.
        return self.decode(msgspec.json.encode(value))


@lru_cache(maxsize=_TYPES_MAX)
def form_of(kind: Any) -> Form:
    """The form of a class, made once. Raises as ``new_form``."""
    return new_form(kind)


def new_form(kind: Any) -> Form:
    """The form of a type, which need not be hashable.

    Raises:
        TypeError: Something of its values would be lost, or could be read in two ways.
    """
    try:
        return Form(kind)
    except TypeError:
        raise
    except Exception as error:  # pydantic has a class of its own for each reason
        raise TypeError(str(error) or type(error).__name__) from error


def is_validated(kind: object) -> bool:
    """Whether ``kind`` is a class of pydantic's, or one that nobody but pydantic can read."""
    if not isinstance(kind, type):
        return False
    if hasattr(kind, "__pydantic_validator__"):
        return True
    told = hasattr(kind, "__get_pydantic_core_schema__")
    if not told and kind.__module__.partition(".")[0] != "pydantic_core":
        return False
    return "pydantic" in sys.modules and isinstance(type_info(kind), CustomType)


def _unmasked(dumped: Callable[[object], Any], value: object) -> Any:
    plain = dumped(value)
    if _MASK in msgspec.json.encode(plain):
        raise TypeError(_MASKED)
    return plain


def _readers(adapter: Any, schema: Schema) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """What validates JSON, and objects of Python."""
    if not schema.aliased():
        return adapter.validator.validate_json, adapter.validator.validate_python
    # Values are written by the names of their fields. Whoever sends JSON himself uses the aliases.
    if "by_name" in signature(adapter.validate_json).parameters:
        both = {"by_alias": True, "by_name": True}
        return partial(adapter.validate_json, **both), partial(adapter.validate_python, **both)
    # Pydantic before 2.11 is not asked at each call, but by the schema.
    core = import_module("pydantic_core").SchemaValidator(schema.by_name())
    return core.validate_json, core.validate_python


def _options(schema: Schema) -> dict[str, bool]:
    """How values are written, where what pydantic writes by itself could not be read again."""
    options: dict[str, bool] = {}
    if schema.needs_round_trip():
        options["round_trip"] = True
    if schema.written_by_unread_alias():
        options["by_alias"] = False
    return options
