"""Children that parts of a history began which retries made void, until calls are given them.

Owns which child a call goes on with: each of them is one call's at most. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from outlive.flows.events import ChildStarted
from outlive.flows.rewinding import Rewind, VoidChild
from outlive.flows.salvaging import Salvaged

if TYPE_CHECKING:
    from outlive.flows.calls import ChildCall
    from outlive.flows.outbox import Effect
    from outlive.flows.run import FlowRun


class FormerChildren:
    """Those of one run."""

    __slots__ = ("_had", "_lasting", "_left", "_run", "begun")

    def __init__(self, run: FlowRun) -> None:
        self._run = run
        self._left: Salvaged[VoidChild] = Salvaged()
        # All ids that any of them had.
        self._had: frozenset[str] = frozenset()
        # Ids under which some live on whose start was decided before its part was known to be void.
        self._lasting: frozenset[str] = frozenset()
        # Identities that had begun before what is void.
        self.begun: frozenset[str] = frozenset()

    def had(self, id: str) -> bool:  # noqa: A002 - it is one
        """Whether one of them had this id."""
        return id in self._had

    def rewound(self, rewind: Rewind, calls: dict[str, ChildCall[Any]]) -> None:
        """A part is void; calls from now on may be of children that it began."""
        for child in rewind.children:
            if child.started.id in self._had:
                # An earlier retry left it too; it is one child, as it was last.
                self.drop(child.started)
            if not child.failed:
                self._left.add(child.started.child, child.started.input, child)
        self._had |= {child.started.id for child in rewind.children}
        self.begun = rewind.begun_children
        self._lasting = frozenset(
            decided.id
            for decided in new_starts(self._run.out)
            if decided.id in self._had and self._lives_on(decided, calls.get(decided.child))
        )

    def _lives_on(self, decided: ChildStarted, call: ChildCall[Any] | None) -> bool:
        """Whether a child whose start is decided, but not recorded, was begun and goes on.

        It was decided before its part was known to be void. Nobody else is given the child then.
        """
        there = self.drop(decided)
        if there is None:
            # An earlier retry, of which nothing was recorded, has said so.
            return decided.id in self._lasting
        return there.ended is None and (call is None or call.abandon)

    def lasts(self, id: str) -> bool:  # noqa: A002 - it is one
        """Whether a start that is decided is of a child that was begun and goes on."""
        return id in self._lasting

    def may_start(self, decided: ChildStarted) -> bool:
        """Whether a start that is not recorded may go out: not under an id that another had."""
        return not self.had(decided.id) or self.lasts(decided.id)

    def drop(self, started: ChildStarted) -> VoidChild | None:
        """Give this child to nobody any more."""
        return self._left.take(
            started.child,
            started.input,
            same=lambda _: True,
            fits=lambda child: child.started.id == started.id,
        )

    def copied(self) -> None:
        """What was replayed so far was another flow's: those that live on are its, and stay so."""
        self._left.drop(lambda child: child.ended is None)

    def take(self, call: ChildCall[Any]) -> VoidChild | None:
        """The same child in a part that is void, if it has ended or lives on.

        What lived with this flow was cancelled with it, and is begun again.
        """
        if not self._left:
            return None
        return self._left.take(
            call.identity,
            call.input,
            same=lambda given: self._run.same(given, call.input, call.flow.arguments),
            fits=lambda child: child.ended is not None or (call.abandon and outlives(child)),
            loose=self._run.loose,
        )


def outlives(child: VoidChild) -> bool:
    """Whether a child goes on without its flow."""
    return child.started.abandon


def new_starts(out: Iterable[tuple[object, Effect | None]]) -> Iterable[ChildStarted]:
    """The children that are to be started, and not only gone on with."""
    for decided, effect in out:
        if isinstance(decided, ChildStarted) and effect is not None:
            yield decided
