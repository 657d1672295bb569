"""``Replay``: takes a run through its history, and holds what the code decides against it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NoReturn, cast

from outlive.errors import NonDeterminism
from outlive.flows.effect_keys import digest_of
from outlive.flows.events import (
    DECIDED,
    ChildEnded,
    ChildStarted,
    Decided,
    Ended,
    Event,
    Fed,
    Forked,
    Patched,
    SignalSent,
    StepEnded,
    StepIntended,
    StepRetrying,
    StepSent,
    TimerSet,
    origin_of,
)
from outlive.flows.outbox import Entry
from outlive.flows.replaying import (
    Copied,
    is_ahead,
    same_input,
    script_of,
    taken_ahead,
    told,
    told_call,
)
from outlive.flows.rewinding import Item, Rewind, VoidChild, calls_in
from outlive.model.instance import HistoryRow, InstanceStatus
from outlive.names import JobId

if TYPE_CHECKING:
    from outlive.flows.run import FlowRun


class Replay:
    """The replay of one history."""

    def __init__(self, run: FlowRun, rows: Sequence[HistoryRow]) -> None:
        self._run = run
        script = script_of(rows, run.base)
        self._rows = script.rows
        self._forks_left = script.forks
        self.any = any(script.rows)
        # Whether code has run that this is the history of; the mark of a copy is none of it.
        self.ran = any(not isinstance(item, Forked) for row in script.rows for item in row)
        self._ahead = taken_ahead(script.rows)
        self.carried = script.carried
        self.unbegun = script.unbegun
        self.seed = script.seed
        run.comparing = script.forks == 0
        if script.seed is not None:
            run.copied = Copied(*script.seed, run.id, edited=script.edited)
        run.asking.patches_recorded = script.patches
        self._announced: Rewind | None = None
        self._retries = _retries_after(script.rows)
        # Another input leads elsewhere.
        self._loose = script.edited
        # Up to which number things were created when an end was fed that nobody had asked for.
        self._unasked_at: dict[str, int] = {}
        self._announce(self._retries.get(-1))

    def run(self) -> None:
        """Feed everything that is recorded and that code has seen, in order.

        Raises:
            NonDeterminism: The code decides something else than is recorded.
        """
        ahead = False
        for number, row in enumerate(self._rows):
            ahead = is_ahead(row[0]) if row else ahead
            if not (ahead or (row and isinstance(row[0], Rewind))):
                # What leaves no event, and was decided before this commit, went out with it. What
                # was decided on something recorded ahead, or by code that is new since a retry, did
                # perhaps not: it is sent once more.
                self._run.out.forget_unrecorded()
            for item in row:
                if item is row[-1] and not isinstance(item, (Rewind, *DECIDED)):
                    self._announce(self._retries.get(number))
                self._take(item)

    def _announce(self, retry: Rewind | None) -> None:
        """Before the last thing that counts is fed: what the code decides on it is new.

        A retry follows at once, so that nothing of it is recorded. It begins under ids of its own,
        or is what was there before, from the moment of the call: the code sees these ids.
        """
        if retry is None or retry is self._announced:
            return
        self._announced = retry
        self._run.rewinds = retry.number
        self._run.calling.rewound(retry)
        self._run.children.rewound(retry)

    def go_on(self) -> None:
        """Feed what was recorded ahead, and that no code has seen: this is not replay any more.

        Raises:
            NonDeterminism: A step was called with something else, or its result does not fit.
        """
        run = self._run
        for event in self._ahead:
            if isinstance(event, StepEnded) and run.calling.as_recorded(event) is not event:
                run.differs(f"a result of step {event.step} that fits its type", "another type")
            self._take(event)

    def _take(self, item: Item) -> None:
        if isinstance(item, Rewind):
            self._retry(item)
        elif isinstance(item, Forked):
            self._fork(item)
        elif isinstance(item, DECIDED):
            self._match(item)
        else:
            self._feed(cast("Fed", item))

    # -- fed --------------------------------------------------------------------------------------

    def _feed(self, event: Fed) -> None:
        run = self._run
        ahead = is_ahead(event)
        if run.ended:
            if ahead:
                # The code ended on one that was recorded before.
                return
            raise self._stands(event)
        if isinstance(event, StepRetrying) and (
            # Attempts are counted anew where it is moved to.
            event.step not in run.calling.steps or run.out.begun(event.step) is not None
        ):
            run.out.events += 1
            return
        if isinstance(event, StepEnded):
            run.calling.strike(event.step)
            if event.step not in run.calling.steps:
                # Code that does without a step, or calls it later, may go on. Of a call that it has
                # cancelled it wants to hear nothing.
                if not run.calling.asked(event.step):
                    run.calling.unasked[event.step] = event
                    self._unasked_at[event.step] = run.loop.last_number
                run.out.events += 1
                run.at_us = max(run.at_us, event.at)
                return
            run.calling.compare(run.calling.steps[event.step], event.input)
        decided = self._first()
        if decided is not None and not ahead:
            self._refuse(event, told(decided[0]))
        if not self._apply(event):
            self._refuse(event)

    def _apply(self, event: Fed) -> bool:
        run = self._run
        if not is_ahead(event):
            run.out.forget_unrecorded()
        if run.apply(event) is None:
            return False
        run.out.events += 1
        run.advance(event.at)
        return True

    # -- decided ----------------------------------------------------------------------------------

    def _match(self, recorded: Decided) -> None:
        run = self._run
        if isinstance(recorded, Patched):
            return
        entry = None
        if isinstance(recorded, (StepSent, StepIntended)):
            entry = run.out.begun(recorded.step)
        entry = entry or self._first()
        if entry is not None and self._same(recorded, entry[0]):
            if entry is run.out.first():
                run.out.strike_first()
            else:
                run.out.strike(entry[0])
                run.out.events += 1
            self._keep(recorded)
            return
        if isinstance(recorded, (StepSent, StepIntended)) and recorded.step in run.calling.fresh:
            # It was run in a queue, or with once, and is not now: it was begun all the same.
            call = run.calling.steps[recorded.step]
            run.calling.compare(call, recorded.input)
            run.calling.fresh.pop(recorded.step)
            run.out.events += 1
            self._keep(recorded)
            return
        found = None if entry is None else entry[0]
        failed = isinstance(found, Ended) and found.status == InstanceStatus.FAILED
        self._refuse(recorded, None if found is None or failed else told(found))

    def _refuse(self, recorded: Event, found: str | None = None) -> NoReturn:
        # A step that has run and is not asked for says more than what came behind it.
        self.check_unasked()
        if found is None:
            raise self._stands(recorded)
        raise NonDeterminism(self._run.id, told(recorded), found)

    def _first(self) -> Entry | None:
        """The oldest decision that must stand in the history before anything else is fed.

        Where steps are begun is no such thing: one that ran at its flow's host when this was
        written may be run in a queue, or with ``once``, now. It is found by its name, or is begun
        when the history ends.
        """
        return self._run.out.first_other()

    def _same(self, recorded: Decided, found: Event) -> bool:
        if type(recorded) is not type(found):
            return False
        match recorded, found:
            case (StepSent(), StepSent()) | (StepIntended(), StepIntended()):
                if recorded.step != found.step:
                    return False
                call = self._run.calling.steps.get(found.step)
                if call is not None:
                    self._run.calling.compare(call, recorded.input)
                return True
            case TimerSet(), TimerSet():
                return recorded.timer == found.timer
            case ChildStarted(), ChildStarted():
                if recorded.child != found.child:
                    return False
                self._compare_child(recorded, found)
                return True
            case SignalSent(), SignalSent():
                return (recorded.number, recorded.to, recorded.name) == (
                    *(found.number, found.to, found.name),
                )
            case Ended(), Ended():
                return recorded.status == found.status
            case _:
                return False

    def _compare_child(self, recorded: ChildStarted, found: ChildStarted) -> None:
        call = self._run.children.open.get(found.child)
        if (
            call is not None
            and self._run.comparing
            and not same_input(recorded.input, found.input, call.flow.arguments)
        ):
            self._run.differs(
                told_call(recorded.child, recorded.input), told_call(found.child, found.input)
            )

    def _keep(self, recorded: Decided) -> None:
        """What is recorded stays as it was, whatever the code would say now."""
        calling, children = self._run.calling, self._run.children
        match recorded:
            case Ended():
                self._run.ending_taken = True
            case TimerSet():
                self._run.timers.keep(recorded.timer, recorded.due)
            case StepSent() if recorded.step in calling.steps:
                calling.sent(calling.steps[recorded.step], JobId(recorded.job))
            case StepIntended() if recorded.step in calling.steps:
                calling.steps[recorded.step].intended = True
            case ChildStarted() if recorded.child in children.open:
                children.named(children.open[recorded.child], recorded.id)
            case _:
                pass

    # -- operators --------------------------------------------------------------------------------

    def _retry(self, rewind: Rewind) -> None:
        run, calling, retried = self._run, self._run.calling, rewind.event
        run.rewinds = rewind.number
        run.out.events += 1
        self._announce(rewind)
        # The end of the flow cancelled its jobs, and took with it the children that were not to
        # outlive it: nobody would ever tell of them. What the code decided here and is not in the
        # history either is new, or is void; whichever it is, it begins under an id of its own.
        steps = {
            identity
            for identity, call in calling.steps.items()
            if call.job is not None
            or identity in rewind.failed_steps
            or (call.intended and retried.rerun_unknown)
        }
        run.children.go_on_with(rewind)
        children = {
            identity
            for identity, call in run.children.open.items()
            if not call.abandon or identity in rewind.failed_children
        }
        for decided, effect in list(run.out):
            if isinstance(decided, (StepSent, StepIntended)) and decided.step in calling.steps:
                run.out.strike(decided)
                steps.add(decided.step)
            elif isinstance(decided, ChildStarted):
                children.discard(decided.child)
                former = run.children.former
                if effect is not None and former is not None and not former.may_start(decided):
                    run.out.strike(decided)
                    children.add(decided.child)
        of = {id(child.ended): child for child in rewind.children if child.ended is not None}
        for event in rewind.kept:
            self._salvage(event, of.get(id(event)))
        calling.alike = None
        if run.ended:
            # Its code comes to the same end.
            return
        run.advance(retried.at)
        for call in [call for step, call in calling.steps.items() if step in steps]:
            calling.begin_again(call)
        for child in [call for name, call in run.children.open.items() if name in children]:
            run.children.start_again(child)

    def _salvage(self, event: Event, child: VoidChild | None) -> None:
        """Feed what has happened in a part that is void, without forgetting what is to be sent."""
        run = self._run
        if isinstance(event, Forked):
            self._compare_after(event)
            return
        if run.ended or isinstance(event, Patched):
            return
        if isinstance(event, StepEnded):
            fed = run.calling.salvage(event)
        elif isinstance(event, ChildEnded):
            fed = run.children.salvage(event, child)
        else:
            # An update whose handler the code sets up only later finds none.
            fed = run.apply(cast("Fed", event))
        run.out.events += 1
        if fed is not None:
            run.advance(event.at)

    def _compare_after(self, event: Forked) -> None:
        run = self._run
        self._forks_left -= 1
        run.comparing = self._forks_left == 0
        if run.comparing:
            run.copied = None
            if run.children.former is not None:
                run.children.former.copied()
        run.out.events += 1
        run.at_us = max(run.at_us, event.at)

    def _fork(self, event: Forked) -> None:
        run = self._run
        self._compare_after(event)
        if run.ended:
            # The copy has no end of its own, and its code comes to one.
            return
        # What the other flow waits for is told to it, and not to its copy; and what goes on is its.
        run.children.copied()
        run.advance(event.at)
        new = {origin_of(decided) for decided, _ in run.out}
        for call in list(run.calling.steps.values()):
            if call.job is not None and f"step/{call.identity}" not in new:
                run.calling.send(call)
        for child in list(run.children.open.values()):
            if f"child/{child.identity}" not in new:
                run.children.start_again(child)

    # -- afterwards -------------------------------------------------------------------------------

    def check_unasked(self) -> None:
        """Refuse code that asks for something new where it did without a step that was run.

        It may be the same by another name, and would run a second time. What was asked for later
        than that is not in its place: code that only does without some may go on.

        Raises:
            NonDeterminism: There is such a step.
        """
        run = self._run
        if self._loose or not run.calling.unasked:
            return
        new = min(self._begun_now(), default=None)
        if new is None:
            return
        for missed in run.calling.unasked:
            if new[0] <= self._unasked_at[missed]:
                raise NonDeterminism(
                    run.id,
                    f"step {missed}, which has run",
                    f"{new[1]}, which has not run (a renamed step would run a second time)",
                )

    def _begun_now(self) -> Iterator[tuple[int, str]]:
        """The calls that the history does not know, each with its number.

        What a retry begins again is none of them: it has the name and the input that it had.
        """
        calling, children = self._run.calling, self._run.children
        known = calls_in([*chain.from_iterable(self._rows), *self._ahead])
        for step, call in calling.fresh.items():
            if digest_of(call.input) not in known.get(f"step/{step}", ()):
                yield call.number, f"step {step}"
        for decided, _ in self._run.out:
            if isinstance(decided, (StepSent, StepIntended)):
                call = calling.steps.get(decided.step)
            elif isinstance(decided, ChildStarted):
                call = children.open.get(decided.child)
            else:
                continue
            origin = origin_of(decided)
            assert origin is not None
            if call is not None and digest_of(decided.input) not in known.get(origin, ()):
                yield call.number, origin.replace("/", " ", 1)

    def tell_unasked(self) -> None:
        """Say that the history holds steps that the code did not ask for again."""
        unasked = self._run.calling.unasked
        if unasked:
            self._run.log.warning(
                "flow %r (%s) no longer calls steps that are in its history: %s",
                *(self._run.id, self._run.flow.name, ", ".join(sorted(unasked)[:10])),
                extra={"flow": self._run.id},
            )

    def _stands(self, recorded: Event) -> NonDeterminism:
        """The error of code that stands somewhere else than the history says."""
        run = self._run
        if run.code.ending is not None:
            return run.code.ending.unexpected(run.id, told(recorded))
        waits = [*run.calling.steps, *(f"child {name}" for name in run.children.open)]
        found = f"a wait for {', '.join(waits[:10])}" if waits else "no such call"
        return NonDeterminism(run.id, told(recorded), found)


def _retries_after(rows: Sequence[Sequence[Item]]) -> dict[int, Rewind]:
    """The retry that follows at once upon each row, by the row's number; -1 is the beginning."""
    retries: dict[int, Rewind] = {}
    before = -1
    for number, row in enumerate(rows):
        if not row:
            continue
        first = row[0]
        if isinstance(first, Rewind):
            retries[before] = first
        before = number
    return retries
