"""Annotated types as the decoder takes them: what it cannot read by itself has a stand-in.

Owns which parts of an annotation are left to pydantic, and which types are refused because
something of their values would not be stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import msgspec
from msgspec.inspect import CustomType, DataclassType, type_info

from outlive.serialization.pydantic import BytesUnread, Form, form_of, is_validated, new_form

# What pydantic reads in a union as the decoder would have written it.
_PLAIN = frozenset({str, int, float, bool, type(None)})


class StandIn(type):
    """A class in place of a part of an annotation that pydantic reads.

    The decoder takes whatever is read for one of its instances.
    """

    form: Form

    def __instancecheck__(cls, instance: object) -> bool:
        """Whatever the form made is right."""
        return True


def readable(kind: Any) -> Any:
    """``kind`` with stand-ins for what pydantic reads. What is nested in classes is not looked at.

    Raises:
        TypeError: A part of it cannot be stored, or not be read again.
    """
    return _replaced(kind, ())


def check(kind: Any) -> None:
    """Look for classes whose values would be stored without a part of them.

    Raises:
        TypeError: There is one.
    """
    try:
        told = type_info(kind)
    except Exception:  # noqa: BLE001 - the decoder has taken it; this only looks at it
        return
    for each in _within(told, set()):
        if isinstance(each, CustomType) and is_validated(each.cls):
            form_of(each.cls)
        elif isinstance(each, DataclassType):
            _check_private(each.cls)


def _check_private(kind: type) -> None:
    attributes: tuple[Any, ...] = getattr(kind, "__attrs_attrs__", ())
    lost = [each.name for each in attributes if each.init and each.name.startswith("_")]
    if lost:
        raise TypeError(
            f"the attribute {lost[0]!r} of {kind.__qualname__} is private and would not be "
            "stored: give it a name without the underscore, or attrs.field(init=False)"
        )


def _within(told: object, seen: set[int]) -> Iterator[object]:
    """Every type in what is told of one."""
    if isinstance(told, tuple):
        for each in cast("tuple[object, ...]", told):
            yield from _within(each, seen)
    elif isinstance(told, (msgspec.inspect.Type, msgspec.inspect.Field)) and id(told) not in seen:
        seen.add(id(told))
        yield told
        for name in told.__struct_fields__:
            yield from _within(getattr(told, name), seen)


def _replaced(kind: Any, aliases: tuple[Any, ...]) -> Any:
    if kind is object:
        return Any
    if is_validated(kind):
        return _standing_for(kind, form_of(kind))
    if type(kind).__name__ == "TypeAliasType":
        # One that stands inside of itself is left to the decoder.
        inside = any(each is kind for each in aliases)
        return kind if inside else _replaced(kind.__value__, (*aliases, kind))
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal or not parts:
        return kind
    if origin is Annotated:
        inner = _replaced(parts[0], aliases)
        if isinstance(inner, StandIn):
            # What is said beside may be for pydantic.
            return _standing_for(kind, new_form(kind))
        return kind if inner is parts[0] else Annotated[(inner, *parts[1:])]
    if origin in {Union, UnionType}:
        return _union(kind, parts, aliases)
    replaced = [_part(each, aliases) for each in parts]
    if all(new is old for new, old in zip(replaced, parts, strict=True)):
        return kind
    return origin[tuple(replaced)]


def _part(kind: Any, aliases: tuple[Any, ...]) -> Any:
    try:
        return _replaced(kind, aliases)
    except BytesUnread:
        # In a list the decoder reads it, as in a class: by its types, and without its validators.
        return kind


def _union(kind: Any, parts: tuple[Any, ...], aliases: tuple[Any, ...]) -> Any:
    replaced = [_part(each, aliases) for each in parts]
    if all(new is old for new, old in zip(replaced, parts, strict=True)):
        return kind
    others = [each for each in replaced if not isinstance(each, StandIn)]
    alone = len(replaced) - len(others) == 1 and all(each is type(None) for each in others)
    if not alone and len(others) < len(replaced) and all(map(_is_plain, others)):
        # The decoder tells one class from the others, and pydantic as many as there are.
        return _standing_for(kind, new_form(kind))
    return Union[tuple(replaced)]  # noqa: UP007 - how many there are is not known here


def _is_plain(kind: object) -> bool:
    return get_origin(kind) is Literal or any(kind is each for each in _PLAIN)


def _standing_for(kind: Any, form: Form) -> StandIn:
    name = kind.__name__ if isinstance(kind, type) else repr(kind)
    found = StandIn(name, (), {})
    found.form = form
    return found
