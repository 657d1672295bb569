"""Starting flows: what is asked for becomes an instance, once, and begins here if it can.

Owns the requests. A reply that is lost is asked for again under the same request; what was started
for this host's session without an answer is begun here when the answer comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from outlive.errors import (
    FlowExists,
    InvalidPayload,
    LeaseLost,
    OutcomeUnknown,
    OutliveError,
    UsageError,
)
from outlive.flows.attributes import ATTRIBUTES_BYTES_MAX, with_attributes
from outlive.flows.bell import claimable
from outlive.flows.flow import RETENTION_S, Flow
from outlive.flows.step import check_definition
from outlive.model.flow_options import POLL_MAX_S
from outlive.model.instance import (
    START_MAX,
    ClaimedInstance,
    Entry,
    Handback,
    NewInstance,
    Started,
)
from outlive.model.options import TTL_MAX_S, Duration, seconds
from outlive.names import InstanceId, Token, check_key
from outlive.runtime.outside import check_outside
from outlive.runtime.session import LiveSession
from outlive.serialization import encode, encode_json
from outlive.telemetry import events
from outlive.work.repeating import until_known, while_held

if TYPE_CHECKING:
    from outlive.flows.desk import FlowDesk

# A flow that comes due before those who wait would look by themselves is rung for: they look then,
# and learn when. None of them waits longer than this.
_SOON_S = POLL_MAX_S

# Requests tell apart those who ask for one id. Of an id that was made for a call nobody else knows.
_OF_NEW_ID = "new"


class Starter:
    """Starts the flows of one host."""

    def __init__(self, desk: FlowDesk) -> None:
        self._desk = desk
        self._runtime = desk.runtime

    def draft(
        self,
        flow: Flow[..., Any] | str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,  # noqa: A002 - it is one
        at: datetime | None = None,
        delay: Duration | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> NewInstance:
        """The instance that is asked for.

        Raises:
            UsageError, InvalidName: Something given is wrong.
        """
        found = self._desk.definition(flow)
        if delay is not None and at is not None:
            raise UsageError("give either at= or delay=, not both")
        if at is not None and at.tzinfo is None:
            raise UsageError("at= must be a datetime with a time zone, such as datetime.now(UTC)")
        delay_us = 0 if delay is None else round(seconds(delay, "delay", most=TTL_MAX_S) * 1e6)
        retention_s = RETENTION_S if found is None else found.retention_s
        if id is None:
            wanted, request = self._runtime.ordered_id(), _OF_NEW_ID
        else:
            wanted, request = check_key(id, "the id of a flow"), self._runtime.new_id()
        return NewInstance(
            id=InstanceId(wanted),
            kind="flow",
            name=check_definition(flow, "flow") if isinstance(flow, str) else flow.name,
            input=input_of(flow, found, args, kwargs or {}),
            request=request,
            delay_us=delay_us,
            due_at_us=None if at is None else round(at.timestamp() * 1e6),
            attributes=with_attributes({}, attributes) if attributes else "{}",
            headers=self.headers() if self._desk.telemetry.tracing else "{}",
            retention_us=round(retention_s * 1e6),
        )

    def headers(self) -> str:
        """What carries the caller's trace to where a flow runs."""
        carried = self._desk.telemetry.carrier()
        return encode_json(carried, "the headers", limit=ATTRIBUTES_BYTES_MAX)

    async def start(
        self, new: NewInstance, *, tx: object = None, anywhere: bool = False
    ) -> tuple[Entry, bool]:
        """Start one flow, and begin it here if this host runs it and has room, unless ``anywhere``.

        Returns whether it was there already, and whether it begins here.

        Raises:
            FlowExists: The id is a run of another definition.
            StoreUnavailable: Nothing was started.
            OutcomeUnknown: No answer for a few seconds; start again with the same id.
        """
        session = None if tx is not None or anywhere else self._session_for(new)
        if session is None:
            (started,) = await self.submit((new,), tx=tx)
            _check_same(started, new)
            return started.entry, False
        owned = replace(new, session=session.id, worker=self._desk.host_name)
        try:
            started = self._start_at_once(owned)
            if not isinstance(started, Started):
                started = await self._ask(owned, unknown=started)
        except LeaseLost:
            # The session is not what we thought: anybody may have it.
            self._desk.sessions.doubt(session)
            (started,) = await self.submit((new,))
            _check_same(started, new)
            return started.entry, False
        except (OutcomeUnknown, asyncio.CancelledError):
            self._desk.claimer.later(self._find_out(owned, session))
            raise
        _check_same(started, new)
        return started.entry, self._begin(owned, started, session)

    async def _ask(self, new: NewInstance, *, unknown: OutcomeUnknown | None) -> Started:
        """The answer of the store; ``unknown`` is what was heard of the same request before."""
        (started,) = await until_known(
            self._runtime, lambda _: self._store.start((new,)), unknown=unknown
        )
        return started

    def _start_at_once(self, new: NewInstance) -> Started | OutcomeUnknown | None:
        """The answer of a store that writes what comes alone at once; ``None`` if it did not.

        That nobody knows is an answer as well: asked for again, the same request tells.
        """
        host = self._desk.host
        at_once = None if host is None else host.home.start_at_once
        if at_once is None:
            return None
        check_outside("a connection, nor a handle of one")
        try:
            return at_once(new)
        except OutcomeUnknown as unknown:
            return unknown

    async def start_many(
        self, news: Sequence[NewInstance], *, tx: object = None
    ) -> Sequence[Started]:
        """Start flows that anybody may claim.

        Raises:
            UsageError: One id is given with two different inputs; nothing was sent.
            FlowExists: An id is a run of another definition. The others were started.
        """
        inputs: dict[InstanceId, str] = {}
        for new in news:
            if inputs.setdefault(new.id, new.input) != new.input:
                raise UsageError(
                    f"id {new.id!r} is used for two flows with different inputs: give each flow "
                    "its own id"
                )
        all_started = await self.submit(news, tx=tx)
        for started, new in zip(all_started, news, strict=True):
            _check_same(started, new)
        return all_started

    async def submit(self, news: Sequence[NewInstance], *, tx: object = None) -> Sequence[Started]:
        """Start flows that anybody may claim, all or none."""
        if len(news) > START_MAX:
            raise UsageError(f"{len(news)} flows in one call; at most {START_MAX} are allowed")
        if tx is not None:
            started = await self._store.start_in(news, tx)
        else:
            started = await until_known(self._runtime, lambda _: self._store.start(news))
        if tx is None:
            # Otherwise nobody can see them yet, nor know when.
            self._tell_delayed(news)
        if self._desk.telemetry.active:
            created = sum(each.entry is Entry.CREATED for each in started)
            self._desk.telemetry.record(events.FLOWS, created, event="started")
        return started

    @property
    def _store(self) -> Any:
        return self._desk.store

    def _session_for(self, new: NewInstance) -> LiveSession | None:
        """The session to start it under, if it can begin here at once."""
        host = self._desk.host
        if host is None or not host.open or not host.runs(new.name):
            return None
        if new.delay_us or new.due_at_us is not None or new.history:
            return None
        session = self._desk.sessions.now
        return session if session.held else None

    def _begin(self, new: NewInstance, started: Started, session: LiveSession) -> bool:
        if started.entry is not Entry.CREATED or not started.token:
            return False
        if self._desk.telemetry.active:
            self._desk.telemetry.record(events.FLOWS, event="started")
        host = self._desk.host
        if host is None:
            # It stopped while the answer was under way.
            self._desk.claimer.later(self._hand_back(new.id, started.token, session))
            return False
        host.home.clock.heard(started.began_at_us)
        claimed = ClaimedInstance(
            new.id,
            new.kind,
            new.name,
            started.token,
            0,
            0,
            new.input,
            started.began_at_us,
            new.parent,
            new.headers,
            new.attributes,
            None,
        )
        return host.begin(claimed, session)

    async def _find_out(self, new: NewInstance, session: LiveSession) -> None:
        """Learn whether a start without an answer made us the owner, and begin it then."""
        try:
            (started,) = await while_held(self._runtime, session, lambda: self._store.start((new,)))
        except OutliveError as error:
            self._desk.log.warning(
                "lost the reply to a start; the flow, if started, is released when this host's "
                "session ends: %s",
                error,
            )
            return
        if session.held:
            self._begin(new, started, session)

    async def _hand_back(self, flow: InstanceId, token: Token, session: LiveSession) -> None:
        """Let others have a flow that was started for a host that runs none any more."""
        back = Handback(flow, token, due=True)
        try:
            await while_held(self._runtime, session, lambda: self._store.release((back,)))
        except OutliveError as error:
            self._desk.log.warning(
                "could not release flow %s; it is released when this host's session ends: %s",
                flow,
                error,
            )

    def _tell_delayed(self, news: Sequence[NewInstance]) -> None:
        """Let those who wait learn of flows that come due before they would look."""
        now_us = self._runtime.clock.now().timestamp() * 1e6
        names = {
            new.name
            for new in news
            if (new.delay_us if new.due_at_us is None else new.due_at_us - now_us) < _SOON_S * 1e6
            and (new.delay_us or new.due_at_us is not None)
        }
        for name in names:
            self._desk.claimer.later(self._ring(name))

    async def _ring(self, name: str) -> None:
        try:
            await self._desk.wakeups.ring(claimable(name))
        except OutliveError as error:
            self._desk.log.debug("could not send a notification for flow %r: %s", name, error)


def input_of(
    flow: Flow[..., Any] | str,
    found: Flow[..., Any] | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> str:
    """The input of a run: of a flow's arguments, or of the one JSON value that a name goes with.

    Raises:
        UsageError: The arguments do not fit, or cannot be bound without the definition.
    """
    if not isinstance(flow, str):
        return flow.arguments.checked(flow.arguments.encode(tuple(args), kwargs))
    if len(args) > 1 or kwargs:
        raise UsageError(
            "a flow given by name takes one JSON value: pass its arguments as one list or one dict"
        )
    value: Any = args[0] if args else {}
    if found is not None:
        try:
            given = found.arguments.from_json(value)
        except InvalidPayload as error:
            # Nothing was stored yet: it is the call that is wrong.
            raise UsageError(str(error)) from None
        return found.arguments.checked(given)
    if not isinstance(value, dict):
        raise UsageError(
            f"flow {flow!r} is not defined in this app: give its arguments by name, as one dict"
        )
    return encode(cast("dict[str, Any]", value), f"the input of flow {flow}")


def _check_same(started: Started, new: NewInstance) -> None:
    if started.name != new.name:
        raise FlowExists(new.id, started.name, new.name)
