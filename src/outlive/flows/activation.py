"""One flow that this host owns: what happens to it, what it decides, what is committed, then done.

Things that happen are fed one at a time. One commit is under way at most; what happens meanwhile
waits, and goes into the next. Effects begin only when the commit that decided them is known to
stand. A commit that was refused, or whose outcome stays unknown past the session's deadline, ends
everything here: nothing begins, and what runs is stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from outlive.errors import HistoryTooNew
from outlive.flows.decision import Decision
from outlive.flows.events import StepEnded, StepRetrying
from outlive.flows.home import Home
from outlive.flows.intake import Happened, Intake, Taken
from outlive.flows.letters import CANCEL
from outlive.flows.local_steps import LocalSteps
from outlive.flows.mailbox import Mailbox
from outlive.flows.rousing import Rouser
from outlive.flows.row import FlowRow
from outlive.flows.step_run import StepRun
from outlive.model.instance import (
    LETTERS_MAX,
    ClaimedInstance,
    Commit,
    Committed,
    HistoryRow,
    Letter,
)
from outlive.runtime.session import LiveSession


class LiveFlow:
    """A flow in the memory of its owner."""

    __slots__ = (
        "_begun",
        "_home",
        "_intake",
        "_mailbox",
        "_rouser",
        "_still",
        "_stopped",
        "_suspending",
        "_untouched",
        "closed",
        "committing",
        "ending",
        "id",
        "idle",
        "leaving",
        "row",
        "run",
        "session",
        "steps",
        "suspended",
    )

    def __init__(
        self, home: Home, claimed: ClaimedInstance, session: LiveSession, at_us: int
    ) -> None:
        self._home = home
        self.id = claimed.id
        self.row = FlowRow(claimed)
        self.session = session
        self.steps = LocalSteps(home.executor)
        self._intake = Intake()
        self._rouser = Rouser(home.clock)
        # Until its history was read, nothing can be fed: what happens meanwhile waits.
        self._begun = False
        self._untouched = claimed.first
        self._mailbox = Mailbox(at_us)
        self.committing = self.suspended = self.closed = self.idle = False
        # Whether the newest commit is the one that ends it.
        self.ending = False
        # Whether somebody suspended it while a commit was under way.
        self._suspending: bool = False
        # Whether the host lets it go as soon as its commit is through.
        self.leaving = False
        # Suspended or leaving: it begins nothing new here, and only records how what runs ends.
        # Kept, not computed: each step asks for it a few times.
        self._still = False
        # Whether its host stops without further grace: even a step with ``once`` begins no more.
        self._stopped = False
        self.run = home.new_run(self, claimed.input, claimed.began_at_us)

    @property
    def pending(self) -> bool:
        """Whether it would go on by itself, without waiting for anything."""
        if not self._begun or self._intake.waiting or self.steps.to_begin:
            return True
        return self.run.unwritten or not self.run.waiting

    @property
    def ready(self) -> bool:
        """Whether its code stands where its history says, and can be asked."""
        return self._begun and not self.closed

    # -- what happens to it -----------------------------------------------------------------------

    def begin(self, rows: Sequence[HistoryRow], letters: Sequence[Letter] = ()) -> None:
        """Run it from its beginning through what is recorded, and then on."""
        self._begun = True
        # Cancelled before anybody had it: its code never begins, and the wish is fed first.
        wish = self._wish_to_cancel(letters) if self._untouched and letters else None
        if wish is not None:
            letters = [wish, *(each for each in letters if each is not wish)]
        try:
            self.run.begin(rows, hold=wish is not None and not rows)
            if rows:
                self.run.settle_unknown(self._home.clock.now_us())
        except Exception as error:  # noqa: BLE001 - whatever its code does, the host goes on
            self._home.stuck(self, error)
            return
        if letters:
            self._put_letters(letters)
            if len(letters) >= LETTERS_MAX:
                # There may be more behind those that a claim brings along.
                self._mailbox.forget()
        self._advance()

    def _wish_to_cancel(self, letters: Sequence[Letter]) -> Letter | None:
        """The first letter that wants the flow cancelled, and can be read."""
        for letter in letters:
            if letter.kind == CANCEL and self.run.read(letter, 0) is not None:
                return letter
        return None

    def parting(self) -> Commit | None:
        """The commit that says what it waits for and gives it up; ``None`` if the store knows."""
        if self.row.noted:
            return None
        return self.row.beside(due_at_us=self.run.due_at_us, release=True)

    def mark(self, attributes: str) -> None:
        """Write these attributes with the next commit."""
        self.row.mark(attributes)
        self.run.has_attributes(attributes)

    def write_mark(self) -> None:
        """Write what it is marked with, if nothing else is written now."""
        if self.closed or self.committing or not self.row.marked:
            return
        if self.idle:
            self._home.woke(self)
        commit = self.row.beside(due_at_us=self.run.due_at_us)

        def written(answer: Committed | None) -> None:
            if answer is None or not answer.ok:
                self.committing = False
                self._home.lost(self, fenced=answer is not None)
                return
            self._stands(commit, answer)
            if not self.closed:
                self._go_on()

        self.committing = True
        self._home.commit(self, commit, written)

    def step_happened(self, run: StepRun, event: StepEnded | StepRetrying) -> None:
        """An attempt of a local step ended."""
        if self.closed:
            return
        running = self.steps.running
        if running.get(run.call.identity) is run:
            del running[run.call.identity]
        self._intake.waiting.append((event, 0, False))
        self._wake()

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
        if not self._begun or self.committing or self._intake.waiting or self._mailbox.looking:
            self._mailbox.rung = True
        else:
            self._read()

    def delivered(self, letters: Sequence[Letter]) -> None:
        """Letters were read."""
        self._mailbox.looking = False
        if self.closed:
            return
        took = not self._still and self._put_letters(letters)
        self._mailbox.looked(letters, heard=not self._still, took=took)
        if took or (self._intake.waiting and not self._still):
            self._wake()
        elif not self.committing:
            self._rest()

    def _put_letters(self, letters: Sequence[Letter]) -> bool:
        """Whether any of them was taken."""
        settled = not self.committing and not self.run.unwritten
        now_us = self._home.clock.now_us()
        return self._intake.put_letters(self.run, letters, now_us, settled=settled)

    def operated(self, *, suspended: bool) -> None:
        """Somebody suspended or resumed it."""
        if self.closed or suspended == self.suspended:
            return
        self.suspended = suspended
        self._still = suspended or self.leaving
        if not self._still:
            # What was rung meanwhile was not heard, and what was read is forgotten.
            self._mailbox.forget()
        if self.committing or not self._begun:
            self._suspending = suspended
            return
        if not self._still:
            self.steps.start(self, (), hold=False)
        self._advance()

    def leave(self, *, now: bool) -> None:
        """Let it go when the steps that run have ended, or stop them ``now``."""
        self.leaving = self._still = True
        self._stopped = now
        if self.closed:
            return
        if not self._begun:
            self._home.hand_back(self)
            return
        if now:
            self.steps.stop_running()
        if not self.committing:
            self._advance()

    def transacted(self, event: StepEnded, commit: Commit, answer: Committed) -> None:
        """A step and its record were committed in one transaction."""
        self._stands(commit, answer)
        if self.closed:
            return
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
        if self.steps.any:
            self.steps.forget()
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
        home, run, intake = self._home, self.run, self._intake
        began = home.stopwatch() if home.telemetry.active else None
        try:
            if intake.waiting:
                intake.feed(run)
            decision = run.take()
        except Exception as error:  # noqa: BLE001 - whatever its code does, the host goes on
            home.stuck(self, error)
            return
        if began is not None:
            home.activated(began)
        if run.children.unheard:
            home.heed(self)
        if decision.durable or intake.consumed or intake.replies:
            self._commit(decision)
        else:
            self._act(decision)

    def _record(self) -> None:
        """Write down what became of steps, without going on from it."""
        ended = self._intake.record(self.run)
        if ended or self._intake.consumed:
            self._commit(Decision(events=ended, durable=True))
        else:
            self._rest()

    def _commit(self, decision: Decision) -> None:
        if decision.restart is not None and self.row.version == 0:
            self._number_first_run(decision)
            return
        events, consumed, replies = self._intake.emptied(decision.events)
        if not events and decision.events and decision.only_acts and not consumed:
            self._act(decision)
            return
        commit = self.row.decided(
            decision,
            events,
            consumed=consumed,
            replies=replies,
            due_at_us=self.run.due_at_us,
        )
        self.committing = True
        self.ending = decision.ended is not None
        self._home.commit(self, commit, partial(self._committed, decision, commit))

    def _number_first_run(self, decision: Decision) -> None:
        """Commit an empty row, so that a new run does not begin at the same base as the first.

        Keys of effects, ids of children and what chance gives are told apart by the base.
        """
        commit = self.row.beside(due_at_us=self.run.due_at_us)

        def numbered(answer: Committed | None) -> None:
            self.committing = False
            if answer is None or not answer.ok:
                self._home.lost(self, fenced=answer is not None)
                return
            self._heard(answer)
            self.row.written(commit)
            if not self.closed:
                self._commit(decision)

        self.committing = True
        self._home.commit(self, commit, numbered)

    def _committed(self, decision: Decision, commit: Commit, answer: Committed | None) -> None:
        if answer is None or not answer.ok:
            self.committing = False
            self._home.lost(self, fenced=answer is not None)
            return
        if decision.ended is not None and not answer.taken and not self.closed:
            # What the row says now is nobody's business here any more.
            self.committing = False
            self._act(decision)
            return
        self._stands(commit, answer)
        if answer.taken:
            self._home.not_started(
                self, [each for each in decision.starts if each.id in answer.taken]
            )
        if self.closed:
            return
        if answer.taken:
            self._intake.put(Taken(answer.taken, answer.at_us))
        if decision.restart is None:
            self._act(decision)
            return
        if decision.stopped_jobs:
            self._home.stop_jobs(decision.stopped_jobs)
        self._restart(decision.restart, commit, answer.at_us)

    def _stands(self, commit: Commit, answer: Committed) -> None:
        """A commit is written."""
        self.committing = False
        if not answer.repeated:
            self._home.clock.heard(answer.at_us)
        self.row.written(commit)
        # The commit may have been written before somebody suspended the flow. If it was resumed
        # since, it is handed back for nothing, and claimed at once.
        self.suspended = answer.suspended or self._suspending
        self._still = self.suspended or self.leaving
        self._suspending = False

    def _heard(self, answer: Committed) -> None:
        if not answer.repeated:
            self._home.clock.heard(answer.at_us)

    # -- what is done -----------------------------------------------------------------------------

    def _act(self, decision: Decision) -> None:
        if decision.stopped_jobs:
            self._home.stop_jobs(decision.stopped_jobs)
        if decision.ended is not None:
            self.close()
            self._home.ended(self, decision.ended, decision.outcome)
            return
        if decision.stopped:
            self.steps.stop(decision.stopped)
        if not self._stopped:
            self.steps.start(self, decision.steps, hold=self._still)
        self._go_on()

    def _go_on(self) -> None:
        if self._intake.waiting and not (self._still and not self._intake.fresh):
            self._advance()
        else:
            self._rest()

    def _restart(self, input: str, commit: Commit, at_us: int) -> None:  # noqa: A002 - it is one
        """Go on as a new run, which begins with the row of this commit."""
        self.steps.forget()
        # What happened meanwhile happened to the run that is over: the identities of steps begin
        # anew. Letters are in the mailbox still, and are read by the new run.
        if self._intake.waiting:
            self._mailbox.rung = True
        self._mailbox.see_anew()
        self._intake = Intake()
        self.run.close()
        self.row.base = commit.version - 1
        self.run = self._home.new_run(self, input, at_us)
        row = HistoryRow(commit.version, self.row.token, None, at_us, commit.events)
        self.begin([row])

    def _rest(self) -> None:
        """Nothing is to be fed or committed: look for more, and wait."""
        home = self._home
        if self._still:
            if not self.steps.running:
                home.hand_back(self)
            return
        if self.steps.transactions:
            self.committing = True
            home.transact(self, self.steps.transactions.pop(0))
            return
        mailbox = self._mailbox
        if mailbox.rung and not mailbox.looking:
            self._read()
        self._rouser.set(self.run.due_at_us, self._roused)
        if self.run.waiting and not mailbox.looking:
            if self._intake.unknown is not None:
                home.stuck(self, HistoryTooNew(f"a message of kind {self._intake.unknown!r}"))
            elif not self.idle:
                home.rested(self)
        elif self.idle:
            home.woke(self)

    def _read(self) -> None:
        self._home.read_mail(self, after=self._mailbox.look(self._home.clock.now_us()))

    def _roused(self, due_us: int) -> None:
        """Something that it waits for has come due."""
        if self.closed or self.committing or self._still:
            # What is under way sets the timer again.
            return
        now_us = self._home.clock.now_us()
        if self._mailbox.comes_first(due_us, now_us):
            # What is read sets the timer again, if it does not come before it.
            if not self._mailbox.looking:
                self._read()
            return
        due = self.run.due(now_us)
        if due:
            self._home.fired(now_us - due_us)
            self._intake.put(*due)
            self._wake()
        else:
            self._rest()
