"""Operating: what is done to one flow from outside, beside sending to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.errors import Conflict, FlowNotFound, UsageError
from holdfast.flows import letters
from holdfast.flows.arguments import text_of
from holdfast.flows.events import (
    Ended,
    Failure,
    Rewound,
    StepEnded,
    StepIntended,
    StepSent,
    decode_events,
    encode_events,
)
from holdfast.flows.failures import TERMINATED, encode_failure
from holdfast.flows.flow import RETENTION_S
from holdfast.flows.recording import read_rows, record_flow, replayed
from holdfast.flows.replaying import fork_history
from holdfast.flows.starting import input_of
from holdfast.model.instance import (
    FINAL,
    HistoryRow,
    InstanceStatus,
    NewInstance,
    Opened,
)
from holdfast.names import InstanceId, check_key
from holdfast.work.repeating import until_known

if TYPE_CHECKING:
    from holdfast.flows.desk import FlowDesk

RETENTION_US = round(RETENTION_S * 1e6)


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
                f"flow {record.name!r} is not defined here, and {self._id!r} does not run here: "
                "ask where its app is connected"
            )
        with replayed(flow, await record_flow(self._store, self._id)) as run:
            return run.answering.query(name, *args)

    async def terminate(self, reason: str) -> None:
        """End the flow at once, and the children that are to end with it, in one step."""
        record = await self._desk.record(self._id)
        failure = Failure(TERMINATED, reason)
        below = Failure(TERMINATED, f"with {self._id!r}, which started it: {reason}")
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
        self._check(opened, "terminated: it has ended")

    async def suspend(self) -> None:
        """Let it begin nothing new."""
        opened = await until_known(self._desk.runtime, lambda _: self._store.suspend(self._id))
        self._check(opened, "suspended: it has ended")

    async def resume(self) -> None:
        """Let it go on."""
        opened = await until_known(self._desk.runtime, lambda _: self._store.resume(self._id))
        self._check(opened, "resumed: it has ended")

    async def retry(self) -> None:
        """Let a failed flow go on from before the step that failed, a terminated one from here."""
        record = await self._desk.record(self._id)
        if record.status not in FINAL or record.status is InstanceStatus.COMPLETED:
            raise Conflict(f"flow {self._id!r} is {record.status}; only one that failed is retried")
        rows = await read_rows(self._store, self._id, after=record.base)
        terminated = record.status is InstanceStatus.TERMINATED
        to = record.version if terminated else _before_failure(rows, record.base)
        at = rows[-1].at_us if rows else record.began_at_us
        events = encode_events((Rewound(at=at, to=to),))
        opened = await until_known(
            self._desk.runtime,
            lambda _: self._store.reopen(self._id, version=record.version + 1, events=events),
        )
        self._check(opened, "retried: it was changed meanwhile")

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
        cut = at if isinstance(at, int) else _before_step(rows, at)
        kept = [row for row in rows if row.version <= cut]
        at_us = kept[-1].at_us if kept else record.began_at_us
        history = fork_history(rows, id=self._id, base=record.base, at=cut, at_us=at_us)
        flow = self._desk.flows.get(record.name)
        text = record.input
        if isinstance(input, Mapping):
            text = input_of(record.name, flow, (dict(input),))
        elif input is not None:
            if flow is None:
                raise UsageError(
                    f"flow {record.name!r} is not defined here: give its arguments by name"
                )
            text = text_of(flow.arguments.encode(tuple(input), {}))
        runtime = self._desk.runtime
        new = NewInstance(
            id=InstanceId(runtime.ordered_id() if id is None else check_key(id)),
            kind="flow",
            name=record.name,
            input=text,
            request=runtime.new_id(),
            history=history,
            retention_us=RETENTION_US if flow is None else round(flow.retention_s * 1e6),
            attributes=record.attributes,
            headers=record.headers,
        )
        await self._desk.starter.start(new)
        return new.id

    def _check(self, opened: Opened, why: str) -> None:
        if opened is Opened.NOT_FOUND:
            raise FlowNotFound(self._id)
        if opened is Opened.REFUSED:
            raise Conflict(f"flow {self._id!r} cannot be {why}")


def _before_failure(rows: Sequence[HistoryRow], base: int) -> int:
    """The version to go back to: the one before the last step that failed, or before the end."""
    end = None
    for row in reversed(rows):
        for event in decode_events(row.events):
            if isinstance(event, StepEnded) and event.error is not None:
                return row.version - 1
            if isinstance(event, Ended) and end is None:
                end = row.version - 1
    return base if end is None else end


def _before_step(rows: Sequence[HistoryRow], step: str) -> int:
    """The version before the one in which the step was begun or ended."""
    for row in rows:
        for event in decode_events(row.events):
            if isinstance(event, StepEnded | StepSent | StepIntended) and event.step == step:
                return row.version - 1
    raise UsageError(f"no step {step!r} is recorded; `history()` shows what is")
