"""Types that validate themselves, which are pydantic's: how they become JSON, and come back.

Owns all that is known of pydantic. It is recognised by what its types have, and imported only once
there is one. What would be lost on the way is refused when its type is first met, and is never
stored. What a store returned is validated, and else neither evaluated nor imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from importlib import import_module
from inspect import signature
from operator import methodcaller
from typing import Any, cast

import msgspec
from msgspec.inspect import CustomType, type_info

Node = dict[str, Any]
"""A piece of a schema: of one type, or of one field."""

# What else a piece holds that may look like one: defaults, settings, and notes of pydantic's own.
_NO_PIECES = frozenset({"config", "default", "metadata"})

# Pieces that have fields.
_FIELDED = frozenset({"dataclass-args", "model-fields", "typed-dict"})


class Schema:
    """The schema of one type."""

    __slots__ = ("_definitions", "_nodes", "_root")

    def __init__(self, root: Node) -> None:
        self._root = root
        # Pieces that stand in one place and are referred to from others.
        self._definitions: dict[str, Node] = {}
        if root["type"] == "definitions":
            self._definitions = {each["ref"]: each for each in root["definitions"]}
        self._nodes = list(self._reached(root, lambda _: False))

    def _reached(self, root: Node, closed: Callable[[Node], bool]) -> Iterator[Node]:
        """Each piece once, beginning with ``root``; none that stands inside of a closed one."""
        seen: set[str] = set()

        def within(piece: Node) -> Iterator[Node]:
            if _is_node(piece):
                yield piece
                if closed(piece):
                    return
                if piece["type"] == "definitions":
                    piece = {"schema": piece["schema"]}
                elif piece["type"] == "definition-ref":
                    ref: str = piece["schema_ref"]
                    if ref in seen:
                        return
                    seen.add(ref)
                    piece = {"schema": self._definitions.get(ref, {})}
            for part in _parts(piece):
                yield from within(part)

        return within(root)

    def masks(self, *, around: bool = False) -> bool:
        """Whether pydantic writes a mask in place of something.

        ``around``: also where a serializer that is put around a model may reveal it.
        """
        closed = _is_decided if not around else _is_decided_for_good
        return any(_is_secret(node) for node in self._reached(self._root, closed))

    def _plainly(self) -> Iterator[Node]:
        """The pieces of dataclasses outside of models: they are written without pydantic."""
        outer = self._reached(self._root, lambda node: node["type"] in {"dataclass", "model"})
        for node in outer:
            if node["type"] == "dataclass":
                yield from self._reached(node, lambda each: each["type"] == "model")

    def loses_secrets(self) -> bool:
        """Whether there is a secret where no serializer of pydantic's is asked."""
        return any(map(_is_secret, self._plainly()))

    def loses_bytes(self) -> bool:
        """Whether there are bytes that are written without pydantic, and read with it."""
        return any(node["type"] == "bytes" for node in self._plainly())

    def aliased(self) -> bool:
        """Whether a field is read by another name than its own."""
        return any(
            alias != name
            for node in self._nodes
            for name, field in _fields(node).items()
            for alias in _aliases(field)
        )

    def ambiguous(self) -> tuple[str, str] | None:
        """A field, and its alias that is the name of another one.

        Not where values are written by alias: they are read so.
        """
        if self._written_by_alias():
            return None
        for node in self._nodes:
            fields = _fields(node)
            for name, field in fields.items():
                for alias in _aliases(field):
                    if alias != name and alias in fields:
                        return name, alias
        return None

    def _written_by_alias(self) -> bool:
        return any(node.get("config", {}).get("serialize_by_alias") for node in self._nodes)

    def written_by_unread_alias(self) -> bool:
        """Whether a field is written by a name that it is not read by."""
        return self._written_by_alias() and any(
            field.get("serialization_alias", name) not in {name, *_aliases(field)}
            for node in self._nodes
            for name, field in _fields(node).items()
        )

    def needs_round_trip(self) -> bool:
        """Whether what pydantic writes by itself holds something that it would not read."""
        return any(
            node["type"] == "json" or (_forbids_more(node) and self._computes(node))
            for node in self._nodes
        )

    def _computes(self, model: Node) -> bool:
        """Whether a model has computed fields, of its own and not of models in it."""
        own = self._reached(model, lambda node: node["type"] == "model" and node is not model)
        return any(node.get("computed_fields") for node in own)

    def by_name(self) -> Node:
        """The schema for fields that are read by their names as well as by their aliases."""
        return cast("Node", _by_name(self._root))


def _is_node(piece: Node) -> bool:
    """Whether this is a piece by itself, and not a dictionary of some by name."""
    return isinstance(piece.get("type"), str)


def _parts(piece: Node) -> Iterator[Node]:
    """What a piece, or a dictionary of some, is made of."""
    alone = _is_node(piece)
    for name, part in piece.items():
        if not (alone and name in _NO_PIECES):
            yield from _dictionaries(part)


def _dictionaries(part: object) -> Iterator[Node]:
    if isinstance(part, dict):
        yield cast("Node", part)
    elif isinstance(part, (list, tuple)):
        for each in cast("list[object]", part):
            yield from _dictionaries(each)


def _is_secret(node: Node) -> bool:
    """Whether values are masked in JSON, by what this piece says itself."""
    function = node.get("serialization", {}).get("function")
    name: str = getattr(function, "__qualname__", "")
    return getattr(function, "__module__", "") == "pydantic.types" and "secret" in name.lower()


def _is_decided(node: Node) -> bool:
    """Whether code of the program says what is written of this, or that nothing is."""
    return node.get("serialization", {}).get("type") == "function-wrap" or _is_decided_for_good(
        node
    )


def _is_decided_for_good(node: Node) -> bool:
    """Whether it does without what pydantic would have written."""
    said = node.get("serialization", {}).get("type")
    return (
        said == "function-plain"
        or (said == "function-wrap" and node["type"] != "model")
        or bool(node.get("serialization_exclude"))
        # Nothing is read from it.
        or node["type"] == "computed-field"
    )


def _fields(node: Node) -> dict[str, Node]:
    """The fields of a piece by name, if it has some."""
    if node["type"] not in _FIELDED:
        return {}
    fields: object = node["fields"]
    if isinstance(fields, dict):
        return cast("dict[str, Node]", fields)
    return {each["name"]: each for each in cast("list[Node]", fields)}


def _aliases(field: Node) -> set[str]:
    """The names in JSON that a field is read from: of paths, where they begin."""
    alias: Any = field.get("validation_alias")
    if alias is None:
        return set()
    if isinstance(alias, str):
        return {alias}
    paths: list[Any] = alias if isinstance(alias[0], list) else [alias]
    return {str(path[0]) for path in paths}


def _forbids_more(node: Node) -> bool:
    return node["type"] == "model" and (
        node.get("config", {}).get("extra_fields_behavior") == "forbid"
    )


def _by_name(part: object) -> object:
    if isinstance(part, dict):
        piece = cast("Node", part)
        alone = _is_node(piece)
        copy = {
            name: each if alone and name in _NO_PIECES else _by_name(each)
            for name, each in piece.items()
        }
        return copy | {"populate_by_name": True} if alone and piece["type"] in _FIELDED else copy
    if isinstance(part, list):
        return [_by_name(each) for each in cast("list[object]", part)]
    if isinstance(part, tuple):
        return tuple(_by_name(each) for each in cast("tuple[object, ...]", part))
    return part


# Types are written in programs, not made by them; a program that makes some loses only speed.
_TYPES_MAX = 1024

# What pydantic writes in place of a secret.
_MASK = b"**********"

_MASKED = (
    "it contains a secret, and only the mask ********** would be stored: pass a reference to the "
    "secret, or give its field in a pydantic model a serializer that reveals it"
)
_BYTES = (
    "it is a pydantic dataclass with bytes, which pydantic does not read back as written: make "
    "it a pydantic model, or a dataclass of the standard library"
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
                f"its field {name!r} has the alias {alias!r}, which is the name of another "
                "field: the stored JSON would be ambiguous; rename one of them"
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
