"""Operations of one kind from many callers, done together in one statement.

Owns which operations of a batch join and in which order they run. A statement costs its parameters,
its result and two changes of hands of Python's interpreter lock; fifty operations in one statement
pay for that once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlive.drivers.sqlite.transaction import Entry, Turn

# Building the list for a statement that takes many costs as much as about three of its rows.
JOINT_LEAST = 4


class NotDone:
    """In place of a result: this one was left out, and nothing was written for it."""


NOT_DONE = NotDone()


class Joint:
    """An operation that may be done for one caller, or for many at once.

    ``many`` answers each argument with its result or ``NOT_DONE``; those are done one by one
    afterwards, as is everything when it raises. Of two kinds in one batch that with the lower
    ``rank`` runs first.
    """

    __slots__ = ("many", "one", "rank")

    def __init__(
        self,
        one: Callable[[Turn, Any], Any],
        many: Callable[[Turn, Sequence[Any]], Sequence[Any]],
        *,
        rank: int,
    ) -> None:
        self.one = one
        self.many = many
        self.rank = rank

    def __call__(self, turn: Turn, argument: Any) -> Any:
        """Do it for one caller."""
        return self.one(turn, argument)


def joined(
    many: Callable[[Turn, Sequence[Any]], Sequence[Sequence[Any] | NotDone]], *, rank: int
) -> Joint:
    """An operation on batches, done for one caller as for many."""
    return Joint(lambda turn, batch: many(turn, [batch])[0], many, rank=rank)


def runs_of(entries: Sequence[Entry]) -> Iterator[tuple[Joint | None, list[Entry]]]:
    """``entries`` in the order in which they are to run, those that may join side by side.

    Operations that were under way at the same time have no order among them that anybody could
    know; whatever cannot join keeps its place between those before and after it.
    """
    kinds: dict[Joint, list[Entry]] = {}
    for entry in entries:
        call = entry[1]
        if isinstance(call, Joint):
            kinds.setdefault(call, []).append(entry)
        else:
            yield from _by_rank(kinds)
            kinds = {}
            yield None, [entry]
    yield from _by_rank(kinds)


def _by_rank(kinds: dict[Joint, list[Entry]]) -> Iterator[tuple[Joint, list[Entry]]]:
    return iter(sorted(kinds.items(), key=lambda kind: kind[0].rank))
