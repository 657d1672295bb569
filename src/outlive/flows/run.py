"""``FlowRun``: one flow in memory. Fed what happened, it runs the flow's code to its next wait.

Pure: no I/O, no clock, no task on the host's loop. What the code decides is collected until it is
taken; nothing of it takes effect here. Fed the same things in the same order it decides the same,
which is what replay stands on.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, cast

import msgspec

from outlive.errors import NonDeterminism
from outlive.flows.answering import Answering
from outlive.flows.arguments import Arguments
from outlive.flows.asking import Asking
from outlive.flows.calling import Calling
from outlive.flows.chances import Chances
from outlive.flows.children import Children
from outlive.flows.code import FlowCode
from outlive.flows.decision import Decision, RetryDue
from outlive.flows.ending import Ending
from outlive.flows.events import (
    CancelRequested,
    ChildEnded,
    Ended,
    Fed,
    SignalReceived,
    StepEnded,
    StepRetrying,
    TimerFired,
    UpdateReceived,
)
from outlive.flows.flow import Flow
from outlive.flows.inbox import Inbox
from outlive.flows.letters import child_ended
from outlive.flows.loop import ErrorHandler, FlowLoop
from outlive.flows.numbered import is_awaited
from outlive.flows.outbox import Outbox
from outlive.flows.reading import event_of
from outlive.flows.replay import Replay
from outlive.flows.replaying import Copied, same_input
from outlive.flows.taking import decision_of
from outlive.flows.timers import Timers
from outlive.model.instance import HistoryRow, InstanceStatus, Letter
from outlive.names import InstanceId
from outlive.serialization import decode_plain
from outlive.telemetry import UNBOUND, HostLogs

# Calls of a flow that nobody awaited, of which a line in the log names so many.
_UNAWAITED_SHOWN = 10


class Heard(NamedTuple):
    """What came of a run's code until it was dropped."""

    out: Outbox
    timers: Timers
    calling: Calling
    children: Children
    custom: str | None
    attributes: str


class FlowRun:
    """One incarnation of one run of a flow. ``begin`` it, ``feed`` it, ``take`` what it decided."""

    __slots__ = (
        "_attributes_before",
        "_begun",
        "_custom_before",
        "_held",
        "_on_error",
        "answering",
        "asking",
        "at_us",
        "attributes",
        "base",
        "calling",
        "chances",
        "children",
        "closed",
        "code",
        "comparing",
        "copied",
        "custom",
        "difference",
        "ended",
        "ending_taken",
        "flow",
        "headers",
        "id",
        "inbox",
        "input",
        "logs",
        "loop",
        "out",
        "parent",
        "replaying",
        "rewinds",
        "timers",
    )

    # There from ``begin`` on.
    loop: FlowLoop
    code: FlowCode
    chances: Chances

    def __init__(  # noqa: PLR0913 - what a row of a flow says
        self,
        flow: Flow[..., Any],
        *,
        id: InstanceId,  # noqa: A002 - it is one
        base: int,
        input: str,  # noqa: A002 - it is one
        began_at_us: int,
        headers: str = "{}",
        custom: str | None = None,
        attributes: str = "{}",
        parent: InstanceId | None = None,
        on_error: ErrorHandler,
        logs: HostLogs = UNBOUND,
    ) -> None:
        self.flow = flow
        self.id = id
        self.base = base
        self.input = input
        self.headers = headers
        self.parent = parent
        self.at_us = began_at_us
        self.replaying = False
        self.comparing = True
        # While a part is replayed that was copied from another flow.
        self.copied: Copied | None = None
        self.rewinds = 0
        self.out = Outbox()
        self.timers = Timers()
        self.calling = Calling(self)
        self.children = Children(self)
        self.asking = Asking(self)
        self.answering = Answering(self)
        self.inbox = Inbox(self)
        self.custom: str | None = custom
        self.attributes: str = attributes
        self._custom_before = custom
        self._attributes_before: str = attributes
        self.ending_taken = False
        self.difference: NonDeterminism | None = None
        self._on_error = on_error
        self.logs = logs
        self._begun = False
        # Whether its code waits for the first thing that is fed.
        self._held = False
        # Whether it was dropped. It has no parts then.
        self.closed = False
        self.ended = False
        """Whether nothing is to be fed any more: the flow, or this run of it, has ended."""

    def __repr__(self) -> str:
        return f"<FlowRun {self.flow.name!r} {self.id!r}>"

    # -- the seam to the host ---------------------------------------------------------------------

    def begin(self, rows: Sequence[HistoryRow] = (), *, hold: bool = False) -> None:
        """Run the code to its first wait, then through what the history says. Called once.

        ``hold``: begin with the first thing that is fed. If that is a wish to cancel, none of the
        code ever runs.

        Raises:
            NonDeterminism: The code does something else than the history says. Drop the run.
            HistoryTooNew: The history was written by a newer release. Drop the run.
        """
        replay = Replay(self, rows) if rows else None
        seed = None if replay is None else replay.seed
        self.chances = Chances(*(seed or (self.id, self.base)))
        first = zlib.crc32(self.chances.seed.encode())
        self.loop = FlowLoop(self.at_us / 1e6, self._unobserved, first=first)
        self.loop.owner = self
        if replay is not None:
            self.replaying = replay.ran
            for event in replay.carried:
                self.out.events += 1
                self.inbox.receive(event)
        self.code = FlowCode(self, self.loop)
        self._begun = True
        self._held = hold or (replay is not None and replay.unbegun)
        if not self._held:
            self.code.activate()
        if replay is not None and replay.any:
            replay.run()
            self.replaying = False
            self.out.replayed()
            if self.difference is not None:
                raise self.difference
            replay.go_on()
            replay.check_unasked()
            replay.tell_unasked()
            self.children.replayed()

    def feed(self, event: Fed | RetryDue) -> bool:
        """Tell the code one thing that happened, and let it run to its next wait.

        False if nobody waits for it (a step or a timer that was cancelled): nothing is recorded.

        Raises:
            NonDeterminism: The code asked for a recorded step with another input. Drop the run.
        """
        if self.ended or self.closed:
            return False
        if self._held and not isinstance(event, CancelRequested):
            self._held = False
            self.code.activate()
        # The usual one first: each step that ends comes here.
        recorded = self.calling.step_ended(event) if type(event) is StepEnded else self.apply(event)
        if recorded is None:
            return False
        # By its type: to ask a class of msgspec's for its instances costs as much as a call.
        if type(recorded) is not RetryDue:
            recorded = cast("Fed", recorded)
            self.out.put(recorded)
            self.at_us = max(self.at_us, recorded.at)
            self.code.activate()
        return True

    def read(self, letter: Letter, at_us: int) -> Fed | None:
        """What a letter says, to be fed; ``None`` if it is none of this run's business."""
        return event_of(self, letter, at_us)

    def settle_unknown(self, at_us: int) -> None:
        """After a take-over: tell the code of each step with ``once`` that nobody knows of.

        For the owner, after ``begin``; not where a history is only looked at.
        """
        for event in self.calling.unknown(at_us):
            self.feed(event)

    def children_taken(self, ids: Iterable[InstanceId], at_us: int) -> None:
        """Tell the code of children that were not started, because others have their ids."""
        for event in self.children.taken(ids, at_us):
            self.feed(event)

    def has_attributes(self, attributes: str) -> None:
        """Say which attributes the flow has; they are none of its code's decisions."""
        self.attributes = self._attributes_before = attributes

    def take(self) -> Decision:
        """What was recorded and decided since this was last asked."""
        if self.closed:
            return Decision()
        out = self.out
        if (
            not self.ended
            and self.custom is self._custom_before
            and self.attributes is self._attributes_before
        ):
            # The usual ones: a step has ended, or the flow begins and there is nothing to write.
            if out.urgent:
                return decision_of(self, None, custom=None, attributes=None)
            if not (out.sends or out.replies or out.stopped or out.stopped_jobs):
                return Decision(steps=tuple(self.calling.tasks()))
        custom = None if self.custom == self._custom_before else self.custom
        attributes = None if self.attributes == self._attributes_before else self.attributes
        ending = self.code.ending if self.ended and not self.ending_taken else None
        decision = decision_of(self, ending, custom=custom, attributes=attributes)
        if decision.durable:
            self.ending_taken = ending is not None or self.ending_taken
            self._custom_before = self.custom
            self._attributes_before = self.attributes
        return decision

    @property
    def due_at_us(self) -> int | None:
        """When the first timer or retry is due; nothing has to be done before by the clock."""
        return None if self.ended or not self.timers else self.timers.next_us

    def due(self, now_us: int, *, by_us: int | None = None) -> list[TimerFired | RetryDue]:
        """What has come due now, or had ``by_us``, in order, to be fed. It stays so until it is."""
        return [] if self.ended else self.timers.due(now_us, by_us=by_us)

    @property
    def waiting(self) -> bool:
        """Whether only timers, letters, jobs or children can bring it further."""
        return not self.calling.fresh and not self.calling.running

    @property
    def expects(self) -> bool:
        """Whether anything is under way, or may come, that somebody in its code waits for."""
        if self.loop.timing or self.answering.updates:
            return True
        signals = chain.from_iterable(waits.values() for waits in self.inbox.waiting.values())
        calls = chain(self.calling.steps.values(), self.children.open.values(), signals)
        return any(map(is_awaited, calls))

    @property
    def unwritten(self) -> bool:
        """Whether its code has decided something that was not taken yet."""
        out = self.out
        return out.urgent or bool(out.sends or out.replies)

    def close(self) -> None:
        """Drop the code, wherever it stands; what it asks for meanwhile raises ``Evicted``.

        Nothing is decided any more. Repeatable.
        """
        if self.closed:
            return
        self.closed = True
        if self._begun:
            self.code.close()
            del self.code, self.loop
        # Its parts know it, and it knows them: cut apart, all is freed now, and not by a search for
        # cycles, which short flows would spend a good part of their time on.
        del self.calling, self.children, self.asking, self.answering, self.inbox

    def hush(self) -> Heard:
        """Let whatever the code asks for from now on lead to nothing; what was there before."""
        heard = Heard(
            self.out, self.timers, self.calling, self.children, self.custom, self.attributes
        )
        self.out = Outbox()
        self.timers = Timers()
        self.calling = Calling(self)
        self.children = Children(self)
        return heard

    def hear(self, heard: Heard) -> None:
        """Go on with what there was before."""
        self.out, self.timers, self.calling, self.children = heard[:4]
        self.custom, self.attributes = heard[4:]

    # -- what happened, told to the code ----------------------------------------------------------

    def apply(self, event: Fed | RetryDue) -> Fed | RetryDue | None:
        """Make ready what follows from an event, without running it; what to record, if any."""
        match event:
            case StepEnded():
                return self.calling.step_ended(event)
            case TimerFired():
                number = self.timers.fired(event.timer)
                if number is None:
                    return None
                self.loop.fire(number, event.at / 1e6)
            case SignalReceived():
                self.inbox.receive(event)
            case StepRetrying():
                return self.calling.step_not_ended(event)
            case ChildEnded():
                return self.children.ended(event)
            case UpdateReceived():
                return event if self.answering.update(event) else None
            case CancelRequested():
                return self._cancel(event)
            case RetryDue():
                self.calling.retry_due(event.step)
        return event

    def _cancel(self, event: CancelRequested) -> CancelRequested | None:
        if self._held:
            # A task that is cancelled before its first turn never runs its body.
            self._held = False
            event = msgspec.structs.replace(event, unbegun=True)
        return event if self.code.cancel(event.reason) else None

    def advance(self, at_us: int) -> None:
        """Let time move on, and the code run to its next wait."""
        self.at_us = max(self.at_us, at_us)
        self.code.activate()

    def finish(self, ending: Ending) -> None:
        """The code has ended, and all its tasks: stop what it began, and tell who waits."""
        self.ended = True
        if self.answering.updating:
            self.answering.refuse_unfinished(anew=ending.restart is not None)
        begun = None if ending.failure is None else self.calling.begun()
        if ending.status is InstanceStatus.COMPLETED and (
            self.calling.steps or self.children.open or self.inbox.waiting
        ):
            self._tell_unawaited()
        if self.calling.steps:
            self.calling.end()
        if self.children.open:
            self.children.end(cancel_them=ending.restart is None)
        if ending.restart is not None:
            return
        assert ending.status is not None
        if ending.failure is None:
            ended = Ended(at=self.at_us, status=ending.status)
        else:
            undid = self.asking.undid
            ended = Ended(
                at=self.at_us, status=ending.status, by=ending.by, undid=undid, begun=begun
            )
        self.out.put(ended)
        if self.parent is not None:
            told = child_ended(self.parent, self.id, result=ending.result, error=ending.failure)
            self.out.sends.append(told)

    def _tell_unawaited(self) -> None:
        """Say what the code began and never awaited: it is not done, or not to its end."""
        steps = [f"step {identity}" for identity in self.calling.steps]
        children = [f"child {name}" for name, it in self.children.open.items() if not it.abandon]
        signals = [f"signal {name!r}" for name in self.inbox.unawaited]
        left = [*steps, *children, *signals]
        if left:
            shown = ", ".join(left[:_UNAWAITED_SHOWN])
            words = f"the flow returned without awaiting {shown}: await each call, or cancel it"
            self._unobserved({"message": words})

    def _unobserved(self, context: dict[str, Any]) -> None:
        if not self.closed and not self.replaying:
            self._on_error({**context, "flow": self.id})

    @property
    def log(self) -> logging.Logger:
        """Where what is told of it goes: its records say which host it runs on."""
        return self.logs.logger("outlive.flows")

    def differs(self, expected: str, found: str) -> None:
        """Note that the code does something else than the history says; the first counts."""
        if self.difference is None:
            self.difference = NonDeterminism(self.id, expected, found)

    # -- for what the code asks for ---------------------------------------------------------------

    def same(self, recorded: msgspec.Raw, found: msgspec.Raw, arguments: Arguments) -> bool:
        """Whether an input of a part that is void is the one of a call."""
        if same_input(recorded, found, arguments):
            return True
        return self.copied is not None and self.copied.is_same(recorded, found)

    @property
    def loose(self) -> bool:
        """Whether inputs of a part that is void may be others, because a copy was given another."""
        return self.copied is not None and self.copied.edited

    @property
    def epoch(self) -> str:
        """What sets ids of jobs and children apart from those of earlier runs and attempts."""
        return f"@{self.base}.{self.rewinds}" if self.rewinds else self.lap

    @property
    def ancestry(self) -> tuple[str, str]:
        """Whose children those are that the code starts, and their epoch.

        What is decided while a part is replayed that was copied must be what that flow decided.
        """
        if self.copied is None:
            return self.id, self.epoch
        base = self.copied.base
        lap = f"@{base}" if base else ""
        return self.copied.origin, f"@{base}.{self.rewinds}" if self.rewinds else lap

    @property
    def lap(self) -> str:
        """What sets ids apart from those of earlier runs, whatever was retried in this one."""
        return f"@{self.base}" if self.base else ""

    def headers_with(self, **more: str) -> str:
        """The headers of this flow and some more."""
        mine: Any = decode_plain(self.headers)
        return msgspec.json.encode({**mine, **more}).decode()
