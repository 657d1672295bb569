"""Flows without ``await``; see ``outlive.blocking``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar, TypeVarTuple, Unpack, overload

from outlive.blocking.transactions import run_with
from outlive.flows import flows as flows_module
from outlive.flows import handle as handle_module
from outlive.flows.calls import ChildCall
from outlive.flows.filtering import Statuses
from outlive.flows.flow import Flow
from outlive.flows.info import FlowCommit, FlowInfo
from outlive.flows.start_options import (
    StartManyOptions,
    StartOptions,
    TickOptions,
    TimetableOptions,
    refuse_options,
)
from outlive.model.instance import Entry, InstanceStatus
from outlive.model.options import Duration
from outlive.names import InstanceId
from outlive.runtime.portal import Portal
from outlive.work.schedules import ScheduleInfo

R = TypeVar("R")
A = TypeVar("A")
Ts = TypeVarTuple("Ts")


class FlowHandle(Generic[R]):
    """One flow; see ``outlive.FlowHandle``."""

    def __init__(self, handle: handle_module.FlowHandle[R], portal: Portal) -> None:
        self._handle = handle
        self._portal = portal

    def __repr__(self) -> str:
        return repr(self._handle)

    @property
    def id(self) -> InstanceId:
        """Its id."""
        return self._handle.id

    @property
    def entry(self) -> Entry | None:
        """What starting it did."""
        return self._handle.entry

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for the end of the flow, and return what its code returned."""
        return self._portal.run(self._handle.result(timeout))

    def status(self) -> FlowInfo:
        """What the store knows of it now."""
        return self._portal.run(self._handle.status())

    def history(self, *, after: int = 0, limit: int | None = None) -> list[FlowCommit]:
        """The commits of its current run, the oldest first."""
        return self._portal.run(self._handle.history(after=after, limit=limit))

    def signal(
        self,
        name: str,
        payload: object = None,
        *,
        id: str | None = None,  # noqa: A002 - it is one
    ) -> None:
        """Send a signal, which its code reads with ``outlive.wait_signal``."""
        self._portal.run(self._handle.signal(name, payload, id=id))

    def update(
        self,
        name: str,
        *args: Any,
        id: str | None = None,  # noqa: A002 - it is one
        timeout: Duration | None = None,
    ) -> Any:
        """Let its code handle an update, and return what that returned."""
        return self._portal.run(self._handle.update(name, *args, id=id, timeout=timeout))

    def query(self, name: str, *args: Any) -> Any:
        """Ask its code, which answers from what it knows and changes nothing."""
        return self._portal.run(self._handle.query(name, *args))

    def cancel(self, reason: str = "cancelled") -> None:
        """Ask its code to stop."""
        self._portal.run(self._handle.cancel(reason))

    def terminate(self, reason: str = "terminated") -> None:
        """End it at once, without asking its code."""
        self._portal.run(self._handle.terminate(reason))

    def suspend(self) -> None:
        """Let it begin nothing new, until it is resumed."""
        self._portal.run(self._handle.suspend())

    def resume(self) -> None:
        """Let a suspended flow go on."""
        self._portal.run(self._handle.resume())

    def retry(self, *, rerun_unknown: bool = False) -> None:
        """Let a flow go on from before what ended it."""
        self._portal.run(self._handle.retry(rerun_unknown=rerun_unknown))

    def fork(
        self,
        *,
        at: int | str,
        id: str | None = None,  # noqa: A002 - it is one
        input: Mapping[str, Any] | Sequence[Any] | None = None,  # noqa: A002 - it is one
    ) -> FlowHandle[R]:
        """Start a new flow from a part of this one's history."""
        forked = self._portal.run(self._handle.fork(at=at, id=id, input=input))
        return FlowHandle(forked, self._portal)


class Flows:
    """The flows of one namespace; see ``outlive.Flows``. Safe to use from many threads."""

    def __init__(self, flows: flows_module.Flows, portal: Portal) -> None:
        self._flows = flows
        self._portal = portal

    @overload
    def start(self, flow: str, *args: Any, **options: Unpack[StartOptions]) -> FlowHandle[Any]: ...
    @overload
    def start(
        self,
        flow: Callable[[A], ChildCall[R]],
        first: A,
        /,
        **options: Unpack[StartOptions],
    ) -> FlowHandle[R]: ...
    @overload
    def start(
        self,
        flow: Callable[[*Ts], ChildCall[R]],
        *args: *Ts,
        **options: Unpack[StartOptions],
    ) -> FlowHandle[R]: ...
    @overload
    def start(
        self,
        flow: Flow[..., R],
        *args: Any,
        kwargs: Mapping[str, Any],
        **options: Unpack[StartOptions],
    ) -> FlowHandle[R]: ...
    def start(
        self,
        flow: Any,
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,  # noqa: A002 - it is one
        at: datetime | None = None,
        delay: Duration | None = None,
        attributes: Mapping[str, Any] | None = None,
        tx: object = None,
        **unknown: Any,
    ) -> FlowHandle[Any]:
        """Start a flow, once for each id, and return a handle to it.

        ``tx`` is a synchronous connection, and is used on the caller's own thread.
        """
        if unknown:
            refuse_options(unknown)
        starting = self._flows.start(
            flow,
            *args,
            kwargs=kwargs or {},
            id=id,
            at=at,
            delay=delay,
            attributes=attributes,
            tx=tx,
        )
        return FlowHandle(run_with(self._portal, starting, tx), self._portal)

    @overload
    def start_many(
        self,
        flow: Callable[[A], ChildCall[R]],
        inputs: Iterable[A],
        **options: Unpack[StartManyOptions],
    ) -> list[FlowHandle[R]]: ...
    @overload
    def start_many(
        self,
        flow: Callable[[*Ts], ChildCall[R]],
        inputs: Iterable[tuple[*Ts]],
        **options: Unpack[StartManyOptions],
    ) -> list[FlowHandle[R]]: ...
    @overload
    def start_many(
        self, flow: str, inputs: Iterable[Any], **options: Unpack[StartManyOptions]
    ) -> list[FlowHandle[Any]]: ...
    def start_many(
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
        """Start up to 10,000 flows in one step, all that are not there yet, or none."""
        starting = self._flows.start_many(
            flow, inputs, ids=ids, at=at, delay=delay, attributes=attributes, tx=tx
        )
        started = run_with(self._portal, starting, tx)
        return [FlowHandle(handle, self._portal) for handle in started]

    @overload
    def schedule(
        self, name: str, flow: str, *args: Any, **options: Unpack[TimetableOptions]
    ) -> ScheduleInfo: ...
    @overload
    def schedule(
        self,
        name: str,
        flow: Callable[[A], ChildCall[Any]],
        first: A,
        /,
        **options: Unpack[TimetableOptions],
    ) -> ScheduleInfo: ...
    @overload
    def schedule(
        self,
        name: str,
        flow: Callable[[*Ts], ChildCall[Any]],
        *args: *Ts,
        **options: Unpack[TimetableOptions],
    ) -> ScheduleInfo: ...
    @overload
    def schedule(
        self,
        name: str,
        flow: Flow[..., Any],
        *args: Any,
        kwargs: Mapping[str, Any],
        **options: Unpack[TimetableOptions],
    ) -> ScheduleInfo: ...
    def schedule(
        self,
        name: str,
        flow: Any,
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        cron: str | None = None,
        every: Duration | None = None,
        **options: Unpack[TickOptions],
    ) -> ScheduleInfo:
        """Start a flow at each tick of a timetable, once in the fleet."""
        return self._portal.run(
            self._flows.schedule(
                name, flow, *args, kwargs=kwargs or {}, cron=cron, every=every, **options
            )
        )

    @overload
    def get(self, id: str, flow: Flow[..., R]) -> FlowHandle[R]: ...
    @overload
    def get(self, id: str, flow: None = None) -> FlowHandle[Any]: ...
    def get(self, id: str, flow: Flow[..., Any] | None = None) -> FlowHandle[Any]:  # noqa: A002
        """A handle to the flow of this id; nothing is asked."""
        return FlowHandle(self._flows.get(id, flow), self._portal)

    def list(  # noqa: PLR0913 - the filters are the public promise
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
        after: str | None = None,
        limit: int = 100,
    ) -> list[FlowInfo]:
        """A page of flows, the oldest first."""
        return self._portal.run(
            self._flows.list(
                name=name,
                status=status,
                prefix=prefix,
                attributes=attributes,
                parent=parent,
                created_after=created_after,
                created_before=created_before,
                stuck=stuck,
                after=after,
                limit=limit,
            )
        )

    def count(
        self,
        *,
        name: str | None = None,
        status: Statuses = None,
        attributes: Mapping[str, Any] | None = None,
        stuck: bool = False,
    ) -> dict[InstanceStatus, int]:
        """How many flows match, by status."""
        return self._portal.run(
            self._flows.count(name=name, status=status, attributes=attributes, stuck=stuck)
        )

    def purge(
        self,
        id: str | None = None,  # noqa: A002 - it is one
        *,
        name: str | None = None,
        status: Statuses = None,
        older_than: Duration | None = None,
    ) -> int:
        """Forget one ended flow, or all ended ones that match, and say how many."""
        return self._portal.run(
            self._flows.purge(id, name=name, status=status, older_than=older_than)
        )
