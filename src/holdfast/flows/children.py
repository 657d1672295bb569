"""The children that a run has started and whose end it waits for.

Owns their identities, the name and which call of it this is, and their ids, by which their ends
come in. What has ended leaves nothing behind but the count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import InvalidPayload
from holdfast.flows.arguments import text_of
from holdfast.flows.calls import ChildCall
from holdfast.flows.events import NULL, ChildEnded, ChildStarted, Failure
from holdfast.flows.failures import failure_of, flow_error, marked
from holdfast.flows.letters import cancel
from holdfast.flows.replaying import same_input
from holdfast.flows.rewinding import Rewind
from holdfast.model.instance import NewInstance
from holdfast.names import InstanceId, check_key

if TYPE_CHECKING:
    from holdfast.flows.flow import Flow
    from holdfast.flows.run import FlowRun

# An id names all those above it, until that would be half as long as an id may be; the other half
# is for what its own steps are called.
_PATH_BYTES_MAX = 256

# What stays of a longer one: enough to see whose child it is, and to find it by that.
_HEAD_BYTES = 64


class Children:
    """The open children of one run: ``open`` by identity, and the identities by ``ids``."""

    __slots__ = ("_counts", "_done", "_had", "_run", "_void", "ids", "open", "salvaged")

    def __init__(self, run: FlowRun) -> None:
        self._run = run
        self._counts: dict[str, int] = {}
        self.open: dict[str, ChildCall[Any]] = {}
        self.ids: dict[str, str] = {}
        # Children that ended in a part of the history that a retry made void, until the code calls.
        self.salvaged: dict[str, tuple[ChildStarted, ChildEnded]] = {}
        # Of such parts: children that did not fail, those among them that ended, and all ids.
        self._void: dict[str, ChildStarted] = {}
        self._done: frozenset[str] = frozenset()
        self._had: frozenset[str] = frozenset()

    def call(
        self,
        flow: Flow[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        id: str | None,  # noqa: A002 - it is one
        abandon: bool,
        detached: bool,
    ) -> ChildCall[Any]:
        """Call a flow as a child."""
        given = flow.arguments.encode(args, kwargs)
        count = self._counts.get(flow.name, 0)
        identity = f"{flow.name}#{count}"
        wanted = InstanceId(
            check_key(self._own_id(identity) if id is None or id in self._had else id)
        )
        self._counts[flow.name] = count + 1
        call = ChildCall[Any](
            self._run, flow, identity, id=wanted, input=given, abandon=abandon, detached=detached
        )
        asking = self._run.asking
        if asking.undoing:
            asking.undid = f"child/{identity}"
        if not (self.salvaged and self._ended_before(call)):
            self._start(call, there=bool(self._void) and self._was_started(call))
        return call

    def rewound(self, rewind: Rewind) -> None:
        """A part is void; calls from now on may be of children that it began."""
        done = {event.child for event in rewind.kept if isinstance(event, ChildEnded)}
        failed = {child for child in rewind.failed_children if child not in done}
        self._done |= done
        self._had |= rewind.ids
        self._void |= rewind.started
        for child in failed & self._void.keys():
            del self._void[child]

    def _was_started(self, call: ChildCall[Any]) -> bool:
        """Give a call the id of the same child in a part that is void; whether it lives on.

        What waited for its parent was cancelled with it, and is begun again; of what has ended the
        end is fed in its turn.
        """
        started = self._void.pop(call.identity, None)
        if started is None or started.detached != call.detached or not self._is_of(started, call):
            return False
        done = call.identity in self._done
        lives_on = call.detached or (call.abandon and not done)
        if done or lives_on:
            call.id = InstanceId(started.id)
        return lives_on

    def _is_of(self, started: ChildStarted, call: ChildCall[Any]) -> bool:
        return not self._run.comparing or same_input(started.input, call.input, call.flow.arguments)

    def salvage(self, event: ChildEnded, started: ChildStarted | None) -> ChildEnded | None:
        """Feed the end of a child from a part that is void; keep it if the code has yet to call.

        ``None`` if nobody is told, also where the code calls it with something else now.
        """
        call = self.open.get(event.child)
        if call is not None:
            same = started is None or self._is_of(started, call)
            return self.ended(event) if same else None
        if started is not None:
            self.salvaged[event.child] = (started, event)
        return None

    def _ended_before(self, call: ChildCall[Any]) -> bool:
        """Give a call the end that it had in a part that is void, if it is the same call."""
        found = self.salvaged.pop(call.identity, None)
        if found is None:
            return False
        started, ended = found
        if not self._is_of(started, call):
            return False
        call.id = InstanceId(started.id)
        self.open[call.identity] = call
        self.ended(ended)
        return True

    def _own_id(self, identity: str) -> str:
        path = f"{self._run.id}/{identity}{self._run.epoch}"
        if len(path) * 4 <= _PATH_BYTES_MAX or len(data := path.encode()) <= _PATH_BYTES_MAX:
            return path
        head = data[:_HEAD_BYTES].decode(errors="ignore")
        return f"{head}~{blake2b(data, digest_size=16).hexdigest()}"

    def start_again(self, call: ChildCall[Any]) -> None:
        """Start a child again, under an id that it has not had."""
        del self.ids[call.id]
        call.id = InstanceId(self._own_id(call.identity))
        self._start(call)

    def _start(self, call: ChildCall[Any], *, there: bool = False) -> None:
        """Decide to start a child, or to go on with one that is ``there``."""
        run = self._run
        new = NewInstance(
            id=call.id,
            kind="flow",
            name=call.flow.name,
            input=text_of(call.input),
            request=f"child/{run.id}/{call.identity}{run.epoch}",
            parent=None if call.detached else run.id,
            outlives=call.abandon,
            headers=run.headers,
            retention_us=round(call.flow.retention_s * 1e6),
        )
        event = ChildStarted(
            at=run.at_us,
            child=call.identity,
            id=call.id,
            input=call.input,
            detached=call.detached,
        )
        run.out.put(event, None if there else new)
        if not call.detached:
            self.open[call.identity] = call
            self.ids[call.id] = call.identity

    def named(self, call: ChildCall[Any], id: str) -> None:  # noqa: A002 - it is one
        """The history says which id a child has."""
        self.ids.pop(call.id, None)
        call.id = InstanceId(id)
        self.ids[call.id] = call.identity

    @property
    def abandoned(self) -> list[ChildCall[Any]]:
        """Those that outlive this flow, and whose ends are not told to a flow that has ended."""
        return [call for call in self.open.values() if call.abandon]

    @property
    def chosen(self) -> list[InstanceId]:
        """The ids that the code chose itself, and that others may have had."""
        own = f"{self._run.id}/"
        return [InstanceId(each) for each in self.ids if not each.startswith(own)]

    def taken(self, ids: Iterable[InstanceId], at_us: int) -> Iterator[ChildEnded]:
        """What to feed for children that were not started, because others have their ids."""
        for id_ in ids:
            child = self.ids.get(id_)
            if child is not None:
                failure = Failure("holdfast.errors.FlowExists", f"flow {id_!r} exists already")
                yield ChildEnded(at=at_us, child=child, error=failure)

    def ended(self, event: ChildEnded) -> ChildEnded | None:
        """Feed the end of a child; what is to be recorded, if anybody waited for it."""
        call = self.open.pop(event.child, None)
        if call is None:
            return None
        self.ids.pop(call.id, None)
        if event.error is not None:
            failed = flow_error(call.id, event.error)
            call.set_exception(marked(failed, f"child/{event.child}"))
            return event
        try:
            value = call.flow.arguments.returns.decode(text_of(event.result))
        except InvalidPayload as invalid:
            if self._run.replaying:
                self._run.differs(
                    f"a result of child {event.child} that fits its type", str(invalid)
                )
            event = msgspec.structs.replace(event, result=NULL, error=failure_of(invalid))
            failed = flow_error(call.id, failure_of(invalid))
            call.set_exception(marked(failed, f"child/{event.child}"))
        else:
            call.set_result(value)
        return event

    def cancelled(self, call: ChildCall[Any]) -> None:
        """Nobody waits for this child any more."""
        if self.open.get(call.identity) is not call:
            return
        del self.open[call.identity]
        self.ids.pop(call.id, None)
        if not call.abandon:
            self._ask_to_cancel(call, "the flow that waited for it does not any more")

    def end(self, *, cancel_them: bool) -> None:
        """The run ends: tell the children that are not to outlive it."""
        if cancel_them:
            for call in self.open.values():
                if not call.abandon:
                    self._ask_to_cancel(call, "the flow that started it has ended")
        self.open.clear()
        self.ids.clear()

    def _ask_to_cancel(self, call: ChildCall[Any], reason: str) -> None:
        run = self._run
        id_ = f"cancel/{run.id}{run.epoch}/{call.identity}"
        run.out.sends.append(cancel(call.id, reason, id=id_))
