"""What crosses into a store and back: JSON, limited in size and depth, and never code.

Pure. Nothing here ever evaluates, imports or unpickles what a store returned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from outlive.errors import UsageError

# Metadata travels with every grant and every listing; it says who and where, it is not a payload.
# 8 KiB fits every backend (Azure blob metadata, the tightest, holds 8 KiB in all).
METADATA_BYTES_MAX = 8 * 1024

# Deeper documents are a mistake or an attack on the reader's stack.
DEPTH_MAX = 32

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def encode_metadata(metadata: Mapping[str, Any]) -> str:
    """The JSON text of ``metadata``.

    Raises:
        UsageError: It is no mapping with string keys, holds something JSON cannot say, is nested
            deeper than ``DEPTH_MAX`` or longer than ``METADATA_BYTES_MAX``.
    """
    if not isinstance(metadata, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"metadata must be a mapping, not {type(metadata).__name__}")
    for key in metadata:
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"metadata keys must be strings, not {key!r}")
    return encode_json(dict(metadata), "metadata", limit=METADATA_BYTES_MAX)


def encode_json(value: object, what: str, *, limit: int) -> str:
    """The JSON text of ``value``; ``what`` names it in errors.

    Raises:
        UsageError: It cannot be said in JSON, is too deep, or longer than ``limit`` bytes.
    """
    _check_depth(value, what, DEPTH_MAX)
    try:
        data = _encoder.encode(value)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError, OverflowError) as error:
        raise UsageError(f"{what} cannot be stored as JSON: {error}") from error
    if len(data) > limit:
        raise UsageError(f"{what} is {len(data)} bytes of JSON; at most {limit} are allowed")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} contains text that is not valid Unicode") from error


def decode_json(text: str | bytes) -> Any:
    """The value of a JSON text that a store returned."""
    return _decoder.decode(text)


def decode_metadata(text: str | bytes) -> dict[str, Any]:
    """The metadata of a stored record; anything but a JSON object becomes an empty one."""
    value = _decoder.decode(text) if text else None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _check_depth(value: object, what: str, left: int) -> None:
    if left == 0:
        raise UsageError(f"{what} is nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, dict):
        for item in cast("dict[object, object]", value).values():
            _check_depth(item, what, left - 1)
    elif isinstance(value, (list, tuple)):
        for item in cast("list[object]", value):
            _check_depth(item, what, left - 1)
    elif isinstance(value, float) and not math.isfinite(value):
        # msgspec would write null and the reader would never know.
        raise UsageError(f"{what} contains {value!r}, which JSON cannot represent")
