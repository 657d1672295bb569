"""The arguments of a step or a flow as JSON: one object by parameter name, canonical.

Owns how a call becomes an input and an input a call. Defaults are written out, so that an input
says everything; a parameter that came later is read with its default. Never imports or evaluates
what a store returned.
"""

from __future__ import annotations

import difflib
import inspect
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import msgspec
from msgspec import Raw

from outlive.errors import InvalidPayload, UsageError
from outlive.serialization import PAYLOAD_BYTES_MAX, Codec, Values, codec_of, encode, values_of

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

_parts = msgspec.json.Decoder(dict[str, msgspec.Raw])

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments."""


def encoded(value: object, what: str, *, limit: int = PAYLOAD_BYTES_MAX) -> msgspec.Raw:
    """``value`` as canonical JSON: one text for equal values, whatever the order of their keys.

    Raises:
        UsageError: It is of no supported type, too deep, or too long.
    """
    return Raw(encode(value, what, limit=limit, canonical=True))


# The text of a piece of JSON, which is a buffer. Without a frame of its own: each step asks for it.
text_of = cast("Callable[[msgspec.Raw], str]", partial(str, encoding="utf-8"))


class Arguments:
    """The parameters of one function. ``what`` names it in errors."""

    __slots__ = (
        "_codecs",
        "_function",
        "_names",
        "_returns",
        "_signature",
        "_simple",
        "_values",
        "what",
    )

    def __init__(self, function: Callable[..., Any], what: str) -> None:
        self.what = what
        self._function = function if inspect.isroutine(function) else type(function).__call__
        self._signature = inspect.signature(function)
        parameters = self._signature.parameters.values()
        self._names = tuple(each.name for each in parameters)
        # The usual call gives every parameter its value by position, which needs no binding.
        self._simple = all(each.kind in _POSITIONAL for each in parameters)
        self._codecs: dict[str, Codec] | None = None
        self._returns: Codec | None = None
        # Decodes the input of the usual call at once.
        self._values: Values | None = None

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> msgspec.Raw:
        """The input of a call.

        Raises:
            UsageError: The arguments do not fit the parameters, or cannot be stored as JSON; or
                the annotated types are of no use.
        """
        if self._codecs is None:
            # Types that cannot be found or carried are told here, where the call is made.
            self._resolved()
        if self._simple and not kwargs and len(args) == len(self._names):
            return encoded(dict(zip(self._names, args, strict=True)), self.what)
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(f"{self.what}: {error}") from None
        bound.apply_defaults()
        return encoded(bound.arguments, self.what)

    def decode(self, raw: msgspec.Raw | str) -> Call:
        """The arguments of an input, each as its annotated type.

        Raises:
            InvalidPayload: The input does not fit the parameters.
            UsageError: The annotated types cannot be found.
        """
        codecs = self._codecs or self._resolved()
        if self._values is not None:
            values = self._values(raw if isinstance(raw, str) else text_of(raw))
            if values is not None:
                return values, {}
        try:
            parts = _parts.decode(raw)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidPayload(
                f"the input of {self.what} must be an object of arguments: {error}"
            ) from error
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter in self._signature.parameters.values():
            part = parts.pop(parameter.name, None)
            if part is None:
                self._put_default(parameter, args, kwargs)
                continue
            value = self._value(codecs[parameter.name], parameter.name, part)
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                args.extend(value)
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                kwargs.update(value)
            elif parameter.kind in _POSITIONAL:
                args.append(value)
            else:
                kwargs[parameter.name] = value
        if parts:
            raise InvalidPayload(f"{self.what} has no parameter {', '.join(sorted(parts))}")
        return tuple(args), kwargs

    def _value(self, codec: Codec, name: str, part: msgspec.Raw) -> Any:
        try:
            return codec.decode(text_of(part))
        except InvalidPayload as error:
            raise InvalidPayload(f"{self.what}, argument {name}: {error}") from error

    def _put_default(
        self, parameter: inspect.Parameter, args: list[Any], kwargs: dict[str, Any]
    ) -> None:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            return
        if parameter.default is inspect.Parameter.empty:
            raise InvalidPayload(f"{self.what}: the argument {parameter.name} is missing")
        if parameter.kind in _POSITIONAL:
            args.append(parameter.default)
        else:
            kwargs[parameter.name] = parameter.default

    def checked(self, raw: msgspec.Raw) -> str:
        """The text of an input, once it is known that the function can be called with it.

        Raises:
            UsageError: It does not fit the parameters.
        """
        text = text_of(raw)
        try:
            self.decode(text)
        except InvalidPayload as error:
            # Nothing was stored yet: it is the call that is wrong.
            raise UsageError(str(error)) from None
        return text

    def canonical(self, raw: msgspec.Raw) -> msgspec.Raw:
        """What the input would be if the function were called with it now.

        Raises:
            InvalidPayload: See ``decode``.
        """
        args, kwargs = self.decode(raw)
        return self.encode(args, kwargs)

    def from_json(self, value: Any) -> msgspec.Raw:
        """The input for a call from outside Python.

        A list gives arguments by position, an object by name; an object that does not, or any other
        value, is the one argument of a function that takes one. To leave no doubt, give that as a
        list of one: an object of which only some members are parameters is refused where there are
        several of them and the first takes anything.

        Raises:
            UsageError, InvalidPayload: It does not fit the parameters.
        """
        names = self._names
        if isinstance(value, list):
            args = cast("list[Any]", value)
            if len(args) > len(names):
                raise UsageError(f"{self.what} takes {len(names)} arguments, not {len(args)}")
            return encoded(dict(zip(names, args, strict=False)), self.what)
        if isinstance(value, dict) and self._by_name(cast("dict[str, Any]", value)):
            return encoded(cast("dict[str, Any]", value), self.what)
        if value is None and not names:
            return msgspec.Raw(b"{}")
        if not names:
            raise UsageError(f"{self.what} takes no arguments")
        raw = encoded({names[0]: cast("object", value)}, self.what)
        if isinstance(value, dict) and value:
            self._check_named(cast("dict[str, Any]", value), raw)
        return raw

    def _check_named(self, value: Mapping[str, Any], raw: msgspec.Raw) -> None:
        """Look whether an object that is taken for the one argument fits as that.

        Raises:
            InvalidPayload: It does not, and says which of its members are no parameters.
            UsageError: It would fit whatever it is, and some of its members are parameters.
        """
        first = self._names[0]
        mixed = len(self._names) > 1 and not value.keys().isdisjoint(self._names)
        if mixed and (self._codecs or self._resolved())[first].kind is Any:
            raise UsageError(
                f"{self.what} has {self._lacking(value)} (to pass the whole object as {first!r}, "
                "put it into a list)"
            )
        try:
            self.decode(raw)
        except InvalidPayload as error:
            raise InvalidPayload(
                f"{error} (the whole object was used as {first!r}, because there is "
                f"{self._lacking(value)})"
            ) from error

    def _lacking(self, value: Mapping[str, Any]) -> str:
        """What says which member of an object is no parameter."""
        unknown = next(name for name in value if name not in self._names)
        near = difflib.get_close_matches(str(unknown), self._names, n=1)
        return f"no parameter {unknown!r}" + (f"; did you mean {near[0]!r}?" if near else "")

    def _by_name(self, value: Mapping[str, Any]) -> bool:
        """Whether the members of an object are arguments, and not the object itself is one."""
        if value.keys() - set(self._names):
            return False
        # An empty object gives a function that needs its one argument nothing: it is that argument.
        return bool(value) or len(self._names) != 1 or not self._needed(self._names[0])

    def _needed(self, name: str) -> bool:
        found = self._signature.parameters[name]
        by_itself = found.kind not in (found.VAR_POSITIONAL, found.VAR_KEYWORD)
        return by_itself and found.default is inspect.Parameter.empty

    def decode_result(self, raw: msgspec.Raw) -> Any:
        """What a result says, as the annotated type.

        Raises:
            InvalidPayload: It does not fit the type.
        """
        return (self._returns or self.returns).decode(text_of(raw))

    @property
    def returns(self) -> Codec:
        """What decodes the result: as the annotated type, or as plain JSON without one."""
        if self._returns is None:
            self._resolved()
            assert self._returns is not None
        return self._returns

    def _resolved(self) -> dict[str, Codec]:
        # Not when it is defined: its types may stand further down in the module.
        if self._codecs is None:
            try:
                hints = typing.get_type_hints(self._function, include_extras=True)
            except NameError as error:
                raise UsageError(
                    f"{self.what}: its annotated types cannot be resolved ({error}); define the "
                    "types at the top level of the module"
                ) from error
            self._codecs = {
                each.name: self._codec(f"argument {each.name}", _kind_of(each, hints))
                for each in self._signature.parameters.values()
            }
            if self._simple:
                self._values = values_of(self._codecs)
            returns = hints.get("return", Any)
            self._returns = self._codec("result", Any if returns in _NOTHING else returns)
        return self._codecs

    def _codec(self, which: str, kind: Any) -> Codec:
        try:
            return codec_of(kind)
        except UsageError as error:
            raise UsageError(f"{self.what}, {which}: {error}") from error


# What returns nothing, or never does: it ends by raising, or by going on as new.
_NOTHING = (type(None), typing.NoReturn, typing.Never)


def _kind_of(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Any:
    hint = hints.get(parameter.name, Any)
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return list[hint]
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return dict[str, hint]
    return hint
