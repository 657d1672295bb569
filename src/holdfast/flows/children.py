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
from holdfast.flows.rewinding import Rewind, VoidChild
from holdfast.flows.salvaging import Salvaged
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

    __slots__ = ("_begun", "_counts", "_had", "_lasting", "_run", "_salvaged", "ids", "open")

    def __init__(self, run: FlowRun) -> None:
        self._run = run
        self._counts: dict[str, int] = {}
        self.open: dict[str, ChildCall[Any]] = {}
        self.ids: dict[str, str] = {}
        # Children that a part of the history began which a retry made void, and all their ids.
        self._salvaged: Salvaged[VoidChild] | None = None
        self._had: frozenset[str] = frozenset()
        # Identities that had begun before it, and ids under which some live on.
        self._begun: frozenset[str] = frozenset()
        self._lasting: frozenset[str] = frozenset()

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
        before = self._salvaged_for(call, self._salvaged) if self._salvaged else None
        if before is not None:
            call.id = InstanceId(before.started.id)
        if before is None or before.ended is None:
            self._start(call, there=before is not None)
        elif not detached:
            # Under the identity that it had: that is what another retry goes by.
            self._resolve(call, before.ended)
        return call

    def rewound(self, rewind: Rewind) -> None:
        """A part is void; calls from now on may be of children that it began."""
        if self._salvaged is None:
            self._salvaged = Salvaged()
        for child in rewind.children:
            if child.started.id in self._had:
                # An earlier retry left it too; it is one child, as it was last.
                self._drop(child.started)
            if not child.failed:
                self._salvaged.add(child.started.child, child.started.input, child)
        self._had |= {child.started.id for child in rewind.children}
        self._begun = rewind.begun_children
        self._lasting = frozenset(
            decided.id
            for decided, effect in self._run.out
            if isinstance(decided, ChildStarted)
            and effect is not None
            and decided.id in self._had
            and self._lives_on(decided)
        )

    def _lives_on(self, decided: ChildStarted) -> bool:
        """Whether a child whose start is decided, but not recorded, was begun and goes on.

        It was decided before its part was known to be void. Nobody else is given the child then.
        """
        there = self._drop(decided)
        if there is None:
            # An earlier retry, of which nothing was recorded, has said so.
            return decided.id in self._lasting
        call = self.open.get(decided.child)
        return there.ended is None and (call is None or call.abandon)

    def _drop(self, started: ChildStarted) -> VoidChild | None:
        """Give this child to nobody any more."""
        if self._salvaged is None:
            return None
        return self._salvaged.take(
            started.child,
            started.input,
            same=lambda _: True,
            fits=lambda child: child.started.id == started.id,
        )

    def may_start(self, decided: ChildStarted) -> bool:
        """Whether a start that is not recorded may go out: not under an id that another had."""
        return decided.id not in self._had or decided.id in self._lasting

    def _salvaged_for(
        self, call: ChildCall[Any], salvaged: Salvaged[VoidChild]
    ) -> VoidChild | None:
        """The same child in a part that is void, if it has ended or lives on.

        What lived with this flow was cancelled with it, and is begun again.
        """
        lasts = call.detached or call.abandon
        return salvaged.take(
            call.identity,
            call.input,
            same=lambda given: (
                not self._run.comparing or same_input(given, call.input, call.flow.arguments)
            ),
            fits=lambda child: (
                child.started.detached == call.detached and (lasts or child.ended is not None)
            ),
        )

    def salvage(self, event: ChildEnded, of: VoidChild | None) -> ChildEnded | None:
        """Feed an end from a part that is void to a call that is open; ``None`` if there is none.

        ``of`` is the child, if its beginning is void too: then its id tells which call that is,
        unless a retry began what had begun before, under another id.
        """
        if of is None or of.started.child in self._begun:
            identity = event.child
        else:
            identity = self.ids.get(of.started.id)
        call = None if identity is None else self.open.pop(identity, None)
        if call is None:
            return None
        self.ids.pop(call.id, None)
        if of is not None:
            self._drop(of.started)
        return self._resolve(call, event)

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
        return self._resolve(call, event)

    def _resolve(self, call: ChildCall[Any], event: ChildEnded) -> ChildEnded:
        """Give a child's end to whoever awaits it; what is to be recorded."""
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
