"""Flows that cannot go on here: this host's code does not fit their history, or cannot read it.

They are never failed for it, because code that fits resumes them. They stay ours, with nothing
running, for a while that grows from time to time; then any host may try, this one as well.
Meanwhile their attribute ``outlive.stuck`` says why, for people and for
``host.flows.list(stuck=True)``; a host whose code fits removes it immediately.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import msgspec

from outlive.errors import HistoryTooNew
from outlive.flows.activation import LiveFlow
from outlive.flows.attributes import STUCK
from outlive.model.instance import Committed
from outlive.runtime.backoff import Backoff
from outlive.serialization import printable
from outlive.telemetry import events

if TYPE_CHECKING:
    from outlive.flows.household import Household

# Soon at first: in a rolling upgrade, a host of the right release is there. Rarely at last: what
# is wrong is repaired by people.
_FIRST_S, _MOST_S = 1.0, 60.0

# What is kept in an attribute is a sentence.
_CHARS_MAX = 500

# Flows of which it is remembered how often they were tried here. One that is forgotten is tried
# again too soon, once.
_KNOWN_MAX = 10_000


class Stuck:
    """The stuck flows of one host."""

    def __init__(self, home: Household) -> None:
        self._home = home
        self._backoffs: dict[str, Backoff] = {}
        self._held: dict[str, tuple[LiveFlow, asyncio.TimerHandle]] = {}

    def hold(self, live: LiveFlow, error: Exception) -> None:
        """Keep a flow that cannot go on, say so, and let it go later."""
        home = self._home
        home.drop(live, "stuck")
        home.log.error(
            "flow %s of %r is stuck on this host and will be retried: %s",
            *(live.id, live.row.name, error),
            # Where an event was not known says nothing.
            exc_info=None if isinstance(error, HistoryTooNew) else error,
            extra={"flow": live.id, "token": live.row.token},
        )
        if home.telemetry.active:
            home.telemetry.record(events.FLOWS, event="stuck")
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._backoff(live.id).next_s(), self._let_go, live)
        self._held[live.id] = live, timer
        self._mark(live, f"{type(error).__name__}: {printable(error, _CHARS_MAX)}")

    def _backoff(self, id: str) -> Backoff:  # noqa: A002 - it is one
        known = self._backoffs
        if id not in known:
            if len(known) >= _KNOWN_MAX:
                del known[next(iter(known))]
            known[id] = Backoff(_FIRST_S, _MOST_S, self._home.runtime.random)
        return known[id]

    def recovered(self, id: str) -> None:  # noqa: A002 - it is one
        """It went on: what was remembered of it is forgotten."""
        self._backoffs.pop(id, None)

    def let_all_go(self) -> None:
        """The host stops."""
        for live, timer in list(self._held.values()):
            timer.cancel()
            self._let_go(live)

    def _let_go(self, live: LiveFlow) -> None:
        if self._held.get(live.id, (None,))[0] is live:
            del self._held[live.id]
        self._home.give_up(live, due=True)

    def _mark(self, live: LiveFlow, said: str) -> None:
        attributes = cast("dict[str, Any]", msgspec.json.decode(live.row.attributes))
        attributes[STUCK] = said
        if attributes == msgspec.json.decode(live.row.stored):
            # Each try would add a row to its history.
            return
        commit = live.row.beside(
            due_at_us=self._home.clock.now_us(),
            attributes=msgspec.json.encode(attributes).decode(),
            kind=".stuck",
        )

        def marked(answer: Committed | None) -> None:
            if answer is None or not answer.ok:
                self._home.log.warning("could not mark flow %s as stuck", live.id)

        self._home.commits.put(commit, live.session, marked)
