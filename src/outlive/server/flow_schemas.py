"""What goes in and out over HTTP about flows: each request and each answer, once, as a type.

Read with ``schemas``, whose rules hold here too. The parameters with capitals are those that
callers of other orchestrators know.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType, field

from outlive.flows.attributes import ATTRIBUTES_MAX
from outlive.model.instance import InstanceStatus
from outlive.names import KEY_BYTES_MAX, REASON_LENGTH_MAX
from outlive.server import limits
from outlive.server.schemas import PAIR, PRINTABLE, WITHOUT_HASH, Answer, Name, Request, Seconds

FlowName = Annotated[str, Meta(min_length=1, max_length=KEY_BYTES_MAX, pattern=WITHOUT_HASH)]
Reason = Annotated[str, Meta(min_length=1, max_length=REASON_LENGTH_MAX, pattern=PRINTABLE)]
Attributes = Annotated[
    dict[Name, bool | int | float | str],
    Meta(max_length=ATTRIBUTES_MAX, description="Attributes to find the flow by."),
]
# Far above any version, and what JSON numbers can say exactly.
_VERSION_MAX = 2**53


class StartFlow(Request):
    """A flow to be started.

    Attributes:
        input: Its arguments by name.
        id: Yours to choose, so that asking again after a lost reply starts nothing.
        delay: Seconds until it begins.
        at: Not before this instant, with its offset from UTC; with ``delay``, the later counts.
    """

    input: dict[str, Any] = field(default_factory=dict[str, Any])
    id: Name | None = None
    delay: Seconds | None = None
    at: Annotated[datetime, Meta(tz=True)] | None = None
    attributes: Attributes = field(default_factory=dict[str, Any])


class Signal(Request):
    """A signal. Sent again under the same ``id``, it is nothing."""

    payload: Any = None
    id: Name | None = None


class Fork(Request):
    """A new flow from a part of another's history.

    Attributes:
        at: Up to which commit it is copied: a version, or the identity of a step such as
            ``charge#0``, which the copy runs again.
        input: Other arguments by name; left out, those of the flow.
        id: Of the new flow.
    """

    at: Annotated[float, Meta(ge=0, le=_VERSION_MAX, multiple_of=1)] | Name
    input: dict[str, Any] | None = None
    id: Name | None = None


class WithReason(Request):
    """Why it is done, for whoever reads the history."""

    reason: Reason | None = None


class RetryFlow(Request, rename={"rerun_unknown": "rerunUnknown"}):
    """Whether steps that are to run once, and of which nobody knows, are run again."""

    rerun_unknown: bool = False


class FlowQuery(
    Request,
    rename={
        "show_history": "showHistory",
        "show_history_output": "showHistoryOutput",
        "show_input": "showInput",
        "history_after": "historyAfter",
    },
):
    """How much is wanted to be seen of a flow, and for how long its end is waited for."""

    show_history: bool = False
    show_history_output: bool = False
    show_input: bool = False
    history_after: Annotated[int, Meta(ge=0, le=_VERSION_MAX)] = 0
    wait: Annotated[float, Meta(ge=0, le=limits.WAIT_MAX_S)] = 0.0


class FlowsQuery(Request, rename={"show_input": "showInput"}):
    """Which flows are wanted, and where the page begins.

    Attributes:
        attribute: ``name=value``; a value that reads as a number or as true or false is that, and
            text that does so stands in double quotes.
        stuck: Only live ones that cannot go on by the code of any host.
        after: The ``next_after`` of the page before.
    """

    status: Annotated[list[InstanceStatus], Meta(max_length=len(InstanceStatus))] = field(
        default_factory=list[InstanceStatus]
    )
    name: Name | None = None
    prefix: Name | None = None
    attribute: Annotated[
        list[Annotated[str, Meta(max_length=1024, pattern=PAIR)]],
        Meta(max_length=ATTRIBUTES_MAX),
    ] = field(default_factory=list[str])
    stuck: bool = False
    show_input: bool = False
    limit: Annotated[int, Meta(ge=1, le=limits.PAGE_MAX)] = limits.PAGE_DEFAULT
    after: Name | None = None


class StartedFlow(Answer):
    """A flow that is stored and will be run. ``links`` are paths of this server.

    ``entry`` is ``created``, or ``existing``: the id had been started before, and nothing was now.
    A fork is ``created`` however often this very copy is asked for.
    """

    id: str
    entry: str
    links: dict[str, str]


class FlowCommit(Answer):
    """One commit of a flow: what happened, and what its code decided on it, in order.

    What users wrote (inputs, results, messages of errors, payloads, reasons) is in ``events`` only
    with ``showHistoryOutput`` and the scope ``payload:read``.
    """

    version: int
    token: int
    host: str | None
    at: datetime
    events: list[dict[str, Any]]


class Flow(Answer):
    """What is known of a flow.

    What users wrote (input, outcome, custom, attributes) is left out unless the bearer has the
    scope ``payload:read``.

    Attributes:
        outcome: Its result if it completed, else what went wrong.
        custom: What its code said last of itself.
        next_history_after: Where the history goes on, if it does.
    """

    id: str
    name: str
    status: str
    parent: str | None
    host: str | None
    token: int
    version: int
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    due_at: datetime | None
    input: Any | UnsetType = UNSET
    outcome: Any | UnsetType = UNSET
    custom: Any | UnsetType = UNSET
    attributes: dict[str, Any] | UnsetType = UNSET
    history: list[FlowCommit] | UnsetType = UNSET
    next_history_after: int | UnsetType | None = UNSET
    links: dict[str, str] | UnsetType = UNSET


class Flows(Answer):
    """A page of flows, the oldest first; ``next_after`` is where the next one begins."""

    flows: list[Flow]
    next_after: str | None
