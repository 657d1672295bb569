"""Which calls of local steps share a key, by which other systems know their effects.

Pure. A key is the identity of the call, and is the same at every attempt. Behind a retry calls are
counted anew, so that an identity may come to another call than had it before: that one gets a key
of its own, or the other system would take its effect for one that it has seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

import msgspec

# Steps that may have begun and have no end when their flow ends are written into its history. Of
# more than this it is only written that there were: whatever a retry calls has a new key then.
BEGUN_MAX = 1000
_ANY = "*"


def digest_of(input: msgspec.Raw) -> str:  # noqa: A002 - it is one
    """What tells two inputs of one identity apart."""
    return blake2b(bytes(input), digest_size=6).hexdigest()


def told(begun: dict[str, str]) -> dict[str, str] | None:
    """What the end of a flow says of local steps that were begun, and have no end."""
    return {_ANY: ""} if len(begun) > BEGUN_MAX else begun or None


class EffectKeys:
    """What was begun in parts that are void."""

    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun: dict[str, set[str]] = {}

    def rewound(self, begun: Mapping[str, Iterable[str]]) -> None:
        """A part is void in which these identities were begun, with these digests of inputs."""
        for identity, digests in begun.items():
            self._begun.setdefault(identity, set()).update(digests)

    def key_of(self, identity: str, input: msgspec.Raw, retry: int) -> str | None:  # noqa: A002
        """The key of a call behind the retry of this number; ``None`` if it is its identity."""
        had = self._begun.get(identity, set[str]())
        if _ANY not in self._begun and had <= {digest_of(input)}:
            return None
        return f"{identity}.{retry}"
