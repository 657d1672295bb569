"""Flows that cannot go on here: their code does not do what their history says.

They are never failed for it, because a corrected release resumes them. They stay ours, with nothing
running, for a while that grows from time to time; then anybody may try, we as well. Meanwhile their
attribute ``outlive.stuck`` says why, for people and for ``host.flows.list(stuck=True)``; a host
whose code fits removes it immediately.

What a newer release wrote is left to its hosts at once, and treated so only if it comes back as it
was: if it went on meanwhile, they are there, and it is left to them again. What its own commits
changed here is not that, nor is what another old host says of it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import msgspec

from outlive.errors import HistoryTooNew
from outlive.flows.activation import LiveFlow
from outlive.flows.attributes import STUCK, unstuck
from outlive.model.instance import Committed
from outlive.runtime.backoff import Backoff
from outlive.serialization import printable

if TYPE_CHECKING:
    from outlive.flows.household import Household

# Soon at first: in a rolling upgrade, a host of the right release is there. Rarely at last: what
# is wrong is repaired by people.
_FIRST_S, _MOST_S = 1.0, 60.0

# What is kept in an attribute is a sentence.
_CHARS_MAX = 500

# How such a sentence begins that says of a flow that a newer release wrote it.
_TOO_NEW = f"{HistoryTooNew.__name__}: "

# Flows of which it is remembered how often they were tried here. One that is forgotten is tried
# again too soon, once.
_KNOWN_MAX = 10_000


class _Trial:
    """How long a flow is held when it is stuck again, and at which version it was left last."""

    __slots__ = ("backoff", "version")

    def __init__(self, backoff: Backoff, version: int) -> None:
        self.backoff = backoff
        self.version = version


class Stuck:
    """The stuck flows of one host."""

    def __init__(self, home: Household) -> None:
        self._home = home
        self._trials: dict[str, _Trial] = {}
        self._held: dict[str, tuple[LiveFlow, asyncio.TimerHandle]] = {}
        # What the store says of each that was stuck before.
        self._marked: dict[str, str] = {}

    def enter(self, live: LiveFlow) -> None:
        """A flow is about to be replayed: if it goes on now, it is not stuck any more."""
        if STUCK in live.row.attributes:
            attributes = cast("dict[str, Any]", msgspec.json.decode(live.row.attributes))
            self._marked[live.id] = str(attributes.get(STUCK, ""))
            live.mark(unstuck(live.row.attributes))
        else:
            # It went on elsewhere: should it be stuck here again, the store does not know it.
            self._marked.pop(live.id, None)

    def hold(self, live: LiveFlow, error: Exception) -> None:
        """Keep a flow that cannot go on, tell about it, and let it go later."""
        home = self._home
        home.drop(live)
        newer = isinstance(error, HistoryTooNew)
        trial = self._trials.get(live.id)
        # Whoever goes on takes the mark away.
        went_on = trial and trial.version != live.row.found and live.id not in self._marked
        is_new = trial is None or (newer and bool(went_on))
        if trial is None or is_new:
            trial = self._begin_trial(live)
        trial.version = live.row.version
        if newer and is_new:
            home.log.warning(
                "flow %s of %r is left to hosts of another release: %s",
                *(live.id, live.row.name, error),
                extra={"flow": live.id, "token": live.row.token},
            )
            home.yielding.leave(live)
            return
        home.log.error(
            "flow %s of %r cannot go on, and waits for a release that fits its history: %s",
            *(live.id, live.row.name, error),
            exc_info=None if newer else error,
            extra={"flow": live.id, "token": live.row.token},
        )
        if home.telemetry.active:
            home.telemetry.flows_counted("stuck")
        loop = asyncio.get_running_loop()
        let_go = self._leave if newer else self._let_go
        timer = loop.call_later(trial.backoff.next_s(), let_go, live)
        self._held[live.id] = live, timer
        self._mark(live, f"{type(error).__name__}: {printable(error, _CHARS_MAX)}", trial)

    def _begin_trial(self, live: LiveFlow) -> _Trial:
        trials = self._trials
        if live.id not in trials and len(trials) >= _KNOWN_MAX:
            del trials[next(iter(trials))]
        backoff = Backoff(_FIRST_S, _MOST_S, self._home.runtime.random)
        trial = trials[live.id] = _Trial(backoff, live.row.version)
        return trial

    @property
    def any(self) -> bool:
        """Whether anything is remembered of any flow."""
        return bool(self._trials or self._marked)

    def recovered(self, id: str) -> None:  # noqa: A002 - it is one
        """It went on: what was remembered of it is forgotten."""
        self._trials.pop(id, None)
        self._marked.pop(id, None)

    def let_all_go(self) -> None:
        """The host stops."""
        for live, timer in list(self._held.values()):
            timer.cancel()
            self._let_go(live)
        self._home.yielding.leave_all_now()

    def _let_go(self, live: LiveFlow) -> None:
        self._held.pop(live.id, None)
        self._home.give_up(live, due=True)

    def _leave(self, live: LiveFlow) -> None:
        self._held.pop(live.id, None)
        self._home.yielding.leave(live)

    def _mark(self, live: LiveFlow, said: str, trial: _Trial) -> None:
        # What was written here since it was claimed has taken the mark away.
        known = self._marked.get(live.id, "") if live.row.marked else ""
        # Old hosts of two releases may name two things that they do not know: the first will do.
        if known == said or (said.startswith(_TOO_NEW) and known.startswith(_TOO_NEW)):
            return
        self._marked[live.id] = said
        attributes = cast("dict[str, Any]", msgspec.json.decode(live.row.attributes))
        attributes[STUCK] = said
        commit = live.row.beside(
            due_at_us=self._home.clock.now_us(),
            attributes=msgspec.json.encode(attributes).decode(),
            kind=".stuck",
        )

        def marked(answer: Committed | None) -> None:
            if answer is None or not answer.ok:
                self._home.log.warning("flow %s was not marked as stuck", live.id)
            else:
                # It did not go on by that.
                trial.version = commit.version

        self._home.commits.put(commit, live.session, marked)
