"""What a job carries, in and out: any supported type as JSON, compiled once per type.

Dataclasses, msgspec Structs, attrs classes, types of pydantic and plain JSON values. Owns the
limits of size and depth. Never evaluates, imports or unpickles what a store returned: the type to
decode as comes from the handler that is registered, and from nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, cast, is_typeddict

import msgspec
from msgspec.structs import astuple

from outlive.errors import InvalidPayload, UsageError
from outlive.serialization.annotations import StandIn, check, readable
from outlive.serialization.json import DEPTH_MAX
from outlive.serialization.pydantic import form_of, is_validated

# A payload travels through every claim. Larger things belong into a file or a blob, named here.
PAYLOAD_BYTES_MAX = 1024 * 1024

# Types are written in programs, not made by them; a program that makes some loses only speed.
_TYPES_MAX = 1024

# Values of these hold no others: there is no depth to look for, nor a number that JSON cannot say.
_FLAT = frozenset({str, int, bool, type(None)})

# Nor does what is decoded as one of these: all else is refused at its first character.
_FLAT_KINDS = _FLAT | {float}

# Members of an object that are looked at one by one; of more, the text is searched in C.
_MEMBERS_MAX = 8


class Codec:
    """Encodes any supported value, and decodes as one type."""

    __slots__ = ("_decode", "flat", "kind", "read_as")

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.flat = _is_flat_kind(kind)
        try:
            self.read_as = readable(kind)
            if isinstance(self.read_as, StandIn):
                self._decode = self.read_as.form.decode
            else:
                self._decode = msgspec.json.Decoder(self.read_as, dec_hook=_from_json).decode
                if not self.flat:
                    check(self.read_as)
        except TypeError as error:
            raise UsageError(f"{kind!r} cannot be stored as JSON: {error}") from error

    def decode(self, text: str) -> Any:
        """The value of a JSON text that a store returned.

        Raises:
            InvalidPayload: It is no JSON, too deep, too long, or does not fit the type.
        """
        if len(text) > PAYLOAD_BYTES_MAX:
            raise InvalidPayload(
                f"{len(text)} characters of JSON; at most {PAYLOAD_BYTES_MAX} are allowed"
            )
        try:
            if not self.flat and _may_be_deep(text):
                _check(_plain_decoder.decode(text), "it", DEPTH_MAX)
            return self._decode(text)
        except Exception as error:  # a type's own checks may raise anything
            raise InvalidPayload(str(error) or type(error).__name__) from error

    def fitted(self, value: object, what: str) -> object:
        """``value`` if it is of the type, or what it converts to.

        Only classes are looked at here; whatever else there is shows when it arrives.

        Raises:
            UsageError: It does not fit.
        """
        kind = self.kind
        # ``Any`` and typed dictionaries are classes that nothing is an instance of.
        if not isinstance(kind, type) or kind is object or kind is Any or is_typeddict(kind):
            return value
        # True is an int in Python, and none in JSON.
        if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            return value
        try:
            if isinstance(self.read_as, StandIn):
                return self.read_as.form.validated(value)
            return msgspec.convert(value, cast("type[object]", kind), dec_hook=_from_python)
        except Exception as error:
            raise UsageError(
                f"the payload of {what} must be of type {kind.__qualname__}: {error}"
            ) from error


_known = lru_cache(maxsize=_TYPES_MAX)(Codec)


def codec_of(kind: Any) -> Codec:
    """The codec of a type, made once.

    Raises:
        UsageError: Nothing can be decoded as this type, or something of its values would be lost.
    """
    try:
        return _known(kind)
    except TypeError:
        # A type with a note that cannot be hashed is made each time.
        return Codec(kind)


Values = Callable[[str], "tuple[Any, ...] | None"]


def values_of(codecs: Mapping[str, Codec]) -> Values | None:
    """What decodes an object of exactly these members at once, to their values in this order.

    It answers ``None`` to all else, and to what is too deep or too long: decode the members one by
    one to learn what is wrong. ``None`` itself where one of the types decodes by itself.
    """
    if any(isinstance(codec.read_as, StandIn) for codec in codecs.values()):
        return None
    # The names of members are no business of Python's.
    names = {f"member_{place}": name for place, name in enumerate(codecs)}
    fields = [(field, codecs[name].read_as) for field, name in names.items()]
    kind = msgspec.defstruct("Members", fields, rename=names, forbid_unknown_fields=True)
    decode = msgspec.json.Decoder(kind, dec_hook=_from_json).decode
    flat = all(codec.flat for codec in codecs.values())

    def decoded(text: str) -> tuple[Any, ...] | None:
        if len(text) > PAYLOAD_BYTES_MAX or (not flat and _may_be_deep(text)):
            return None
        try:
            return astuple(decode(text))
        except Exception:  # noqa: BLE001 - a type's own checks may raise anything
            return None

    return decoded


def encode(
    value: object, what: str, *, limit: int = PAYLOAD_BYTES_MAX, canonical: bool = False
) -> str:
    """The JSON text of ``value``; ``what`` names it in errors.

    ``canonical`` sorts keys and sets, so that equal values have one text.

    Raises:
        UsageError: It is of no supported type, too deep, or longer than ``limit`` bytes.
    """
    try:
        try:
            data = (_encode_in_order if canonical else _encode)(value)
        except TypeError:
            if not canonical:
                raise
            data = _sorted_by_text(value)
        # Depth, and numbers that JSON cannot say (they become null), are looked for only where
        # they can be: two searches in C against a walk in Python.
        if (
            type(value) not in _FLAT
            # Not by ``in``, which takes the word for a number first, and fails at that.
            and (data.find(b"null") >= 0 or data.count(b"{") + data.count(b"[") > DEPTH_MAX)
            and not _is_flat(value)
        ):
            _check(msgspec.to_builtins(value, enc_hook=_to_builtins), what, DEPTH_MAX)
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} contains text that is not valid Unicode") from error
    except UsageError:
        raise
    except Exception as error:  # a type's own code may raise anything
        raise UsageError(f"{what} cannot be stored as JSON: {error}") from error
    if len(data) > limit:
        raise UsageError(f"{what} is {len(data)} bytes of JSON; at most {limit} are allowed")
    return text


def _sorted_by_text(value: object) -> bytes:
    """The canonical JSON of what may have keys that are no text: numbers, dates, members of enums.

    Raises:
        TypeError: That is not what is wrong with it, or two keys are one in JSON.
    """
    plain = msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=_to_builtins)
    data = _encode_in_order(plain)
    # The same members in another order take as many bytes.
    if len(data) != len(_encode(value)):
        raise TypeError("two keys of a dictionary are the same text in JSON")
    return data


def decode_plain(text: str | None) -> Any:
    """The value of a JSON text as plain JSON; of nothing, ``None``."""
    return None if text is None else _plain_decoder.decode(text)


def _is_flat_kind(kind: object) -> bool:
    """Whether nothing is nested in values of a type."""
    # One by one: there are types that cannot be hashed.
    return any(kind is each for each in _FLAT_KINDS)


def _is_flat(value: object) -> bool:
    """Whether nothing is nested in ``value``, or only in an object of a few members."""
    kind = type(value)
    if kind is dict:
        members: dict[object, object] = value  # pyright: ignore[reportAssignmentType] - it is one
        if len(members) > _MEMBERS_MAX:
            return False
        # Not by ``all``, whose generator takes twice as long.
        for member in members.values():  # noqa: SIM110
            if type(member) not in _FLAT:
                return False
        return True
    return kind in _FLAT


def _may_be_deep(text: str) -> bool:
    """Whether a look at each level is needed; two searches in C say that it mostly is not."""
    return text.count("{") + text.count("[") > DEPTH_MAX


def _to_builtins(value: Any) -> Any:
    kind = cast("type[object]", type(value))
    if is_validated(kind):
        return form_of(kind).dumped(value)
    hint = "; was an `await` forgotten?" if hasattr(kind, "__await__") else ""
    raise TypeError(f"objects of type {kind.__qualname__} are not supported{hint}")


def _from_json(kind: Any, value: Any) -> Any:
    if isinstance(kind, StandIn):
        return kind.form.from_plain(value)
    if kind is object:
        return value
    if is_validated(kind):
        return form_of(kind).from_plain(value)
    raise TypeError(f"objects of type {kind!r} are not supported")


def _from_python(kind: Any, value: Any) -> Any:
    if kind is object:
        return value
    if is_validated(kind):
        return form_of(kind).validated(value)
    raise TypeError(f"objects of type {kind!r} are not supported")


def _check(value: object, what: str, left: int) -> None:
    if left == 0:
        raise UsageError(f"{what} is nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, dict):
        for item in cast("dict[object, object]", value).values():
            _check(item, what, left - 1)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in cast("list[object]", value):
            _check(item, what, left - 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{what} contains {value!r}, which JSON cannot represent")


_encode = msgspec.json.Encoder(enc_hook=_to_builtins).encode
_encode_in_order = msgspec.json.Encoder(enc_hook=_to_builtins, order="deterministic").encode
_plain_decoder = msgspec.json.Decoder()
