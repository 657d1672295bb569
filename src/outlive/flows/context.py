"""What the code of a flow may ask for, besides steps, other flows and asyncio's own tools.

Everything here is the same at every replay. Outside of a flow each raises ``UsageError``.
"""

from __future__ import annotations

import inspect
import logging
import random as _random
import uuid as _uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, TypeVarTuple, cast, overload

from outlive.clock import instant, microseconds
from outlive.errors import UsageError
from outlive.flows.answering import Answerer
from outlive.flows.arguments import encoded, text_of
from outlive.flows.attributes import with_attributes
from outlive.flows.calls import ChildCall, SignalWait
from outlive.flows.flow import Flow
from outlive.flows.running import running_flow, the_flow
from outlive.model.options import Duration, seconds
from outlive.names import InstanceId, check_key
from outlive.serialization import decode_plain

if TYPE_CHECKING:
    from outlive.flows.run import FlowRun

T = TypeVar("T")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")
Function = TypeVar("Function", bound=Callable[..., Any])

# A status is a line for people, or a small document; it is written with every change.
STATUS_BYTES_MAX = 16 * 1024


def now() -> datetime:
    """The flow's time: when what happened last was recorded, by the store's clock."""
    return instant(the_flow("now()").at_us)


def uuid() -> _uuid.UUID:
    """A new id, the same at every replay."""
    return _changed("uuid()").chances.uuid()


def random() -> _random.Random:
    """The flow's own dice, which fall the same at every replay."""
    return _changed("random()").chances.dice


def _changed(what: str) -> FlowRun:
    """The run, whose state ``what`` changes."""
    run = the_flow(what)
    if run.loop.looking:
        raise UsageError(
            f"a query or a validator is read-only: outlive.{what} would change the flow; call it "
            "in the main code of the flow"
        )
    return run


def flow_id() -> InstanceId:
    """The id of the flow."""
    return the_flow("flow_id()").id


def logger(name: str = "outlive.flow") -> logging.LoggerAdapter[logging.Logger]:
    """A logger that is silent during replay, and whose records carry the flow's id and the host.

    For flow code itself: it knows which flow it is in.
    """
    if running_flow() is None:
        raise UsageError(
            "outlive.logger() works only in the code of a flow: use outlive.current().log in a "
            "step, and logging.getLogger(__name__) elsewhere"
        )
    run = the_flow("logger()")
    return _FlowLog(run.logs.logger(name), {"flow": run.id, "flow_name": run.flow.name})


class _FlowLog(logging.LoggerAdapter[logging.Logger]):
    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - as logging has it
        return not the_flow("logger()").replaying and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


async def sleep_until(when: datetime) -> None:
    """Wait until ``when``, by a durable timer; at once if that has passed.

    Raises:
        UsageError: It has no time zone.
    """
    if when.tzinfo is None:
        raise UsageError("sleep_until needs a datetime with a time zone, such as datetime.now(UTC)")
    run = the_flow("sleep_until()")
    due_us = microseconds(when)
    if due_us <= run.at_us:
        return
    arrived = run.loop.create_future()
    timer = run.loop.call_at(due_us / 1e6, _arrive, arrived)
    try:
        await arrived
    finally:
        timer.cancel()


def _arrive(future: Any) -> None:
    if not future.done():
        future.set_result(None)


@overload
def wait_signal(name: str, *, timeout: Duration | None = None) -> SignalWait[Any]: ...
@overload
def wait_signal(name: str, kind: type[T], *, timeout: Duration | None = None) -> SignalWait[T]: ...
def wait_signal(name: str, kind: Any = Any, *, timeout: Duration | None = None) -> SignalWait[Any]:
    """Wait for the next signal of this name, as this type; without one as plain JSON.

    Signals are read in the order in which they came, each once, also if they came before. What is
    returned is awaited, or given to asyncio's tools. Cancelling it leaves the signal to the next.

    Raises:
        TimeoutError: When awaited: none came in time.
        InvalidPayload: When awaited: the signal does not fit the type; it is read all the same.
    """
    run = the_flow("wait_signal()")
    run.asking.check()
    timeout_s = None if timeout is None else seconds(timeout, "timeout")
    return run.inbox.wait(check_key(name, "the name of a signal"), kind, timeout_s)


def signal(id: str, name: str, payload: object = None) -> None:  # noqa: A002 - it is one
    """Send a signal to another flow, with the next commit. To nobody there, it is dropped.

    Raises:
        UsageError: The payload cannot be stored as JSON.
    """
    flow = InstanceId(check_key(id, "the id of a flow"))
    the_flow("signal()").asking.signal(flow, check_key(name, "the name of a signal"), payload)


@overload
def start_child(
    flow: Callable[[*Ts], Awaitable[R]],
    *args: *Ts,
    id: str | None = None,
    on_parent_end: Literal["cancel", "abandon"] = "cancel",
) -> ChildCall[R]: ...
@overload
def start_child(
    flow: Flow[..., R],
    *args: Any,
    kwargs: Mapping[str, Any],
    id: str | None = None,
    on_parent_end: Literal["cancel", "abandon"] = "cancel",
) -> ChildCall[R]: ...
def start_child(
    flow: Callable[..., Awaitable[Any]],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    id: str | None = None,  # noqa: A002 - it is one
    on_parent_end: Literal["cancel", "abandon"] = "cancel",
) -> Any:
    """Start another flow with the next commit. Calling the flow does the same, and no more.

    Args:
        flow: The flow.
        args: Its arguments by position.
        kwargs: Those by name.
        id: Its id; by default made from that of this flow.
        on_parent_end: Whether it is cancelled or left alone (``"abandon"``) when this flow ends
            before it. One that is abandoned need not be awaited.

    Raises:
        UsageError: It is no flow, or the arguments cannot be stored as JSON.
        FlowExists: When awaited: the id belongs to another flow. (As ``FlowFailed.type``.)
    """
    run = the_flow("start_child()")
    if not isinstance(flow, Flow):
        raise UsageError(f"start_child needs a flow of an app, not {flow!r}")
    if on_parent_end not in ("cancel", "abandon"):
        raise UsageError(f"on_parent_end must be 'cancel' or 'abandon', not {on_parent_end!r}")
    return run.asking.child(
        cast("Flow[..., Any]", flow),
        args,
        dict(kwargs or {}),
        id=id,
        abandon=on_parent_end == "abandon",
    )


def set_status(status: object) -> None:
    """Let people see where the flow stands: any JSON; the newest counts.

    Raises:
        UsageError: It cannot be stored as JSON, or is too long.
    """
    run = the_flow("set_status()")
    run.asking.check()
    run.custom = text_of(encoded(status, "the status", limit=STATUS_BYTES_MAX))


def set_attributes(attributes: Mapping[str, str | float | bool | None]) -> None:
    """Set attributes by which the flow can be found; ``None`` removes one.

    Raises:
        UsageError: One of them is no string, number or boolean, or there are too many.
        InvalidName: A name is empty, or holds what no name may hold.
    """
    run = the_flow("set_attributes()")
    run.asking.check()
    run.attributes = with_attributes(decode_plain(run.attributes), attributes)


def patched(id: str) -> bool:  # noqa: A002 - it is one
    """Whether this run takes the new way of code that was changed.

    False for runs that came by here before the change was deployed, True for all others: one
    answer for the whole run.
    """
    return the_flow("patched()").asking.patched(check_key(id, "the id of a patch"))


def continue_as_new(*args: Any, **kwargs: Any) -> NoReturn:
    """End this run, and begin the flow anew with these arguments under the same id.

    The history begins anew as well; signals that were not read go along. Children that have not
    ended are left alone.

    Raises:
        UsageError: The arguments do not fit, or this is not the flow's own task.
    """
    raise the_flow("continue_as_new()").asking.restart(args, kwargs)


@overload
def on_query(function: Function, /) -> Function: ...
@overload
def on_query(name: str | None = None, /) -> Callable[[Function], Function]: ...
def on_query(given: Any = None, /) -> Any:
    """Let this function answer a query of its name, or of ``name``: a plain ``def``.

    For functions inside the flow's code. It only looks: a copy of what it returns, by way of JSON,
    is sent to who asks.
    """
    run = _changed("on_query()")

    def register(function: Function, name: str | None = None) -> Function:
        known = check_key(name or function.__name__, "the name of a query")
        if inspect.iscoroutinefunction(function):
            raise UsageError(f"query {known!r} must not wait: write it as a plain `def`")
        run.answering.queries[known] = Answerer(function, f"query {known}")
        return function

    if callable(given):
        return register(cast("Callable[..., Any]", given))
    return partial(register, name=cast("str | None", given))


@overload
def on_update(function: Function, /) -> Function: ...
@overload
def on_update(
    name: str | None = None, /, *, validator: Callable[..., None] | None = None
) -> Callable[[Function], Function]: ...
def on_update(given: Any = None, /, *, validator: Callable[..., None] | None = None) -> Any:
    """Let this function take an update of its name, or of ``name``: ``async def`` or ``def``.

    For functions inside the flow's code. ``validator`` gets the same arguments before anything is
    recorded, and raises to reject the update. What the function returns or raises is replied.
    """
    run = _changed("on_update()")

    def register(function: Function, name: str | None = None) -> Function:
        known = check_key(name or function.__name__, "the name of an update")
        run.answering.updates[known] = Answerer(function, f"update {known}", validator)
        return function

    if callable(given):
        return register(cast("Callable[..., Any]", given))
    return partial(register, name=cast("str | None", given))
