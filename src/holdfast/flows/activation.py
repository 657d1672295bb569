"""One flow that this host owns: what happens to it, what it decides, what is committed, then done.

Things that happen are fed one at a time. One commit is under way at most; what happens meanwhile
waits, and goes into the next. Effects begin only when the commit that decided them is known to
stand. A commit that was refused, or whose outcome stays unknown past the session's deadline, ends
everything here: nothing begins, and what runs is stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from holdfast.errors import HistoryTooNew
from holdfast.flows.decision import Decision, StepTask
from holdfast.flows.events import StepEnded, StepRetrying, encode_events
from holdfast.flows.home import Home
from holdfast.flows.intake import Happened, Intake, Taken
from holdfast.flows.rousing import Rouser
from holdfast.flows.step_run import StepRun
from holdfast.model.instance import (
    LETTERS_MAX,
    ClaimedInstance,
    Commit,
    Committed,
    HistoryRow,
    InstanceStatus,
    Letter,
)
from holdfast.runtime.session import LiveSession


class LiveFlow:
    """A flow in the memory of its owner."""

    __slots__ = (
        "_attributes",
        "_begun",
        "_held",
        "_home",
        "_intake",
        "_mail",
        "_noted",
        "_read_after",
        "_reading",
        "_rouser",
        "_suspending",
        "_transactions",
        "attributes",
        "base",
        "closed",
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
        self._intake = Intake()
        # Local steps that wait until the flow is resumed, and those that need a transaction.
        self._held: list[StepTask] = []
        self._transactions: list[StepTask] = []
        self._rouser = Rouser(home.clock, self._roused)
        # Until its history was read, nothing can be fed: what happens meanwhile waits.
        self._begun = self._mail = self._reading = False
        self._read_after = 0
        # Whether the store knows what it waits for.
        self._noted = False
        self.committing = self.suspended = self.closed = self.idle = False
        # Whether somebody suspended it while a commit was under way.
        self._suspending: bool = False
        # Whether the host lets it go as soon as its commit is through.
        self.leaving = False
        self.run = home.new_run(self, claimed.input, claimed.began_at_us)

    @property
    def pending(self) -> bool:
        """Whether it would go on by itself, without waiting for anything."""
        if not self._begun or self._intake or self._held or self._transactions:
            return True
        return self.run.unwritten or not self.run.waiting

    @property
    def ready(self) -> bool:
        """Whether its code stands where its history says, and can be asked."""
        return self._begun and not self.closed

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
        self._intake.put_letters(self.run, letters, self._home.clock.now_us())
        self._advance()

    def parting(self) -> Commit | None:
        """The commit that says what it waits for and gives it up; ``None`` if the store knows.

        What is claimed is due, and stays so until a commit says otherwise.
        """
        if self._noted:
            return None
        return Commit(
            id=self.id,
            token=self.token,
            version=self.version + 1,
            commit=f"{self.token}.{self.version + 1}",
            events="[]",
            due_at_us=self.run.due_at_us,
            release=True,
        )

    def mark(self, attributes: str) -> None:
        """Write these attributes with the next commit."""
        self.attributes = self._attributes = attributes
        self.run.has_attributes(attributes)

    def step_happened(self, run: StepRun, event: StepEnded | StepRetrying) -> None:
        """An attempt of a local step ended."""
        if self.closed:
            return
        if self.steps.get(run.call.identity) is run:
            del self.steps[run.call.identity]
        self.happened(event)

    def happened(self, event: Happened) -> None:
        """Feed it, now or after the commit that is under way."""
        if self.closed:
            return
        self._intake.put(event)
        self._wake()

    def mail(self) -> None:
        """There may be letters."""
        if self.closed or self._still:
            return
        if not self._begun or self.committing or self._intake or self._reading:
            self._mail = True
        else:
            self._read()

    def delivered(self, letters: Sequence[Letter]) -> None:
        """Letters were read."""
        self._reading = False
        if self.closed:
            return
        took = False
        if not self._still:
            took = self._intake.put_letters(self.run, letters, self._home.clock.now_us())
        more = len(letters) >= LETTERS_MAX
        self._mail = self._mail or more
        # Those that it cannot take stay there, and must not hide what stands behind them.
        self._read_after = letters[-1].number if more and not took else 0
        if took:
            self._wake()
        elif not self.committing:
            self._rest()

    def operated(self, *, suspended: bool) -> None:
        """Somebody suspended or resumed it."""
        if self.closed or suspended == self.suspended:
            return
        self.suspended = suspended
        if self.committing or not self._begun:
            self._suspending = suspended
            return
        if not self._still:
            self._mail = True
            self._start(())
        self._advance()

    def leave(self, *, now: bool) -> None:
        """Let it go when the steps that run have ended, or stop them ``now``."""
        self.leaving = True
        if self.closed:
            return
        if not self._begun:
            self._home.hand_back(self)
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
        self.version, self._noted = self.version + 1, True
        if self.closed:
            return
        self._answered(answer)
        self._intake.put_recorded(event)
        self._go_on()

    def not_transacted(self, event: StepEnded | StepRetrying) -> None:
        """The transaction of a step was rolled back."""
        self.committing = False
        if not self.closed:
            self._intake.put(event)
            self._go_on()

    def close(self) -> None:
        """Drop it: nothing that still happens has any effect. Repeatable."""
        if self.closed:
            return
        self.closed = True
        self._rouser.cancel()
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

    def _advance(self) -> None:
        """Feed what happened, and commit what follows from it."""
        if self._still:
            self._record()
            return
        began = self._home.stopwatch()
        try:
            self._intake.feed(self.run)
            decision = self.run.take()
        except Exception as error:  # noqa: BLE001 - whatever its code does, the host goes on
            self._home.stuck(self, error)
            return
        if began is not None:
            self._home.activated(began)
        if decision.durable or self._intake.consumed or self._intake.replies:
            self._commit(decision)
        else:
            self._act(decision)

    def _record(self) -> None:
        """Write down how steps ended, without going on from it."""
        ended = self._intake.record(self.run)
        if ended or self._intake.consumed:
            self._commit(Decision(events=ended, durable=True))
        else:
            self._rest()

    def _commit(self, decision: Decision) -> None:
        if decision.restart is not None and self.version == 0:
            self._number_first_run(decision)
            return
        events = self._intake.unrecorded(decision.events)
        if not events and decision.events and _only_acts(decision) and not self._intake.consumed:
            self._act(decision)
            return
        consumed, replies = self._intake.emptied()
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
            consumed=consumed,
            sends=decision.sends,
            starts=decision.starts,
            jobs=decision.jobs,
            replies=(*decision.replies, *replies) if replies else decision.replies,
            restart=decision.restart,
        )
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
            self.version, self._noted = 1, True
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
        self.version = commit.version
        self._noted = True
        if self.closed:
            return
        self._answered(answer)
        if commit.custom is not None:
            self.custom = commit.custom
        if commit.attributes is not None:
            self.attributes = commit.attributes
        if answer.taken:
            self._intake.put(Taken(answer.taken, answer.at_us))
        if decision.restart is None:
            self._act(decision)
            return
        if decision.stopped_jobs:
            self._home.stop_jobs(decision.stopped_jobs)
        self._restart(decision.restart, commit, answer.at_us)

    def _answered(self, answer: Committed) -> None:
        # The commit may have been written before somebody suspended the flow. If it was resumed
        # since, it is handed back for nothing, and claimed at once.
        self.suspended = answer.suspended or self._suspending
        self._suspending = False

    # -- what is done -----------------------------------------------------------------------------

    def _act(self, decision: Decision) -> None:
        if decision.stopped_jobs:
            self._home.stop_jobs(decision.stopped_jobs)
        if decision.ended is not None:
            self.close()
            self._home.ended(self, decision.ended, decision.outcome)
            return
        for identity in decision.stopped:
            self._stop(identity)
        if self._still:
            self._held.extend(decision.steps)
        else:
            self._start(decision.steps)
        self._go_on()

    def _go_on(self) -> None:
        if self._intake and not (self._still and not self._intake.fresh):
            self._advance()
        else:
            self._rest()

    def _start(self, calls: Sequence[StepTask]) -> None:
        if self._held:
            calls = (*self._held, *calls)
            self._held = []
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
        self._transactions = [call for call in self._transactions if call.identity != identity]

    def _restart(self, input: str, commit: Commit, at_us: int) -> None:  # noqa: A002 - it is one
        """Go on as a new run, which begins with the row of this commit."""
        for identity in list(self.steps):
            self._stop(identity)
        self._held.clear()
        self._transactions.clear()
        # What happened meanwhile happened to the run that is over: the identities of steps begin
        # anew. Letters are in the mailbox still, and are read by the new run.
        self._mail = self._mail or bool(self._intake)
        self._intake = Intake()
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
            home.transact(self, self._transactions.pop(0))
            return
        if self._mail and not self._reading:
            self._read()
        self._rouser.set(self.run.due_at_us)
        if self.run.waiting and not self._reading:
            if self._intake.unknown is not None:
                home.stuck(self, HistoryTooNew(f"a letter of the kind {self._intake.unknown!r}"))
            elif not self.idle:
                home.rested(self)
        elif self.idle:
            home.woke(self)

    def _read(self) -> None:
        self._mail, self._reading = False, True
        self._home.read_mail(self, after=self._read_after)

    def _roused(self, due_us: int) -> None:
        """Something that it waits for has come due."""
        if self.closed or self.committing or self._still:
            # What is under way sets the timer again.
            return
        now_us = self._home.clock.now_us()
        due = self.run.due(now_us)
        if due:
            self._home.fired(now_us - due_us)
            self._intake.put(*due)
            self._wake()
        else:
            self._rest()


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
