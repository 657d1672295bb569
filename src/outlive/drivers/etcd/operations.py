"""What an etcd transaction is made of, as plain values.

Pure, and free of the client library: decisions are written in these, and ``wire`` alone turns them
into messages.
"""

from __future__ import annotations

from typing import NamedTuple


class Stored(NamedTuple):
    """One key as etcd holds it. Revisions are numbers of the whole cluster that only grow."""

    key: bytes
    value: bytes
    created: int
    modified: int
    lease: int


class CreatedAt(NamedTuple):
    """Holds if ``key`` exists and was created by ``revision``; for 0, if it does not exist."""

    key: bytes
    revision: int


class Unmodified(NamedTuple):
    """Holds if no key from ``start`` up to ``end`` was written after ``revision``.

    Keys that vanished do not count: a release writes too, and an expiry only makes room.
    """

    start: bytes
    end: bytes
    revision: int


class Put(NamedTuple):
    """Write ``key``; it lives as long as ``lease``, or for ever when that is 0."""

    key: bytes
    value: bytes
    lease: int = 0


class Delete(NamedTuple):
    """Remove ``key``, or all keys up to ``end``; the answer shows what was removed."""

    key: bytes
    end: bytes = b""


class Read(NamedTuple):
    """Show ``key``, or all keys up to ``end``."""

    key: bytes
    end: bytes = b""


Condition = CreatedAt | Unmodified
Operation = Put | Delete | Read


class Answer(NamedTuple):
    """What became of a transaction: which branch ran, when, and what its operations showed."""

    succeeded: bool
    revision: int
    shown: list[list[Stored]]


class Term(NamedTuple):
    """A lease of etcd as the server gave it: its id, and its ttl in whole seconds."""

    id: int
    ttl_s: int


class News(NamedTuple):
    """One message of a watch: keys that were put and keys that were deleted, by turns.

    ``ready`` answers a request to watch; ``ended`` says that etcd gave the watch up.
    """

    ready: bool
    ended: bool
    put: list[Stored]
    deleted: list[Stored]
