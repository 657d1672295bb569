"""One flow that this host owns: what happens to it, what it decides, what is committed, then done.

Things that happen are fed one at a time. One commit is under way at most; what happens meanwhile
waits, and goes into the next. Effects begin only when the commit that decided them is known to
stand. A commit that was refused, or whose outcome stays unknown past the session's deadline, ends
everything here: nothing begins, and what runs is stopped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from holdfast.flows.arguments import text_of
from holdfast.flows.decision import Decision, RetryDue, StepTask
from holdfast.flows.events import (
    Event,
    Fed,
    StepEnded,
    StepRetrying,
    UpdateReceived,
    encode_events,
)
from holdfast.flows.executing import Executor
from holdfast.flows.letters import SIGNAL, rejection
from holdfast.flows.run import FlowRun
from holdfast.flows.step_run import StepRun
from holdfast.flows.store_clock import StoreClock
from holdfast.model.instance import (
    LETTERS_MAX,
    ClaimedInstance,
    Commit,
    Committed,
    HistoryRow,
    InstanceStatus,
    Letter,
    Reply,
)
from holdfast.names import InstanceId, JobId
from holdfast.runtime.session import LiveSession

# Fed before the next commit. More would make one row of the history, and one wait for the store,
# long enough to be felt by everybody else on this loop.
_FED_MAX = 500

# A timer of the loop may ring a moment before the store's clock is certain to be there.
_AGAIN_S = 0.001


class Home(Protocol):
    """What a flow needs of the host that owns it."""

    clock: StoreClock
    executor: Executor

    def new_run(self, live: LiveFlow, input: str, began_at_us: int) -> FlowRun:  # noqa: A002
        """A run of its definition, not begun."""
        ...

    def commit(
        self, live: LiveFlow, commit: Commit, done: Callable[[Committed | None], None]
    ) -> None:
        """Write it, and call ``done`` once it is known what became of it."""
        ...

    def transact(self, live: LiveFlow, call: StepTask) -> None:
        """Run a step inside a transaction of the store; ``transacted`` is called at its end."""
        ...

    def read_mail(self, live: LiveFlow) -> None:
        """Read its mailbox; ``delivered`` is called with what was there."""
        ...

    def stop_jobs(self, jobs: Sequence[JobId]) -> None:
        """Nobody waits for these any more: let them be cancelled."""
        ...

    def rested(self, live: LiveFlow) -> None:
        """It only waits now."""
        ...

    def woke(self, live: LiveFlow) -> None:
        """Something happened to it while it rested."""
        ...

    def hand_back(self, live: LiveFlow) -> None:
        """It can do nothing here now: let it go."""
        ...

    def ended(self, live: LiveFlow, status: InstanceStatus, outcome: str | None) -> None:
        """It has ended, and its end is stored."""
        ...

    def lost(self, live: LiveFlow, *, fenced: bool) -> None:
        """It is not ours any more."""
        ...

    def stuck(self, live: LiveFlow, error: Exception) -> None:
        """Its code and its history do not go together: it cannot go on here."""
        ...

    def fired(self, late_us: int) -> None:
        """A timer was fired so late."""
        ...


class _Taken(NamedTuple):
    """Children were not started, because others have their ids."""

    ids: Sequence[InstanceId]
    at: int


_Happened = tuple[Any, int, bool]
"""What happened, the number of the letter that brought it (or 0), whether it is recorded."""


class LiveFlow:
    """A flow in the memory of its owner."""

    __slots__ = (
        "_armed_us",
        "_attributes",
        "_begun",
        "_consumed",
        "_held",
        "_home",
        "_inbox",
        "_mail",
        "_reading",
        "_recorded",
        "_replies",
        "_timer",
        "_transactions",
        "attributes",
        "base",
        "closed",
        "committed",
        "committing",
        "custom",
        "headers",
        "id",
        "idle",
        "leaving",
        "name",
        "parent",
        "run",
        "session",
        "steps",
        "suspended",
        "token",
        "version",
    )

    def __init__(self, home: Home, claimed: ClaimedInstance, session: LiveSession) -> None:
        self._home = home
        self.id = claimed.id
        self.name = claimed.name
        self.token = claimed.token
        self.version = claimed.version
        self.base = claimed.base
        self.parent = claimed.parent
        self.headers = claimed.headers
        self.custom = claimed.custom
        self.attributes = claimed.attributes
        self.session = session
        # Attributes that the next commit writes though the flow's code did not ask for it.
        self._attributes: str | None = None
        self.steps: dict[str, StepRun] = {}
        self._inbox: deque[_Happened] = deque()
        self._consumed: list[int] = []
        self._replies: list[Reply] = []
        # Fed, but recorded before.
        self._recorded: list[Event] = []
        # Local steps that wait until the flow is resumed, and those that need a transaction.
        self._held: list[StepTask] = []
        self._transactions: deque[StepTask] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_us: int | None = None
        # Until its history was read, nothing can be fed: what happens meanwhile waits.
        self._begun = self._mail = self._reading = False
        self.committing = self.suspended = self.closed = self.idle = False
        # Whether the store knows from us when it is due.
        self.committed = False
        # Whether the host lets it go as soon as its commit is through.
        self.leaving = False
        self.run = home.new_run(self, claimed.input, claimed.began_at_us)

    @property
    def pending(self) -> bool:
        """Whether it would go on by itself, without waiting for anything."""
        return (
            not self._begun
            or bool(self._inbox or self._held or self._transactions)
            or not self.run.waiting
        )

    @property
    def _still(self) -> bool:
        """Whether it begins nothing new here, and only records how what runs ends."""
        return self.suspended or self.leaving

    # -- what happens to it -----------------------------------------------------------------------

    def begin(self, rows: Sequence[HistoryRow], letters: Iterable[Letter] = ()) -> None:
        """Run it from its beginning through what is recorded, and then on."""
        self._begun = True
        try:
            self.run.begin(rows)
            if rows:
                self.run.settle_unknown(self._home.clock.now_us())
        except Exception as error:  # noqa: BLE001 - whatever its code does, the host goes on
            self._home.stuck(self, error)
            return
        self._take(letters)
        self._advance()

    def mark(self, attributes: str) -> None:
        """Write these attributes with the next commit."""
        self.attributes = self._attributes = attributes

    def step_happened(self, run: StepRun, event: StepEnded | StepRetrying) -> None:
        """An attempt of a local step ended."""
        if self.closed:
            return
        if self.steps.get(run.call.identity) is run:
            del self.steps[run.call.identity]
        self.happened(event)

    def happened(self, event: Fed | RetryDue) -> None:
        """Feed it, now or after the commit that is under way."""
        if self.closed:
            return
        self._inbox.append((event, 0, False))
        self._wake()

    def mail(self) -> None:
        """There may be letters."""
        if self.closed or self._still:
            return
        if not self._begun or self.committing or self._inbox or self._reading:
            self._mail = True
        else:
            self._read()

    def delivered(self, letters: Sequence[Letter]) -> None:
        """Letters were read."""
        self._reading = False
        if self.closed:
            return
        if len(letters) >= LETTERS_MAX:
            self._mail = True
        if letters and not self._still:
            self._take(letters)
            self._wake()
        elif not self.committing:
            self._rest()

    def operated(self, *, suspended: bool) -> None:
        """Somebody suspended or resumed it."""
        if self.closed or suspended == self.suspended:
            return
        self.suspended = suspended
        if self.committing or not self._begun:
            return
        if not self._still:
            held, self._held = self._held, []
            self._start(held)
            self._mail = True
        self._advance()

    def leave(self, *, now: bool) -> None:
        """Let it go when the steps that run have ended, or stop them ``now``."""
        self.leaving = True
        if self.closed:
            return
        if not self._begun:
            self._home.drop(self)
            self._home.give_up(self, due=True)
            return
        if now:
            for identity in list(self.steps):
                self._stop(identity)
        if not self.committing:
            self._advance()

    def transacted(self, event: StepEnded, answer: Committed) -> None:
        """A step and its record were committed in one transaction."""
        self.committing = False
        self._home.clock.heard(answer.at_us)
        self.version, self.committed = self.version + 1, True
        if self.closed:
            return
        self.suspended = answer.suspended
        self._inbox.appendleft((event, 0, True))
        self._go_on()

    def not_transacted(self, event: StepEnded | StepRetrying) -> None:
        """The transaction of a step was rolled back."""
        self.committing = False
        if not self.closed:
            self._inbox.append((event, 0, False))
            self._go_on()

    def close(self) -> None:
        """Drop it: nothing that still happens has any effect. Repeatable."""
        if self.closed:
            return
        self.closed = True
        self._disarm()
        for run in self.steps.values():
            self._home.executor.stop(run)
        self.steps.clear()
        self.run.close()

    # -- what it decides --------------------------------------------------------------------------

    def _wake(self) -> None:
        if self.idle:
            self._home.woke(self)
        if not self.committing:
            self._advance()

    def _take(self, letters: Iterable[Letter]) -> None:
        now_us = self._home.clock.now_us()
        for letter in letters:
            if letter.kind == SIGNAL and self.run.full:
                # It stays in the mailbox, where it counts against those who send.
                continue
            event = self.run.read(letter, now_us)
            if event is None:
                # Of no meaning to it: taken out of the mailbox, where it would wait for ever.
                self._consumed.append(letter.number)
            else:
                self._inbox.append((event, letter.number, False))

    def _advance(self) -> None:
        """Feed what happened, and commit what follows from it."""
        if self._still:
            self._record()
            return
        try:
            for _ in range(min(_FED_MAX, len(self._inbox))):
                self._feed(*self._inbox.popleft())
                if self.run.ended:
                    break
            decision = self.run.take()
        except Exception as error:  # noqa: BLE001 - whatever its code does, the host goes on
            self._home.stuck(self, error)
            return
        if decision.durable or self._consumed or self._replies:
            self._commit(decision)
        else:
            self._act(decision)

    def _feed(self, event: Any, number: int, recorded: bool) -> None:  # noqa: FBT001
        if number:
            self._consumed.append(number)
        if type(event) is UpdateReceived:
            try:
                self.run.accept_update(event.name, text_of(event.payload))
            except Exception as error:  # noqa: BLE001 - the sender is told, nothing is recorded
                self._replies.append(rejection(event.id, event.name, error))
                return
        if type(event) is _Taken:
            self.run.children_taken(event.ids, event.at)
            return
        if recorded:
            self._recorded.append(event)
        self.run.feed(event)

    def _record(self) -> None:
        """Write down how steps ended, without going on from it."""
        ends = [each for each in self._inbox if isinstance(each[0], StepEnded | StepRetrying)]
        fresh = tuple(event for event, number, recorded in ends if not (number or recorded))
        # What letters brought is still in the mailbox, and timers will be due again.
        self._inbox = deque((event, 0, True) for event, number, _ in ends if not number)
        if fresh or self._consumed:
            self._commit(Decision(events=fresh, durable=True))
        else:
            self._rest()

    def _commit(self, decision: Decision) -> None:
        if decision.restart is not None and self.version == 0:
            self._number_first_run(decision)
            return
        events = decision.events
        if self._recorded:
            known, self._recorded = self._recorded, []
            events = tuple(each for each in events if all(each is not one for one in known))
            if not events and not self._consumed and _only_acts(decision):
                self._act(decision)
                return
        attributes, self._attributes = self._attributes, None
        commit = Commit(
            id=self.id,
            token=self.token,
            version=self.version + 1,
            # One owner makes one commit of a version, and sends it until it is known.
            commit=f"{self.token}.{self.version + 1}",
            events=encode_events(events),
            due_at_us=self.run.due_at_us,
            status=decision.ended or InstanceStatus.RUNNING,
            outcome=decision.outcome,
            custom=decision.custom,
            attributes=attributes if decision.attributes is None else decision.attributes,
            consumed=tuple(self._consumed),
            sends=decision.sends,
            starts=decision.starts,
            jobs=decision.jobs,
            replies=(*decision.replies, *self._replies) if self._replies else decision.replies,
            restart=decision.restart,
        )
        if self._consumed:
            self._consumed = []
        if self._replies:
            self._replies = []
        self.committing = True
        self._home.commit(self, commit, partial(self._committed, decision, commit))

    def _number_first_run(self, decision: Decision) -> None:
        """Commit an empty row, so that a new run does not begin at the same base as the first.

        Keys of effects, ids of children and what chance gives are told apart by the base.
        """
        commit = Commit(
            id=self.id,
            token=self.token,
            version=1,
            commit=f"{self.token}.1",
            events="[]",
            due_at_us=self.run.due_at_us,
        )

        def numbered(answer: Committed | None) -> None:
            self.committing = False
            if answer is None or not answer.ok:
                self._home.lost(self, fenced=answer is not None)
                return
            self._home.clock.heard(answer.at_us)
            self.version, self.committed = 1, True
            if not self.closed:
                self._commit(decision)

        self.committing = True
        self._home.commit(self, commit, numbered)

    def _committed(self, decision: Decision, commit: Commit, answer: Committed | None) -> None:
        self.committing = False
        if answer is None or not answer.ok:
            self._home.lost(self, fenced=answer is not None)
            return
        self._home.clock.heard(answer.at_us)
        self.version, self.committed = commit.version, True
        if self.closed:
            return
        self.suspended = answer.suspended
        if commit.custom is not None:
            self.custom = commit.custom
        if commit.attributes is not None:
            self.attributes = commit.attributes
        if answer.taken:
            self._inbox.append((_Taken(answer.taken, answer.at_us), 0, False))
        if decision.restart is None:
            self._act(decision)
        else:
            self._restart(decision.restart, commit, answer.at_us)

    # -- what is done -----------------------------------------------------------------------------

    def _act(self, decision: Decision) -> None:
        if decision.ended is not None:
            self.close()
            self._home.ended(self, decision.ended, decision.outcome)
            return
        for identity in decision.stopped:
            self._stop(identity)
        if decision.stopped_jobs:
            self._home.stop_jobs(decision.stopped_jobs)
        if self._still:
            self._held.extend(decision.steps)
        else:
            self._start(decision.steps)
        self._go_on()

    def _go_on(self) -> None:
        if self._inbox and not (self._still and all(each[2] for each in self._inbox)):
            self._advance()
        else:
            self._rest()

    def _start(self, calls: Iterable[StepTask]) -> None:
        for call in calls:
            if call.step.options.transactional:
                self._transactions.append(call)
            else:
                self.steps[call.identity] = self._home.executor.start(self, call)

    def _stop(self, identity: str) -> None:
        run = self.steps.pop(identity, None)
        if run is not None:
            self._home.executor.stop(run)
            return
        self._held = [call for call in self._held if call.identity != identity]
        waiting = [call for call in self._transactions if call.identity != identity]
        self._transactions = deque(waiting)

    def _restart(self, input: str, commit: Commit, at_us: int) -> None:  # noqa: A002 - it is one
        """Go on as a new run, which begins with the row of this commit."""
        for identity in list(self.steps):
            self._stop(identity)
        self._held.clear()
        self._transactions.clear()
        self.run.close()
        self.base = commit.version - 1
        self.run = self._home.new_run(self, input, at_us)
        row = HistoryRow(commit.version, self.token, None, at_us, commit.events)
        self.begin([row])

    def _rest(self) -> None:
        """Nothing is to be fed or committed: look for more, and wait."""
        home = self._home
        if self._still:
            if not self.steps:
                home.hand_back(self)
            return
        if self._transactions:
            self.committing = True
            home.transact(self, self._transactions.popleft())
            return
        if self._mail and not self._reading:
            self._read()
        self._arm()
        if self.run.waiting and not self._reading:
            if not self.idle:
                home.rested(self)
        elif self.idle:
            home.woke(self)

    def _read(self) -> None:
        self._mail, self._reading = False, True
        self._home.read_mail(self)

    def _arm(self) -> None:
        due_us = self.run.due_at_us
        if due_us == self._armed_us:
            return
        self._disarm()
        if due_us is not None:
            self._armed_us = due_us
            wait_s = self._home.clock.wait_s(due_us)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._ring)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._armed_us = None

    def _ring(self) -> None:
        due_us, self._timer, self._armed_us = self._armed_us, None, None
        if self.closed or self.committing or self._still or due_us is None:
            # What is under way arms it again.
            return
        now_us = self._home.clock.now_us()
        due = self.run.due(now_us)
        if due:
            self._home.fired(now_us - due_us)
            self._inbox.extend((each, 0, False) for each in due)
            self._wake()
        else:
            self._armed_us = due_us
            self._timer = asyncio.get_running_loop().call_later(_AGAIN_S, self._ring)


def _only_acts(decision: Decision) -> bool:
    """Whether it writes nothing but its events."""
    return not (
        decision.jobs
        or decision.starts
        or decision.sends
        or decision.replies
        or decision.custom is not None
        or decision.attributes is not None
        or decision.ended is not None
        or decision.restart is not None
    )
