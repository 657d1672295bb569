"""The children that a run has started and whose end it waits for.

Owns their identities, the name and which call of it this is, and their ids, by which their ends
come in. What has ended leaves nothing behind but the count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from outlive.errors import InvalidPayload
from outlive.flows.arguments import text_of
from outlive.flows.calls import ChildCall
from outlive.flows.events import NULL, ChildEnded, ChildStarted, Failure
from outlive.flows.failures import failure_of, flow_error, marked
from outlive.flows.former_children import FormerChildren, new_starts
from outlive.flows.letters import cancel
from outlive.flows.rewinding import Rewind, VoidChild
from outlive.model.instance import NewInstance
from outlive.names import InstanceId, check_key

if TYPE_CHECKING:
    from outlive.flows.flow import Flow
    from outlive.flows.run import FlowRun

# An id names all those above it, until that would be half as long as an id may be; the other half
# is for what its own steps are called.
_PATH_BYTES_MAX = 256

# What stays of a longer one: enough to see whose child it is, and to find it by that.
_HEAD_BYTES = 64


class Children:
    """The open children of one run: ``open`` by identity, and the identities by ``ids``."""

    __slots__ = ("_counts", "_run", "chosen", "former", "ids", "open", "unheard")

    def __init__(self, run: FlowRun) -> None:
        self._run = run
        self._counts: dict[str, int] = {}
        self.open: dict[str, ChildCall[Any]] = {}
        self.ids: dict[str, str] = {}
        # There from the first retry on.
        self.former: FormerChildren | None = None
        # Of those in the history: ids that the code chose, and that others may have had.
        self.chosen: list[InstanceId] = []
        # Children that outlive this flow, and may have ended when it had.
        self.unheard: list[InstanceId] = []

    def call(
        self,
        flow: Flow[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        id: str | None,  # noqa: A002 - it is one
        abandon: bool,
    ) -> ChildCall[Any]:
        """Call a flow as a child."""
        given = flow.arguments.encode(args, kwargs)
        count = self._counts.get(flow.name, 0)
        identity = f"{flow.name}#{count}"
        wanted = InstanceId(
            check_key(
                self._own_id(identity) if id is None or self._had(id) else id, "the id of a flow"
            )
        )
        self._counts[flow.name] = count + 1
        call: ChildCall[Any] = ChildCall(
            self._run, flow, identity, id=wanted, input=given, abandon=abandon
        )
        asking = self._run.asking
        if asking.undoing:
            asking.undid = f"child/{identity}"
        before = None if self.former is None else self.former.take(call)
        if before is not None:
            call.id = InstanceId(before.started.id)
        if before is None or before.ended is None:
            self._start(call, there=before is not None)
        else:
            # Under the identity that it had: that is what another retry goes by.
            self._resolve(call, before.ended)
        return call

    def rewound(self, rewind: Rewind) -> None:
        """A part is void; calls from now on may be of children that it began."""
        if self.former is None:
            self.former = FormerChildren(self._run)
        self.former.rewound(rewind, self.open)

    def replayed(self) -> None:
        """The history is through: what is open and stands in it may have ended unheard.

        What is decided anew is not in the store before that is committed.
        """
        new = {start.id for start in new_starts(self._run.out) if not self._lasts(start.id)}
        self.chosen = [id_ for id_ in self._chosen() if id_ not in new]
        if self._run.rewinds:
            self.unheard = [call.id for call in self.abandoned if call.id not in new]

    def _lasts(self, id: str) -> bool:  # noqa: A002 - it is one
        return self.former is not None and self.former.lasts(id)

    def heed(self) -> dict[InstanceId, str]:
        """Those that may have ended when this flow had too, by id; each is told once."""
        wanted = {id_: self.ids[id_] for id_ in self.unheard if id_ in self.ids}
        self.unheard = []
        return wanted

    def salvage(self, event: ChildEnded, of: VoidChild | None) -> ChildEnded | None:
        """Feed an end from a part that is void to a call that is open; ``None`` if there is none.

        ``of`` is the child, if its beginning is void too: then its id tells which call that is,
        unless a retry began what had begun before, under another id.
        """
        identity = self._identity_of(event, of)
        call = None if identity is None else self.open.pop(identity, None)
        if call is None:
            return None
        self.ids.pop(call.id, None)
        if of is not None and self.former is not None:
            self.former.drop(of.started)
        return self._resolve(call, event)

    def _identity_of(self, event: ChildEnded, of: VoidChild | None) -> str | None:
        if of is None or self.former is None or of.started.child in self.former.begun:
            return event.child
        return self.ids.get(of.started.id)

    def copied(self) -> None:
        """What was decided so far, and is not recorded, was another flow's: it is begun again."""
        for decided, _ in list(self._run.out):
            if isinstance(decided, ChildStarted):
                self._run.out.strike(decided)

    def go_on_with(self, rewind: Rewind) -> None:
        """Of what stands and outlives the flow: those that a void retry began again are it now."""
        for child in rewind.children:
            call = self.open.get(child.started.child)
            begun = child.started.child in rewind.begun_children and not child.failed
            if begun and call is not None and call.abandon and self.former is not None:
                self.former.drop(child.started)
                self.named(call, child.started.id)
                self.unheard.append(call.id)

    def _had(self, id: str) -> bool:  # noqa: A002 - it is one
        return self.former is not None and self.former.had(id)

    def _own_id(self, identity: str) -> str:
        parent, epoch = self._run.ancestry
        path = f"{parent}/{identity}{epoch}"
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
            parent=run.id,
            outlives=call.abandon,
            headers=run.headers,
            retention_us=round(call.flow.retention_s * 1e6),
        )
        event = ChildStarted(
            at=run.at_us,
            child=call.identity,
            id=call.id,
            input=call.input,
            abandon=call.abandon,
        )
        run.out.put(event, None if there else new)
        self.open[call.identity] = call
        self.ids[call.id] = call.identity
        if there:
            self.unheard.append(call.id)

    def named(self, call: ChildCall[Any], id: str) -> None:  # noqa: A002 - it is one
        """The history says which id a child has."""
        self.ids.pop(call.id, None)
        call.id = InstanceId(id)
        self.ids[call.id] = call.identity

    @property
    def abandoned(self) -> list[ChildCall[Any]]:
        """Those that outlive this flow, and whose ends are not told to a flow that has ended."""
        return [call for call in self.open.values() if call.abandon]

    def _chosen(self) -> list[InstanceId]:
        """The ids that the code chose itself, and that others may have had."""
        own = f"{self._run.id}/"
        return [InstanceId(each) for each in self.ids if not each.startswith(own)]

    def taken(self, ids: Iterable[InstanceId], at_us: int) -> Iterator[ChildEnded]:
        """What to feed for children that were not started, because others have their ids."""
        for id_ in ids:
            child = self.ids.get(id_)
            if child is not None:
                failure = Failure("outlive.errors.FlowExists", f"flow {id_!r} already exists")
                yield ChildEnded(at=at_us, child=child, error=failure)

    def ended(self, event: ChildEnded) -> ChildEnded | None:
        """Feed the end of a child; what is to be recorded, if anybody waited for it."""
        call = self.open.pop(event.child, None)
        if call is None:
            return None
        self.ids.pop(call.id, None)
        return self._resolve(call, event)

    def _resolve(self, call: ChildCall[Any], event: ChildEnded) -> ChildEnded:
        """Give a child's end to whoever awaits it; what is to be recorded."""
        if event.error is not None:
            failed = flow_error(call.id, event.error)
            call.set_exception(marked(failed, f"child/{event.child}"))
            return event
        try:
            value = call.flow.arguments.decode_result(event.result)
        except InvalidPayload as invalid:
            if self._run.replaying:
                self._run.differs(
                    f"a result of child {event.child} that fits its type", str(invalid)
                )
            failure = failure_of(InvalidPayload(f"the result of flow {call.flow.name}: {invalid}"))
            event = msgspec.structs.replace(event, result=NULL, error=failure)
            failed = flow_error(call.id, failure)
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
            self._ask_to_cancel(call, "the parent flow stopped waiting for this child")

    def end(self, *, cancel_them: bool) -> None:
        """The run ends: tell the children that are not to outlive it."""
        if cancel_them:
            for call in self.open.values():
                if not call.abandon:
                    self._ask_to_cancel(call, "the parent flow has ended")
        self.open.clear()
        self.ids.clear()

    def _ask_to_cancel(self, call: ChildCall[Any], reason: str) -> None:
        run = self._run
        id_ = f"cancel/{run.id}{run.epoch}/{call.identity}"
        run.out.sends.append(cancel(call.id, reason, id=id_))
