"""The attributes by which a flow can be found: which there may be, whoever sets them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from outlive.errors import UsageError
from outlive.names import check_key
from outlive.serialization import encode_json

# Why a flow cannot go on, while no host's code fits its history.
STUCK = "outlive.stuck"

# A few scalars, each looked at by every filter.
ATTRIBUTES_MAX = 64

# Attributes stand in an index; what is larger belongs into the input.
ATTRIBUTES_BYTES_MAX = 16 * 1024


def unstuck(attributes: str) -> str:
    """Attributes as a store has them, without what says that a flow cannot go on."""
    if STUCK not in attributes:
        return attributes
    members: dict[str, Any] = msgspec.json.decode(attributes)
    members.pop(STUCK, None)
    return msgspec.json.encode(members).decode()


def with_attributes(before: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """The JSON of attributes after these were set; ``None`` removes one.

    Raises:
        UsageError: One of them is no string, number or boolean, or there are too many.
        InvalidName: A name is empty, or holds what no name may hold.
    """
    merged = dict(before)
    for name, value in given.items():
        if value is not None and not isinstance(value, (str, int, float)):
            raise UsageError(
                f"attribute {name!r} must be a string, a number or a boolean, not {value!r}"
            )
        merged[check_key(name, "the name of an attribute")] = value
    merged = {name: merged[name] for name in sorted(merged) if merged[name] is not None}
    if len(merged) > ATTRIBUTES_MAX:
        raise UsageError(f"a flow may have at most {ATTRIBUTES_MAX} attributes, not {len(merged)}")
    return encode_json(merged, "the attributes", limit=ATTRIBUTES_BYTES_MAX)
