"""What has happened in a part that a retry made void, until the code calls for it: each thing once.

Pure. Behind a retry things come in another order, and calls are counted anew: the seventh call of a
step may be what the eighth was. A call is therefore known by its identity or, if another has that
now, by what it calls and with what.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class _Entry(Generic[T]):
    __slots__ = ("input", "taken", "value")

    def __init__(self, input: msgspec.Raw, value: T) -> None:  # noqa: A002 - it is one
        self.input = input
        self.value = value
        self.taken = False


class Salvaged(Generic[T]):
    """Things that are still to be taken, by the calls that they belong to."""

    __slots__ = ("_by_identity", "_by_input", "_left")

    def __init__(self) -> None:
        self._by_identity: dict[str, list[_Entry[T]]] = {}
        self._by_input: dict[tuple[str, bytes], deque[_Entry[T]]] = {}
        self._left = 0

    def __bool__(self) -> bool:
        return self._left > 0

    def add(self, identity: str, input: msgspec.Raw, value: T) -> None:  # noqa: A002 - it is one
        """Keep ``value`` for the call that had this identity and this input."""
        entry = _Entry(input, value)
        self._by_identity.setdefault(identity, []).append(entry)
        self._by_input.setdefault((callee_of(identity), bytes(input)), deque()).append(entry)
        self._left += 1

    def holds(self, identity: str, value: T) -> bool:
        """Whether ``value`` is still to be taken."""
        entries = self._by_identity.get(identity, ())
        return any(entry.value is value and not entry.taken for entry in entries)

    def take(
        self,
        identity: str,
        input: msgspec.Raw,  # noqa: A002 - it is one
        *,
        same: Callable[[msgspec.Raw], bool],
        fits: Callable[[T], bool] = lambda _: True,
        loose: bool = False,
    ) -> T | None:
        """What belongs to a call, which nobody else gets then.

        ``same`` tells whether an input is the one of the call, where the identity is; ``fits``
        whether a value may be meant at all. ``loose``: where nothing has that input, the identity
        alone will do.
        """
        for entry in self._by_identity.get(identity, ()):
            if not entry.taken and fits(entry.value) and same(entry.input):
                return self._take(entry)
        alike = self._by_input.get((callee_of(identity), bytes(input)), deque())
        # Thousands of calls may have the same input: what was taken is passed once.
        while alike and alike[0].taken:
            alike.popleft()
        for entry in alike:
            if not entry.taken and fits(entry.value):
                return self._take(entry)
        for entry in self._by_identity.get(identity, ()) if loose else ():
            if not entry.taken and fits(entry.value):
                return self._take(entry)
        return None

    def drop(self, which: Callable[[T], bool]) -> None:
        """Give those to nobody any more."""
        for entries in self._by_identity.values():
            for entry in entries:
                if not entry.taken and which(entry.value):
                    self._take(entry)

    def _take(self, entry: _Entry[T]) -> T:
        entry.taken = True
        self._left -= 1
        return entry.value


def callee_of(identity: str) -> str:
    """The name of the step or the flow of which this is a call."""
    return identity.rpartition("#")[0]
