"""``FlowHandle``: one flow, as anybody outside of it reaches it. Making one asks nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from outlive.errors import FlowEnded, FlowNotFound, InvalidPayload, MailboxFull, StoreError
from outlive.flows import letters
from outlive.flows.desk import within
from outlive.flows.failures import decode_failure, flow_error, update_error
from outlive.flows.flow import Flow
from outlive.flows.info import FlowCommit, FlowInfo, commit_of, info_of, running_of
from outlive.flows.operating import Operations
from outlive.flows.recording import read_rows
from outlive.flows.waiting import End, Waiter
from outlive.model.instance import FINAL, MAILBOX_MAX, Entry, InstanceStatus, Message, Sent
from outlive.model.options import Duration, seconds
from outlive.names import InstanceId, check_key, check_reason
from outlive.runtime.outside import check_outside
from outlive.serialization import codec_of, decode_plain
from outlive.work.repeating import until_known

if TYPE_CHECKING:
    from outlive.flows.desk import FlowDesk

R = TypeVar("R")
T = TypeVar("T")

# Whoever has waited for as long as they wanted waits so much longer at most for a last look, which
# finds what was there already, however short the wait was, and tells the others why it was in vain.
_LAST_LOOK_S = 0.5


class FlowHandle(Generic[R]):
    """A flow of this id. Any process may have one, whoever started the flow.

    ``entry`` says what starting it did: ``created``, or ``existing`` where the id had been started
    before. A fork is ``created`` however often this very copy is asked for. ``None`` of a handle
    that nothing was started for.
    """

    __slots__ = ("_awaited", "_desk", "_flow", "entry", "id")

    def __init__(
        self,
        desk: FlowDesk,
        id: InstanceId,  # noqa: A002 - it is one
        flow: Flow[..., Any] | None,
        awaited: Waiter | None = None,
        entry: Entry | None = None,
    ) -> None:
        self._desk = desk
        self._flow = flow
        # Told of its end without asking, if it was started here.
        self._awaited = awaited
        self.id = id
        self.entry = entry

    def __repr__(self) -> str:
        return f"<FlowHandle {self.id!r}>"

    async def result(self, timeout: Duration | None = None) -> R:
        """Wait for the end of the flow, and return what its code returned.

        Raises:
            FlowFailed, FlowCancelled, FlowTerminated: How else it ended, by its status.
            TimeoutError: It did not end in time. It goes on. A timeout of 0 looks once.
            FlowNotFound: There is none of this id, or its retention has ended.
            InvalidPayload: The result does not fit the type that the flow has here.
            StoreUnavailable, OutcomeUnknown: The store does not answer.
        """
        timeout_s = None if timeout is None else seconds(timeout, "timeout")
        try:
            status, outcome = await within(timeout_s, self._end(), f"flow {self.id!r} did not end")
        except TimeoutError as late:
            status, outcome = await self._end_so_far(late)
        if status is not InstanceStatus.COMPLETED:
            raise flow_error(self.id, decode_failure(outcome))
        codec = codec_of(Any) if self._flow is None else self._flow.arguments.returns
        try:
            return codec.decode(outcome or "null")
        except InvalidPayload as error:
            raise InvalidPayload(f"the result of flow {self.id!r}: {error}") from error

    async def _end_so_far(self, late: TimeoutError) -> End:
        """How it has ended, for who waited too briefly to hear of it.

        Raises:
            TimeoutError: It has not. Says where it stands, if the store says that soon.
        """
        record = await _said_soon(self._desk.record(self.id))
        if record is None:
            raise late
        if record.status in FINAL:
            return record.status, record.outcome
        standing = (
            "no host has claimed it; check that a host runs an app with this flow "
            "(host.running(), host.run() or `outlive worker`)"
            if record.status is InstanceStatus.PENDING
            else f"it is {record.status}"
        )
        raise TimeoutError(f"{late}: {standing}") from late

    async def _end(self) -> End:
        check_outside("the handle of a flow", "call the flow itself (`await child(…)`)")
        if self._awaited is not None:
            # Nobody else waits for this one meanwhile: a caller who leaves takes it along.
            awaited, self._awaited = self._awaited, None
            end = awaited.end if awaited.told else await awaited.wait()
            self._awaited = awaited
            if end is not None:
                return end
        return await self._desk.end_of(self.id)

    async def status(self) -> FlowInfo:
        """What the store knows of it now, and what its steps said if they run on this host.

        Raises:
            FlowNotFound: There is none of this id.
        """
        record = await self._desk.record(self.id)
        host = self._desk.host
        live = None if host is None else host.home.lives.get(self.id)
        return info_of(record, None if live is None else running_of(live.steps.running.values()))

    async def history(self, *, after: int = 0, limit: int | None = None) -> list[FlowCommit]:
        """The commits of its current run, the oldest first.

        Args:
            after: Only those of a greater version.
            limit: At most so many; all by default.

        Raises:
            FlowNotFound: There is none of this id.
        """
        record = await self._desk.record(self.id)
        rows = await read_rows(
            self._desk.store, self.id, after=max(after, record.base), limit=limit
        )
        return [commit_of(row) for row in rows]

    async def signal(
        self,
        name: str,
        payload: object = None,
        *,
        id: str | None = None,  # noqa: A002 - it is one
    ) -> None:
        """Send a signal, which its code reads with ``outlive.wait_signal``.

        Once this returns, it is stored, and is read once, in the order of signals that were each
        acknowledged before the next. Sent again under the same ``id``, it is nothing.

        Raises:
            FlowEnded: The flow has ended; nothing was sent.
            FlowNotFound: There is no flow of this id.
            MailboxFull: It has as many unread letters as are allowed.
            UsageError: The payload cannot be stored as JSON.
        """
        message = letters.signal(
            self.id, check_key(name, "the name of a signal"), payload, id=self._message_id(id)
        )
        await self._send(message)

    async def update(
        self,
        name: str,
        *args: Any,
        id: str | None = None,  # noqa: A002 - it is one
        timeout: Duration | None = None,
    ) -> Any:
        """Let its code handle an update, and return what that returned, as plain JSON.

        Raises:
            UpdateRejected: Its validator did not accept it, and nothing was changed.
            UpdateFailed: What handles it raised, or the flow ended or began anew before it did.
            FlowEnded: The flow has ended, perhaps before it read the update.
            FlowNotFound: There is no flow of this id.
            TimeoutError: No reply in time; ask again with the same ``id``. 0 looks once.
        """
        timeout_s = None if timeout is None else seconds(timeout, "timeout")
        message = letters.update(
            self.id, check_key(name, "the name of an update"), args, id=self._message_id(id)
        )
        await self._send(message)
        replied = self._desk.replied(self.id, message.id)
        try:
            text = await within(timeout_s, replied, f"flow {self.id!r} did not reply to {name!r}")
        except TimeoutError:
            found = await _said_soon(self._desk.reply_so_far(self.id, message.id))
            if found is None:
                raise
            text = found
        told = letters.read_told(text)
        if told.error is None:
            return decode_plain(bytes(told.result).decode())
        raise update_error(self.id, name, told.error)

    async def query(self, name: str, *args: Any) -> Any:
        """Ask its code, which answers from what it knows and changes nothing.

        Answered by the flow itself if it runs on this host, else by a copy that is run from its
        history here, which therefore needs its definition. The answer goes through JSON and is of
        the annotated type: changing it changes nothing in the flow.

        Raises:
            FlowNotFound: There is none of this id.
            UsageError: Its code has no such query, or none for these arguments; or its definition
                is not in this app.
        """
        return await Operations(self._desk, self.id).query(name, args)

    async def cancel(self, reason: str = "cancelled") -> None:
        """Ask its code to stop: it sees ``CancelledError``, and may clean up by more steps.

        Reaches running steps and the children that are to end with it. Repeatable: a run is asked
        once, so that a second wish does not interrupt its clean-up.

        Raises:
            FlowEnded: The flow has ended.
            FlowNotFound: There is no flow of this id.
        """
        check_reason(reason)
        # An id of its own: after a retry the flow can be cancelled again.
        await self._send(letters.cancel(self.id, reason, id=self._message_id(None)))

    async def terminate(self, reason: str = "terminated") -> None:
        """End it at once, without asking its code. Steps that run are stopped. Repeatable.

        Its children end with it in the same step of the store, and theirs, except for those that
        were started with ``on_parent_end="abandon"``.

        Raises:
            FlowNotFound: There is none of this id.
            Conflict: It has ended already, otherwise.
        """
        await Operations(self._desk, self.id).terminate(check_reason(reason))

    async def suspend(self) -> None:
        """Let it begin nothing new, until it is resumed; steps that run go on. Repeatable.

        Raises:
            FlowNotFound: There is none of this id.
            Conflict: It has ended.
        """
        await Operations(self._desk, self.id).suspend()

    async def resume(self) -> None:
        """Let a suspended flow go on. Repeatable; raises as ``suspend``."""
        await Operations(self._desk, self.id).resume()

    async def retry(self, *, rerun_unknown: bool = False) -> None:
        """Let a flow go on from before what ended it, as if it had not ended yet.

        That is the step or the child whose failure its error is, or was raised from; the wish to
        cancel it; or the place where its own code failed. What came after is void. A flow that was
        terminated goes on where it was. A step or a child that succeeded never runs again, void or
        not, and letters that were read stay read. The failed step begins with its first attempt, a
        failed child anew under another id. Steps in queues and children that the end stopped begin
        again.

        Args:
            rerun_unknown: Run steps with ``once=True`` again of which nobody knows whether they
                have run.

        Raises:
            FlowNotFound: There is none of this id.
            RetryRefused: A saga has undone steps since, its parent has heard of its end or may
                have, or has stopped it and begins it again when it is retried, or it would begin
                with a step of which nobody knows whether it has run. Nothing has changed.
            Conflict: It has not failed, or was changed meanwhile.
        """
        await Operations(self._desk, self.id).retry(rerun_unknown=rerun_unknown)
        # The end that it was told of is not the end any more.
        self._awaited = None

    async def fork(
        self,
        *,
        at: int | str,
        id: str | None = None,  # noqa: A002 - it is one
        input: Mapping[str, Any] | Sequence[Any] | None = None,  # noqa: A002 - it is one
    ) -> FlowHandle[R]:
        """Start a new flow from a part of this one's history. Repeatable with the same ``id``.

        Args:
            at: Up to where it is copied: a version, with all of its commit but the flow's end; or
                the identity of a step, which the copy runs again, and no step before it.
            id: Of the new flow.
            input: Other arguments for it; steps before ``at`` are not compared with them. A
                mapping gives them by name as plain JSON, and needs no definition here.

        Raises:
            FlowNotFound: There is none of this id.
            UsageError: There is no such version or step, or the arguments do not fit.
            FlowExists: The new id belongs to another flow, or to another copy. Nothing was started.
        """
        forked = await Operations(self._desk, self.id).fork(at=at, id=id, input=input)
        return FlowHandle(self._desk, forked, self._flow, entry=Entry.CREATED)

    def _message_id(self, id: str | None) -> str:  # noqa: A002 - it is one
        return self._desk.runtime.new_id() if id is None else check_key(id, "the id of a message")

    async def _send(self, message: Message) -> None:
        store = self._desk.store
        (sent,) = await until_known(self._desk.runtime, lambda _: store.send((message,)))
        if sent is Sent.FULL:
            raise MailboxFull(self.id, MAILBOX_MAX, kind="flow")
        if sent is Sent.ENDED:
            raise FlowEnded(self.id, (await self._desk.record(self.id)).status)
        if sent is Sent.NOT_FOUND:
            raise FlowNotFound(self.id)


async def _said_soon(asked: Awaitable[T]) -> T | None:
    """What the store says at a last look; ``None`` if it does not say it soon."""
    try:
        async with asyncio.timeout(_LAST_LOOK_S):
            return await asked
    except (StoreError, TimeoutError):
        return None
