"""Operating: what is done to one flow from outside, beside sending to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from outlive.errors import Conflict, FlowExists, FlowNotFound, HistoryTooNew, UsageError
from outlive.flows import letters
from outlive.flows.attributes import unstuck
from outlive.flows.events import (
    ChildEnded,
    Event,
    Failure,
    Forked,
    StepEnded,
    StepIntended,
    StepSent,
    decode_events,
    encode_events,
    without_attempts,
)
from outlive.flows.failures import TERMINATED, encode_failure
from outlive.flows.flow import RETENTION_S, Flow
from outlive.flows.orphans import cancel_jobs
from outlive.flows.recording import read_rows, record_flow, replayed
from outlive.flows.retrying import (
    Place,
    began_at_us,
    check_unheard,
    places,
    retry_of,
    undone_in,
)
from outlive.flows.rewinding import Rewind, fork_history
from outlive.flows.starting import input_of
from outlive.model.instance import (
    FINAL,
    LETTERS_MAX,
    Entry,
    HistoryRow,
    InstanceRecord,
    InstanceStatus,
    Letter,
    NewInstance,
    Opened,
)
from outlive.names import InstanceId, check_key
from outlive.work.repeating import until_known

if TYPE_CHECKING:
    from outlive.flows.desk import FlowDesk

RETENTION_US = round(RETENTION_S * 1e6)


# Steps that an error names; a reader has found his by then, or looks into the history.
_STEPS_SHOWN = 20


class Operations:
    """What operators do to the flow of one id."""

    __slots__ = ("_desk", "_id", "_store")

    def __init__(self, desk: FlowDesk, id: InstanceId) -> None:  # noqa: A002 - it is one
        self._desk = desk
        self._store = desk.store
        self._id = id

    async def query(self, name: str, args: Sequence[Any]) -> Any:
        """Ask the flow's code."""
        host = self._desk.host
        live = None if host is None else host.home.lives.get(self._id)
        if live is not None and live.ready:
            return live.run.answering.query(name, *args)
        record = await self._desk.record(self._id)
        flow = self._desk.flows.get(record.name)
        if flow is None:
            raise UsageError(
                f"flow {record.name!r} is not defined in this app, and {self._id!r} does not run "
                "on this host: send the query from a host that has its app"
            )
        recording = await record_flow(self._store, self._id)
        with replayed(flow, recording, logs=self._desk.logs) as run:
            return run.answering.query(name, *args)

    async def terminate(self, reason: str) -> None:
        """End the flow at once, and the children that are to end with it, in one step.

        The jobs of their steps are cancelled after it, when nobody can decide on more.
        """
        record = await self._desk.record(self._id)
        failure = Failure(TERMINATED, reason)
        below = Failure(TERMINATED, f"together with its parent {self._id!r}: {reason}")
        told = (
            ()
            if record.parent is None
            else (letters.child_ended(record.parent, self._id, error=failure),)
        )
        opened = await until_known(
            self._desk.runtime,
            lambda _: self._store.terminate(
                self._id,
                outcome=encode_failure(failure),
                sends=told,
                below=encode_failure(below),
            ),
        )
        self._check(opened, "terminated: the flow has already ended")
        await cancel_jobs(self._desk, self._id, f"flow {self._id!r} was terminated: {reason}")

    async def suspend(self) -> None:
        """Let it begin nothing new."""
        opened = await until_known(self._desk.runtime, lambda _: self._store.suspend(self._id))
        self._check(opened, "suspended: the flow has already ended")

    async def resume(self) -> None:
        """Let it go on."""
        opened = await until_known(self._desk.runtime, lambda _: self._store.resume(self._id))
        self._check(opened, "resumed: the flow has already ended")

    async def retry(self, *, rerun_unknown: bool) -> None:
        """Let a flow that did not complete go on from before what ended it."""
        record = await self._desk.record(self._id)
        if record.status not in FINAL or record.status is InstanceStatus.COMPLETED:
            raise Conflict(
                f"flow {self._id!r} is {record.status}: only a failed, cancelled or terminated "
                "flow can be retried"
            )
        await self._check_unheard(record)
        rows = await read_rows(self._store, self._id, after=record.base)
        events = encode_events((retry_of(record, rows, rerun_unknown=rerun_unknown),))
        opened = await until_known(
            self._desk.runtime,
            lambda _: self._store.reopen(self._id, version=record.version + 1, events=events),
        )
        self._check(
            opened, "retried: another request changed the flow at the same time; read it again"
        )

    async def _check_unheard(self, record: InstanceRecord) -> None:
        """Refuse to retry a child whose end its parent knows or brought about, if that is there."""
        id_ = record.parent
        if id_ is None:
            return
        # In this order: a letter that is read in between is in the history then, and a parent that
        # begins anew in between says so.
        letters = await self._unread(id_)
        rows = await read_rows(self._store, id_, after=0)
        parent = await until_known(self._desk.runtime, lambda _: self._store.get(id_))
        if parent is not None:
            check_unheard(record, parent, rows, letters)

    async def _unread(self, id_: InstanceId) -> list[Letter]:
        """All letters in the mailbox of a flow."""
        found: list[Letter] = []
        while True:
            after = found[-1].number if found else 0
            page = await self._store.letters(id_, after=after, limit=LETTERS_MAX)
            found += page
            if len(page) < LETTERS_MAX:
                return found

    async def fork(
        self,
        *,
        at: int | str,
        id: str | None,  # noqa: A002 - it is one
        input: Mapping[str, Any] | Sequence[Any] | None,  # noqa: A002
    ) -> InstanceId:
        """Start a new flow from a part of this one's history."""
        record = await self._desk.record(self._id)
        rows = await read_rows(self._store, self._id, after=record.base)
        cut, more = _cut(rows, at)
        kept = [row for row in rows if row.version <= cut]
        at_us = kept[-1].at_us if kept else began_at_us(record)
        flow = self._desk.flows.get(record.name)
        text = record.input if input is None else _input(record.name, flow, input)
        mark = Forked(
            at=at_us,
            id=self._id,
            version=cut,
            base=record.base,
            edited=text != record.input,
        )
        history = fork_history(rows, mark, more=more)
        if isinstance(at, str):
            # It begins with its first attempt, whatever became of those of the other flow.
            history = tuple(without_attempts(each, at) for each in history)
        runtime = self._desk.runtime
        new = NewInstance(
            id=InstanceId(
                runtime.ordered_id() if id is None else check_key(id, "the id of a flow")
            ),
            kind="flow",
            name=record.name,
            input=text,
            # The same copy, asked for again after a lost reply, is the same request.
            request=runtime.new_id() if id is None else _request(self._id, text, history),
            history=history,
            retention_us=RETENTION_US if flow is None else round(flow.retention_s * 1e6),
            attributes=unstuck(record.attributes),
            headers=record.headers,
        )
        undone = _undone_for(record, rows, history)
        (started,) = await self._desk.starter.submit((new,))
        if started.entry is not Entry.CREATED:
            raise FlowExists(new.id, started.name, new.name)
        if undone is not None:
            self._desk.log.warning(
                "flow %s is a fork of %s, which %s when it ended: the fork treats all steps "
                "before its start as done; if one of them was undone, terminate the fork, and "
                "fork from before the first undone step",
                *(new.id, self._id, undone),
                extra={"flow": new.id},
            )
        return new.id

    def _check(self, opened: Opened, why: str) -> None:
        if opened is Opened.NOT_FOUND:
            raise FlowNotFound(self._id)
        if opened is Opened.REFUSED:
            raise Conflict(f"flow {self._id!r} cannot be {why}")


def _request(flow: InstanceId, text: str, history: Sequence[str]) -> str:
    """What tells a copy with this input from all others."""
    said = msgspec.json.encode((flow, text, *history))
    return f"fork/{blake2b(said, digest_size=16).hexdigest()}"


def _undone_for(
    record: InstanceRecord, rows: Sequence[HistoryRow], history: Sequence[str]
) -> str | None:
    """What a saga of a flow has undone, as is told of a copy that takes anything for done."""
    kept = (event for text in history for event in decode_events(text))
    if not any(isinstance(event, (StepEnded, ChildEnded)) for event in kept):
        return None
    try:
        return undone_in(record, rows)
    except HistoryTooNew:
        # What is copied can be read; of the rest nothing is known here.
        return None


def _cut(rows: Sequence[HistoryRow], at: int | str) -> tuple[int, int]:
    """Up to which version a copy goes, and how many events of the next commit it has."""
    if isinstance(at, str):
        return _before_step(rows, at)
    if not _is_version(at):
        raise UsageError(
            f"at= must be a version or the identity of a step such as 'pay#0', not {at!r}"
        )
    return at, 0


def _is_version(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _before_step(rows: Sequence[HistoryRow], step: str) -> tuple[int, int]:
    """The place before the one at which the step was begun or ended; what is void comes last."""
    void = [
        Place(row.version, index, event)
        for row in rows
        for index, event in enumerate(decode_events(row.events))
    ]
    for place in (*places(rows), *void):
        item = place.item
        if isinstance(item, StepEnded | StepSent | StepIntended) and item.step == step:
            return place.version - 1, place.index
        if isinstance(item, Rewind) and any(_is_end(event, step) for event in item.kept):
            raise UsageError(
                f"step {step!r} ended in a part of the history that a retry discarded, but its "
                "result was kept: a fork cannot begin at this step; give a version that contains "
                f"it, such as {place.version}"
            )
    known = sorted({item.step for item in _of_steps(rows)})
    shown = ", ".join(known[:_STEPS_SHOWN]) or "none"
    more = ", …" if len(known) > _STEPS_SHOWN else ""
    raise UsageError(f"the history has no step {step!r}; known steps: {shown}{more}")


def _of_steps(rows: Sequence[HistoryRow]) -> Iterator[StepEnded | StepSent | StepIntended]:
    for row in rows:
        for event in decode_events(row.events):
            if isinstance(event, StepEnded | StepSent | StepIntended):
                yield event


def _is_end(event: Event, step: str) -> bool:
    return isinstance(event, StepEnded) and event.step == step


def _input(name: str, flow: Flow[..., Any] | None, given: Mapping[str, Any] | Sequence[Any]) -> str:
    """The input of a copy, from arguments by name or by position."""
    if isinstance(given, Mapping):
        return input_of(name, flow, (dict(given),), {})
    if not _is_sequence(given):
        raise UsageError(
            f"input= must be a mapping by name or a sequence of arguments, not {given!r}"
        )
    if flow is None:
        raise UsageError(f"flow {name!r} is not defined in this app: give its arguments by name")
    return input_of(flow, flow, given, {})
