"""Flows without ``await``; see ``outlive.blocking``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar, TypeVarTuple, Unpack, overload

from outlive.blocking.calls import awaited, run_with
from outlive.flows import flows as flows_module
from outlive.flows import handle as handle_module
from outlive.flows.calls import ChildCall
from outlive.flows.flow import Flow
from outlive.flows.start_options import (
    StartManyOptions,
    StartOptions,
    refuse_options,
)
from outlive.model.instance import Entry
from outlive.model.options import Duration
from outlive.names import InstanceId
from outlive.runtime.portal import Portal

R = TypeVar("R")
A = TypeVar("A")
Ts = TypeVarTuple("Ts")


class FlowHandle(Generic[R]):
    """One flow; see ``outlive.FlowHandle``."""

    def __init__(self, handle: handle_module.FlowHandle[R], portal: Portal) -> None:
        self._twin = handle
        self._portal = portal

    def __repr__(self) -> str:
        return repr(self._twin)

    @property
    def id(self) -> InstanceId:
        """Its id."""
        return self._twin.id

    @property
    def entry(self) -> Entry | None:
        """What starting it did."""
        return self._twin.entry

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for the end of the flow, and return what its code returned."""
        return self._portal.run(self._twin.result(timeout))

    status = awaited(handle_module.FlowHandle[Any].status)
    history = awaited(handle_module.FlowHandle[Any].history)
    signal = awaited(handle_module.FlowHandle[Any].signal)
    update = awaited(handle_module.FlowHandle[Any].update)
    query = awaited(handle_module.FlowHandle[Any].query)
    cancel = awaited(handle_module.FlowHandle[Any].cancel)
    terminate = awaited(handle_module.FlowHandle[Any].terminate)
    suspend = awaited(handle_module.FlowHandle[Any].suspend)
    resume = awaited(handle_module.FlowHandle[Any].resume)
    retry = awaited(handle_module.FlowHandle[Any].retry)

    def fork(
        self,
        *,
        at: int | str,
        id: str | None = None,  # noqa: A002 - it is one
        input: Mapping[str, Any] | Sequence[Any] | None = None,  # noqa: A002 - it is one
    ) -> FlowHandle[R]:
        """Start a new flow from a part of this one's history."""
        forked = self._portal.run(self._twin.fork(at=at, id=id, input=input))
        return FlowHandle(forked, self._portal)


class Flows:
    """The flows of one namespace; see ``outlive.Flows``. Safe to use from many threads."""

    def __init__(self, flows: flows_module.Flows, portal: Portal) -> None:
        self._twin = flows
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
    def start(  # noqa: PLR0913 - each is a public option
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

        ``tx`` is a synchronous connection, and is used on the caller's own thread.
        """
        if unknown:
            refuse_options(unknown)
        starting = self._twin.start(
            flow,
            *args,
            kwargs=kwargs or {},
            id=id,
            at=at,
            delay=delay,
            attributes=attributes,
            anywhere=anywhere,
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
        starting = self._twin.start_many(
            flow, inputs, ids=ids, at=at, delay=delay, attributes=attributes, tx=tx
        )
        started = run_with(self._portal, starting, tx)
        return [FlowHandle(handle, self._portal) for handle in started]

    schedule = awaited(flows_module.Flows.schedule)

    @overload
    def get(self, id: str, flow: Flow[..., R]) -> FlowHandle[R]: ...
    @overload
    def get(self, id: str, flow: None = None) -> FlowHandle[Any]: ...
    def get(self, id: str, flow: Flow[..., Any] | None = None) -> FlowHandle[Any]:  # noqa: A002
        """A handle to the flow of this id; nothing is asked."""
        return FlowHandle(self._twin.get(id, flow), self._portal)

    list = awaited(flows_module.Flows.list)
    count = awaited(flows_module.Flows.count)
    purge = awaited(flows_module.Flows.purge)
