"""What goes in and out over HTTP: each request and each answer, once, as a type.

Requests are validated by these types, and the OpenAPI document is made from them, so that both
cannot differ. Durations are seconds; instants are UTC in ISO 8601.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from outlive.model.job import PRIORITY_MAX
from outlive.names import KEY_BYTES_MAX
from outlive.runtime.hosts import HOSTS_MAX, HostInfo
from outlive.server import limits

# The dollar of Python matches before a last line feed too, that of the OpenAPI document does not;
# with this both mean the end.
END = r"$(?!\n)"
# As in outlive.names: what breaks terminals and logs is no part of a name.
PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+" + END
# As a name of a flow: identities of steps and ids of children have a # behind it.
WITHOUT_HASH = r"^[^#\x00-\x1f\x7f-\x9f\u2028\u2029]+" + END
PAIR = r"^[^=]+=[^\x00-\x1f]*" + END
# A nonce or a request id is random text in a few safe characters.
_PLAIN = r"^[A-Za-z0-9_.:-]+" + END
_ASCII = r"^[\x20-\x7e]+" + END
_CURSOR = r"^[0-9]{1,18}" + END
PATTERNS = {
    PRINTABLE: "without control characters",
    WITHOUT_HASH: "without control characters and #",
    PAIR: "of the form NAME=VALUE",
    _PLAIN: "of A-Z, a-z, 0-9, '_', '.', ':' and '-'",
    _ASCII: "of printable ASCII characters",
    _CURSOR: "from `next_after`",
}
"""How a refusal describes what must match; a choice between words is listed."""

# Ten years: above it a number of seconds is a mistake in its unit.
_SECONDS_MAX = 315_360_000.0

Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=KEY_BYTES_MAX,
        pattern=PRINTABLE,
        description=f"At most {KEY_BYTES_MAX} bytes of UTF-8.",
    ),
]
ErrorType = Annotated[str, Meta(min_length=1, max_length=limits.TYPE_LENGTH_MAX, pattern=PRINTABLE)]
WorkerId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=64,
        pattern=_PLAIN,
        description="Name of the worker, for people; different for each process.",
    ),
]
Nonce = Annotated[str, Meta(min_length=1, max_length=64, pattern=_PLAIN)]
ClaimId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=2048,
        pattern=_ASCII,
        description="From the answer to next; proves the claim.",
    ),
]
Ttl = Annotated[
    float,
    Meta(
        ge=limits.TTL_MIN_S,
        le=limits.TTL_MAX_S,
        description="How long the claims of this worker outlive its last heartbeat.",
    ),
]
Seconds = Annotated[float, Meta(ge=0, le=_SECONDS_MAX)]
Reason = Annotated[str, Meta(min_length=1, max_length=10_000)]


class Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a client sends."""


class Next(Request):
    """A worker asks for its next item.

    Attributes:
        session: Random text that the worker chose at its start. With it, every server of a fleet
            knows the worker's session; without it, each server keeps one of its own for it.
        request_id: Unique to this request. Sent again after a lost reply, it gives the same item.
        item: This item alone.
    """

    worker_id: WorkerId
    queues: Annotated[list[Name], Meta(min_length=1, max_length=limits.QUEUES_MAX)]
    wait: Annotated[float, Meta(ge=0, le=limits.WAIT_MAX_S)] = 0.0
    ttl: Ttl = limits.TTL_DEFAULT_S
    item: Name | None = None
    request_id: Nonce | None = None
    session: Nonce | None = None


class Complete(Request):
    """The item is done."""

    claim_id: ClaimId
    result: Any = None


class Fail(Request):
    """The item was tried and failed; without ``retry_in`` its own policy decides.

    ``error_type`` is what a policy goes by; ``dead`` says that trying again is of no use.
    """

    claim_id: ClaimId
    error: Reason
    error_type: ErrorType | None = None
    retry_in: Seconds | None = None
    dead: bool = False


class Release(Request):
    """The item was not tried: back to its place, ``delay`` seconds from now."""

    claim_id: ClaimId
    delay: Seconds = 0.0


class Progress(Request):
    """A claim that is still worked on, and how far it is."""

    claim_id: ClaimId
    progress: Any = None


class Heartbeat(Request):
    """The worker lives and works on these claims; without ``ttl`` its session keeps its own.

    ``complete`` says that these are all it knows of: what it was given a ttl ago or earlier, and
    never named, is given back.
    """

    worker_id: WorkerId
    claims: Annotated[list[Progress], Meta(max_length=limits.CLAIMS_MAX)] = []
    complete: bool = False
    ttl: Ttl | None = None
    session: Nonce | None = None


class RetryPolicy(Request):
    """When a failed item is tried again; what is missing is left to whoever runs it."""

    max_attempts: Annotated[float, Meta(ge=1, le=1000, multiple_of=1)] | None = None
    first: Seconds | None = None
    factor: Annotated[float, Meta(ge=1, le=1000)] | None = None
    longest: Seconds | None = None
    jitter: Annotated[float, Meta(ge=0, le=1)] | None = None
    on: Annotated[list[ErrorType], Meta(max_length=50)] | None = None
    never: Annotated[list[ErrorType], Meta(max_length=50)] | None = None


class NewItem(Request):
    """An item to be queued; see ``enqueue`` in the API reference for what each means.

    Whole numbers are multiples of one, because JSON does not tell 3 from 3.0.
    """

    payload: Any = None
    id: Name | None = None
    priority: Annotated[float, Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX, multiple_of=1)] = 0
    delay: Seconds = 0.0
    at: Annotated[datetime, Meta(tz=True)] | None = None
    unique_key: Name | None = None
    on_duplicate: Annotated[str, Meta(pattern="^(reject|replace|return)" + END)] = "reject"
    ordering_key: Name | None = None
    max_attempts: Annotated[float, Meta(ge=1, le=1000, multiple_of=1)] | None = None
    retry: RetryPolicy | None = None
    expires: Annotated[float, Meta(ge=0.001, le=_SECONDS_MAX)] | None = None
    retention: Seconds | None = None
    headers: Annotated[dict[Name, Annotated[str, Meta(max_length=1024)]], Meta(max_length=32)] = {}


NewItems = Annotated[list[NewItem], Meta(min_length=1, max_length=limits.BATCH_MAX)]


class QueuesQuery(Request):
    """Which page of the queues, by name, is wanted."""

    limit: Annotated[int, Meta(ge=1, le=limits.PAGE_MAX)] = limits.PAGE_MAX
    after: Name | None = None


class HostsQuery(Request):
    """How many hosts are wanted."""

    limit: Annotated[int, Meta(ge=1, le=HOSTS_MAX)] = HOSTS_MAX


class ItemsQuery(Request):
    """Which items are wanted, and where the page begins."""

    state: (
        Annotated[
            str,
            Meta(pattern="^(scheduled|ready|claimed|retrying|done|dead|cancelled)" + END),
        ]
        | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=limits.PAGE_MAX)] = limits.PAGE_DEFAULT
    after: Annotated[str, Meta(pattern=_CURSOR)] | None = None


class Answer(msgspec.Struct, kw_only=True):
    """What the server says."""


class ClaimedItem(Answer):
    """An item, claimed. ``expires_in`` counts from the moment of the answer."""

    id: str
    queue: str
    claim_id: str
    token: int
    payload: Any
    headers: dict[str, Any]
    attempt: int
    priority: int
    enqueued_at: datetime
    deadline: datetime
    expires_in: float


class Settled(Answer):
    """The claim has ended as asked: ``state`` is ``ok``, also if the item was to be cancelled."""

    state: str


class Beat(Answer):
    """One claim after a heartbeat: ``ok``, ``cancel`` (stop, then fail or release) or ``lost``."""

    claim_id: str
    state: str


class Beaten(Answer):
    """The claims that were named, and until when those that stand do so.

    ``released`` are the ids of items that were given back, because their reply was lost.
    """

    claims: list[Beat]
    released: list[str]
    deadline: datetime
    expires_in: float


class Queued(Answer):
    """What became of one new item, and the id of the item that stands in the queue now.

    ``outcome`` is ``created``, ``existing``, ``replaced``, ``rejected``, ``closed`` or
    ``conflict``: an item of another queue has the id. ``payload_differs`` is there and true if the
    item of this id carries another payload, which stays.
    """

    id: str
    outcome: str
    payload_differs: bool | UnsetType = UNSET


class QueuedMany(Answer):
    """What became of each new item, in their order."""

    items: list[Queued]


class Queue(Answer):
    """A queue and what is in it."""

    name: str
    mode: str
    concurrency: int | None
    rate: int | None
    rate_period: float
    limits_by: str | None
    counts: dict[str, int]
    oldest_ready: float | None


class Queues(Answer):
    """A page of queues by name; ``next_after`` is where the next one begins."""

    queues: list[Queue]
    next_after: str | None


class Try(Answer):
    """One claim that ended badly."""

    token: int
    outcome: str
    worker: str | None
    claimed_at: datetime | None
    ended_at: datetime
    error: Any | UnsetType = UNSET


class Item(Answer):
    """What is known of an item.

    What users wrote (payload, headers, result, error, progress) is left out unless the bearer has
    the scope ``payload:read``.
    """

    id: str
    queue: str
    state: str
    priority: int
    token: int
    attempts: int
    losses: int
    max_attempts: int
    unique_key: str | None
    ordering_key: str | None
    blocked: bool
    cancel_requested: bool
    claimed_by: str | None
    claimed_at: datetime | None
    enqueued_at: datetime
    due_at: datetime
    ended_at: datetime | None
    payload: Any | UnsetType = UNSET
    headers: dict[str, Any] | UnsetType = UNSET
    result: Any | UnsetType = UNSET
    error: Any | UnsetType = UNSET
    progress: Any | UnsetType = UNSET
    tries: list[Try] | UnsetType = UNSET


class Items(Answer):
    """A page of items in order of enqueueing; ``next_after`` is where the next one begins."""

    items: list[Item]
    next_after: str | None


class Hosts(Answer):
    """The living hosts and HTTP workers, the oldest first, with what each owns."""

    hosts: list[HostInfo]


class Health(Answer):
    """Whether the server can do its work: ``ok`` or ``unavailable``."""

    status: str
