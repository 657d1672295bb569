"""The values an instance store speaks in: what is started, claimed, committed, sent and shown.

Pure. An instance is one run of something durable: a row, an append-only history and a mailbox.
Instants of the store's clock stay inside drivers; ``*_at_us`` here is the store's wall clock in
microseconds since 1970, ``*_us`` alone is a duration, and what people are shown is an aware
datetime. Inputs, events, outcomes and payloads are JSON text that no store looks into.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from outlive.model.job import NewJob
from outlive.names import HostId, InstanceId, Token

# One call, one statement or a few: more than this is an import, to be sent in several calls.
START_MAX = 10_000

# What one claim brings along is held in memory until it is run; whoever has more room asks again.
CLAIM_MAX = 1000

# Letters that one claim or one reading brings along for an instance; the next reading brings more.
LETTERS_MAX = 100

# Unread letters of one instance. A sender that is ahead by more has found one that never reads.
MAILBOX_MAX = 10_000

# So many wishes to cancel find room beyond that: whoever cannot be reached by signals any more must
# be able to be stopped. One is enough, and callers in a hurry send some.
CANCELS_MAX = 100

# Rows of histories that one step removes, but for those of its last instance: some tenths of a
# second, in which others may wait for the store. Letters that were read are not counted; they are
# many only where the history is long, or began anew again and again.
REMOVED_ROWS_MAX = 20_000

# What was committed at once and is written as one row.
EVENTS_BYTES_MAX = 16 * 1024 * 1024


class InstanceStatus(StrEnum):
    """Where an instance stands. The first three are live, the others final.

    ``pending`` was never claimed; ``suspended`` is live and goes on only when it is resumed.
    """

    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TERMINATED = "terminated"


LIVE = (InstanceStatus.PENDING, InstanceStatus.RUNNING, InstanceStatus.SUSPENDED)
FINAL = (
    InstanceStatus.COMPLETED,
    InstanceStatus.FAILED,
    InstanceStatus.CANCELLED,
    InstanceStatus.TERMINATED,
)


class NewInstance(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An instance to be started.

    Attributes:
        kind: ``flow`` or ``chart``.
        name: Of its definition; hosts claim what they can run by it.
        request: Unique to the call that starts it. After a lost reply the same request is answered
            ``created`` again.
        session: Start it as claimed by this living session; otherwise anybody may claim it.
        worker: The name of the session's host, for people.
        delay_us: Not claimable before, counted by the store from its start.
        due_at_us: Instead of a delay: not claimable before this instant.
        parent: Who is told of its end (by its own commit, not by the store).
        outlives: It goes on when its parent is terminated.
        history: Rows to begin with, each a JSON list of events: a fork brings what came before.
        attributes: A JSON object of strings, numbers and booleans, by which it can be found.
        headers: What travels along, such as the trace.
        retention_us: How long it is kept after its end.
    """

    id: InstanceId
    kind: str
    name: str
    input: str
    request: str
    session: HostId | None = None
    worker: str = ""
    delay_us: int = 0
    due_at_us: int | None = None
    parent: InstanceId | None = None
    outlives: bool = False
    history: tuple[str, ...] = ()
    attributes: str = "{}"
    headers: str = "{}"
    retention_us: int = 7 * 86_400_000_000


class Entry(StrEnum):
    """What became of a ``NewInstance``: ``existing`` changed nothing."""

    CREATED = "created"
    EXISTING = "existing"


class Started(msgspec.Struct, frozen=True, gc=False):
    """The outcome for one ``NewInstance``.

    ``name`` and ``parent`` are those of the instance that has the id now; ``token`` is that of the
    claim if it was created for a session, else 0. ``began_at_us`` is the instant of its creation.
    """

    id: InstanceId
    entry: Entry
    name: str
    parent: InstanceId | None
    token: Token
    began_at_us: int


class InstanceClaimRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt to claim.

    Attributes:
        session: Whose they are; it must be alive.
        worker: The host's name, for people.
        request: Unique to this call. ``again`` repeats it after a lost reply.
        names: Definitions of ``kind`` that the host can run.
        limit: At most so many. 0 asks only for ``letters``.
        wait_us: Above zero: if fewer than ``limit`` were had, the host is rung when an instance of
            one of the names becomes claimable, for so long.
    """

    session: HostId
    worker: str
    request: str
    kind: str
    names: tuple[str, ...]
    limit: int
    again: bool = False
    wait_us: int = 0


class Letter(msgspec.Struct, frozen=True, gc=False):
    """A message that lies unread in a mailbox; ``number`` is its place there, growing."""

    number: int
    id: str
    kind: str
    name: str
    payload: str
    sent_at_us: int


CANCEL_KIND = "cancel"
"""The kind of a letter that wants an instance to end: it may have it before its time."""


class ClaimedInstance(msgspec.Struct, frozen=True, gc=False):
    """An instance and the token of its claim. Every later write of its owner carries both.

    ``version`` is how often it was committed; ``base`` is the version after which its history
    begins: of the current run, ``version - base`` rows are in the store. ``began_at_us`` is when
    the current run began, which for one that was to begin later is when it was due, or when it was
    claimed or reopened before that; once a row is recorded, it stays what it was. ``letters`` are
    the first ``LETTERS_MAX`` in its mailbox. ``first``: nobody has had it before, so that none of
    its code has run; a claim that is asked for again may not know it.
    """

    id: InstanceId
    kind: str
    name: str
    token: Token
    version: int
    base: int
    input: str
    began_at_us: int
    parent: InstanceId | None
    headers: str
    attributes: str
    custom: str | None
    letters: tuple[Letter, ...] = ()
    first: bool = False


class ClaimedInstances(msgspec.Struct, frozen=True, gc=False):
    """The answer to a claim.

    ``next_due_s`` is when the next unowned instance of the names comes due, if there is one and
    fewer than asked for were had; or sooner, where the store wants to be asked again. ``letters``
    names instances that the session owned before and whose mailbox is not empty: a ring that was
    lost is made good by it. ``at_us`` is the store's wall clock.
    """

    instances: tuple[ClaimedInstance, ...]
    at_us: int
    next_due_s: float | None = None
    letters: tuple[InstanceId, ...] = ()


class Message(msgspec.Struct, frozen=True, gc=False):
    """Something sent to an instance. A second one of the same id to the same receiver is nothing.

    ``kind`` is for the receiver: ``signal``, ``update``, ``cancel``, ``child``, ``step``…
    """

    to: InstanceId
    id: str
    kind: str
    name: str
    payload: str


class Sent(StrEnum):
    """What became of a message.

    ``duplicate`` has been sent before, also to one that has ended since, and changed nothing.
    """

    SENT = "sent"
    DUPLICATE = "duplicate"
    ENDED = "ended"
    FULL = "full"
    NOT_FOUND = "not_found"


class Reply(msgspec.Struct, frozen=True, gc=False):
    """What an instance answers to a message, kept for its sender as long as the instance is."""

    message: str
    payload: str


class Commit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One step of an instance: what happened and what was decided, all of it or nothing.

    Attributes:
        version: The one that it makes; the instance must have the one before.
        commit: Its id. The same commit sent again after a lost reply is ``ok`` and changes nothing.
        events: A JSON list; the history row of this version.
        due_at_us: When it must be looked at again although nothing arrives; ``None`` for never.
        status: ``running``, or how it ended. The end empties the mailbox, and releases.
        outcome: With the end: its result or error.
        custom, attributes: ``None`` leaves what was.
        consumed: Numbers of letters that this commit takes out of the mailbox.
        sends: Messages to others, those that it starts included; one to somebody who ended or
            never was is dropped, and none finds a mailbox too full.
        starts: Instances to start with it, unowned.
        jobs: Jobs to enqueue with it.
        restart: The input of a new run, which begins with this commit: all history rows before
            this one are removed, ``base`` is the version before, and it begins now.
        release: Give it up with this commit: anybody may claim it when due, or by a letter.
    """

    id: InstanceId
    token: Token
    version: int
    commit: str
    events: str
    due_at_us: int | None = None
    status: InstanceStatus = InstanceStatus.RUNNING
    outcome: str | None = None
    custom: str | None = None
    attributes: str | None = None
    consumed: tuple[int, ...] = ()
    sends: tuple[Message, ...] = ()
    starts: tuple[NewInstance, ...] = ()
    jobs: tuple[NewJob, ...] = ()
    replies: tuple[Reply, ...] = ()
    restart: str | None = None
    release: bool = False


class Committed(msgspec.Struct, frozen=True, gc=False):
    """The answer to a commit.

    Not ``ok``: the token or the version was not the newest, and nothing was changed. ``suspended``:
    committed, and somebody wants that nothing new is begun. ``taken`` are the ids of ``starts``
    that others had already; the rest was committed. ``at_us`` is the store's wall clock; of what
    was committed it is the time of its row, at which a new run begins. ``repeated``: that was made
    before, so that it says nothing of the time that it is now.
    """

    ok: bool
    at_us: int
    suspended: bool = False
    taken: tuple[InstanceId, ...] = ()
    repeated: bool = False


class Handback(msgspec.Struct, frozen=True, gc=False):
    """An owner gives an instance up. ``due``: it can be claimed at once; else by what it waits for.

    Under the claim's token only.
    """

    id: InstanceId
    token: Token
    due: bool = False


class Opened(StrEnum):
    """What became of an operator's wish. ``refused``: the status does not allow it."""

    CHANGED = "changed"
    REFUSED = "refused"
    NOT_FOUND = "not_found"


class ReclaimedInstance(msgspec.Struct, frozen=True, gc=False):
    """An instance whose owner is gone: it can be claimed at once."""

    id: InstanceId
    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFilter:
    """Which instances are meant; what is ``None`` or empty does not matter.

    ``attributes`` is a JSON object: every member must be there with an equal value; and so must
    the one that ``has_attribute`` names, with any value. ``created_*`` and ``ended_before`` are
    instants in microseconds.
    """

    kind: str | None = None
    names: tuple[str, ...] = ()
    statuses: tuple[InstanceStatus, ...] = ()
    prefix: str | None = None
    parent: InstanceId | None = None
    attributes: str | None = None
    created_from_us: int | None = None
    created_before_us: int | None = None
    ended_before_us: int | None = None
    has_attribute: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRecord:
    """What the store knows of one instance.

    ``owner`` and ``owned_by`` are the session and the name of the host that has it now. ``cursor``
    is where a page that ends with it goes on.
    """

    id: InstanceId
    kind: str
    name: str
    status: InstanceStatus
    input: str
    outcome: str | None
    custom: str | None
    attributes: str
    headers: str
    parent: InstanceId | None
    token: Token
    version: int
    base: int
    owner: HostId | None
    owned_by: str | None
    created_at: datetime
    began_at_us: int
    updated_at: datetime
    ended_at: datetime | None
    due_at: datetime | None
    cursor: str


class HistoryRow(msgspec.Struct, frozen=True, gc=False):
    """One commit of an instance, as it was written. ``worker`` is the host that wrote it."""

    version: int
    token: Token
    worker: str | None
    at_us: int
    events: str
