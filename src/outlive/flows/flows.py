"""``host.flows``: start, find, look, purge. The public face of the feature."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, TypeVarTuple, Unpack, cast, overload

from msgspec.structs import replace

from outlive.errors import UsageError
from outlive.flows.calls import ChildCall
from outlive.flows.desk import FlowDesk
from outlive.flows.filtering import Statuses, ended_filter, flow_filter
from outlive.flows.flow import Flow
from outlive.flows.handle import FlowHandle
from outlive.flows.info import FlowInfo, info_of
from outlive.flows.purging import purge_matching, purge_one
from outlive.flows.schedule import QUEUE, StartFlow
from outlive.flows.start_options import (
    StartManyOptions,
    StartOptions,
    TickOptions,
    TimetableOptions,
    refuse_options,
)
from outlive.model.instance import InstanceStatus, NewInstance
from outlive.model.lease import LIST_LIMIT_MAX
from outlive.model.options import Duration, seconds
from outlive.names import InstanceId, check_key
from outlive.work.schedules import ScheduleInfo, Schedules

R = TypeVar("R")
A = TypeVar("A")
Ts = TypeVarTuple("Ts")


class Flows:
    """The flows of one namespace, as one connected host sees them.

    Made by ``outlive.connect``. Safe to use from many tasks of one event loop.
    """

    def __init__(self, desk: FlowDesk, schedules: Callable[[], Schedules]) -> None:
        self._desk = desk
        self._schedules = schedules

    @overload
    async def start(
        self, flow: str, *args: Any, **options: Unpack[StartOptions]
    ) -> FlowHandle[Any]: ...
    @overload
    async def start(
        self,
        flow: Callable[[A], ChildCall[R]],
        first: A,
        /,
        **options: Unpack[StartOptions],
    ) -> FlowHandle[R]: ...
    @overload
    async def start(
        self,
        flow: Callable[[*Ts], ChildCall[R]],
        *args: *Ts,
        **options: Unpack[StartOptions],
    ) -> FlowHandle[R]: ...
    @overload
    async def start(
        self,
        flow: Flow[..., R],
        *args: Any,
        kwargs: Mapping[str, Any],
        **options: Unpack[StartOptions],
    ) -> FlowHandle[R]: ...
    async def start(  # noqa: PLR0913 - each is a public option
        self,
        flow: Any,
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,  # noqa: A002 - it is one
        at: datetime | None = None,
        delay: Duration | None = None,
        attributes: Mapping[str, Any] | None = None,
        anywhere: bool = False,
        tx: object = None,
        **unknown: Any,
    ) -> FlowHandle[Any]:
        """Start a flow, once for each id, and return a handle to it.

        Once this returns, the flow is stored and will be run to its end by some host. It begins
        here at once if this host runs the app's flows and has room. An id that was started before
        is that flow again, whatever became of it, and the handle's ``entry`` says so. With ``tx``,
        the caller's open transaction, the flow exists if and when that commits.

        Args:
            flow: A flow, whose arguments are checked, or its name, with the arguments as JSON.
            *args: The flow's arguments by position.
            kwargs: Those by name, as a parameter behind a ``*`` needs it; they stand apart from
                the options, so that neither can be taken for the other.
            id: Default a fresh one.
            at: Not before this instant.
            delay: Not before so long from now.
            attributes: Strings, numbers and booleans by which it can be found.
            anywhere: Let any host begin it, not this one first: one producer that starts many
                flows does not run them all.
            tx: An open transaction of the same database.
            **unknown: Nothing else; what is given is refused by name.

        Raises:
            FlowExists: The id belongs to a run of another definition.
            UsageError, InvalidName: The arguments are wrong; nothing was sent.
            UnsupportedByDriver: The backend has no transactions.
            StoreUnavailable: Nothing was started.
            OutcomeUnknown: No answer for a few seconds; start again with the same ``id``.
        """
        if unknown:
            refuse_options(unknown)
        desk = self._desk
        new = desk.starter.draft(
            flow, args, kwargs, id=id, at=at, delay=delay, attributes=attributes
        )
        if not desk.telemetry.tracing:
            return await self._start(flow, new, tx, anywhere=anywhere)
        about = {"host": desk.host_name, "id": new.id, "name": new.name}
        with desk.telemetry.span("outlive.flow.start", None, **about):
            # Those of this span: the runs of the flow go on with its trace, on whichever host.
            new = replace(new, headers=desk.starter.headers())
            return await self._start(flow, new, tx, anywhere=anywhere)

    async def _start(
        self, flow: Any, new: NewInstance, tx: object, *, anywhere: bool
    ) -> FlowHandle[Any]:
        desk = self._desk
        may_begin_here = desk.host is not None and tx is None and not anywhere
        awaited = desk.waiters.expect(new.id) if may_begin_here else None
        begun = False
        try:
            entry, begun = await desk.starter.start(new, tx=tx, anywhere=anywhere)
        finally:
            if awaited is not None and not begun and not desk.runs_here(new.id):
                desk.waiters.gone(new.id)
        return FlowHandle(desk, new.id, desk.definition(flow), awaited if begun else None, entry)

    @overload
    async def start_many(
        self,
        flow: Callable[[A], ChildCall[R]],
        inputs: Iterable[A],
        **options: Unpack[StartManyOptions],
    ) -> list[FlowHandle[R]]: ...
    @overload
    async def start_many(
        self,
        flow: Callable[[*Ts], ChildCall[R]],
        inputs: Iterable[tuple[*Ts]],
        **options: Unpack[StartManyOptions],
    ) -> list[FlowHandle[R]]: ...
    @overload
    async def start_many(
        self, flow: str, inputs: Iterable[Any], **options: Unpack[StartManyOptions]
    ) -> list[FlowHandle[Any]]: ...
    async def start_many(
        self,
        flow: Any,
        inputs: Iterable[Any],
        *,
        ids: Sequence[str] | None = None,
        at: datetime | None = None,
        delay: Duration | None = None,
        attributes: Mapping[str, Any] | None = None,
        tx: object = None,
    ) -> list[FlowHandle[Any]]:
        """Start up to 10,000 flows in one step, all that are not there yet, or none.

        Each of ``inputs`` is the one argument of a flow, or a tuple of all of them; of a flow that
        is named by text it is the JSON of its arguments. Otherwise as ``start``; any host may
        begin them.

        Raises:
            FlowExists: An id belongs to a run of another definition. The others were started.
            UsageError, InvalidName: The arguments are wrong, or one id is given with two different
                inputs; nothing was sent.
        """
        desk, given = self._desk, list(inputs)
        if ids is not None and len(ids) != len(given):
            raise UsageError(
                f"ids= has {len(ids)} ids for {len(given)} flows: give one id for each flow"
            )
        news = [
            desk.starter.draft(
                flow,
                cast("tuple[Any, ...]", each) if isinstance(each, tuple) else (each,),
                id=None if ids is None else ids[number],
                at=at,
                delay=delay,
                attributes=attributes,
            )
            for number, each in enumerate(given)
        ]
        if not news:
            return []
        found = desk.definition(flow)
        started = await desk.starter.start_many(news, tx=tx)
        return [FlowHandle(desk, each.id, found, entry=each.entry) for each in started]

    @overload
    async def schedule(
        self, name: str, flow: str, *args: Any, **options: Unpack[TimetableOptions]
    ) -> ScheduleInfo: ...
    @overload
    async def schedule(
        self,
        name: str,
        flow: Callable[[A], ChildCall[Any]],
        first: A,
        /,
        **options: Unpack[TimetableOptions],
    ) -> ScheduleInfo: ...
    @overload
    async def schedule(
        self,
        name: str,
        flow: Callable[[*Ts], ChildCall[Any]],
        *args: *Ts,
        **options: Unpack[TimetableOptions],
    ) -> ScheduleInfo: ...
    @overload
    async def schedule(
        self,
        name: str,
        flow: Flow[..., Any],
        *args: Any,
        kwargs: Mapping[str, Any],
        **options: Unpack[TimetableOptions],
    ) -> ScheduleInfo: ...
    async def schedule(
        self,
        name: str,
        flow: Any,
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        cron: str | None = None,
        every: Duration | None = None,
        **options: Unpack[TickOptions],
    ) -> ScheduleInfo:
        """Start a flow at each tick of a timetable, once in the fleet.

        The schedule is one of ``host.schedules``, where it is looked at, paused and deleted. The
        flow of a tick has the id of the tick's job, ``<name>@<instant>``.

        Args:
            name: What the schedule is called.
            flow: A flow, or its name.
            *args: Its arguments, the same at each tick.
            kwargs: Those by name.
            cron: A cron expression; or ``every``.
            every: Seconds between ticks.
            **options: As ``host.schedules.create`` takes them: ``tz``, ``catch_up``…

        Raises:
            UsageError, InvalidName: The arguments are wrong; nothing was sent.
            UnsupportedByDriver: The backend keeps no schedules.
        """
        new = self._desk.starter.draft(flow, args, kwargs)
        start = StartFlow(flow=new.name, input=new.input, retention_us=new.retention_us)
        return await self._schedules().create(name, QUEUE, start, cron=cron, every=every, **options)

    @overload
    def get(self, id: str, flow: Flow[..., R]) -> FlowHandle[R]: ...
    @overload
    def get(self, id: str, flow: None = None) -> FlowHandle[Any]: ...
    def get(self, id: str, flow: Flow[..., Any] | None = None) -> FlowHandle[Any]:  # noqa: A002
        """A handle to the flow of this id; nothing is asked. Without ``flow``: plain JSON."""
        return FlowHandle(self._desk, InstanceId(check_key(id, "the id of a flow")), flow)

    async def list(  # noqa: PLR0913 - the filters are the public promise
        self,
        *,
        name: str | None = None,
        status: Statuses = None,
        prefix: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        parent: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        stuck: bool = False,
        after: FlowInfo | str | None = None,
        limit: int = 100,
    ) -> list[FlowInfo]:
        """A page of flows, the oldest first.

        ``after`` is the last flow of the page before, or its ``id``; pages skip nothing that was
        there before the first of them and still matches. With ``stuck`` only live ones that cannot
        go on, because no host's code fits their history; ``FlowInfo.stuck`` says why.

        Raises:
            UsageError: A status is unknown, an attribute is no string, number or boolean, or the
                limit is out of range.
            FlowNotFound: The flow whose id ``after`` is is gone.
        """
        wanted = flow_filter(
            name=name,
            status=status,
            prefix=prefix,
            attributes=attributes,
            parent=parent,
            created_after=created_after,
            created_before=created_before,
            stuck=stuck,
        )
        if not 1 <= limit <= LIST_LIMIT_MAX:
            raise UsageError(f"limit must be from 1 to {LIST_LIMIT_MAX}, not {limit!r}")
        cursor = None
        if isinstance(after, FlowInfo):
            cursor = after.cursor
        elif after is not None:
            known = InstanceId(check_key(after, "the id of a flow"))
            cursor = (await self._desk.record(known)).cursor
        records = await self._desk.store.list(wanted, after=cursor, limit=limit)
        return [info_of(record) for record in records]

    async def count(
        self,
        *,
        name: str | None = None,
        status: Statuses = None,
        attributes: Mapping[str, Any] | None = None,
        stuck: bool = False,
    ) -> dict[InstanceStatus, int]:
        """How many flows match, by status; the filters are those of ``list``."""
        wanted = flow_filter(name=name, status=status, attributes=attributes, stuck=stuck)
        return dict(await self._desk.store.count(wanted))

    async def purge(
        self,
        id: str | None = None,  # noqa: A002 - it is one
        *,
        name: str | None = None,
        status: Statuses = None,
        older_than: Duration | None = None,
    ) -> int:
        """Forget one ended flow, or all ended ones that match, and say how many.

        Goes in batches, so that it holds nobody up; ``older_than`` counts from their end.

        Raises:
            FlowNotFound: There is no flow of this id.
            UsageError: Neither an id nor a filter was given, or a status is not final.
        """
        if id is not None:
            return await purge_one(self._desk, InstanceId(check_key(id, "the id of a flow")))
        if name is None and status is None and older_than is None:
            raise UsageError(
                "no flows selected: give an id, or a filter such as status= or older_than="
            )
        before_us = None
        if older_than is not None:
            age_s = seconds(older_than, "older_than")
            before_us = round((self._desk.runtime.clock.now().timestamp() - age_s) * 1e6)
        wanted = ended_filter(name=name, status=status, ended_before_us=before_us)
        return await purge_matching(self._desk.store, wanted)
