"""What the memory store keeps of instances: rows with their histories and mailboxes, and lines.

Owns the data; decides nothing. Instants are UTC in microseconds; notes of hosts that wait or watch
are measured by the process clock, which no jump of the wall clock moves.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from outlive.drivers.memory.lines import Line, Roll
from outlive.model.instance import HistoryRow, InstanceStatus, Letter, NewInstance
from outlive.names import HostId, InstanceId


@dataclass(slots=True)
class OwnerRow:
    """One claim of an instance that stands.

    ``host`` is who asked for it, and hears of letters; ``session`` is whose end ends it.
    ``version`` is the one that the instance had then; ``first``: nobody had it before.
    """

    session: HostId
    host: HostId
    worker: str
    request: str
    version: int
    first: bool = False


@dataclass(slots=True)
class CommitRow:
    """One row of a history. ``commit`` is the id of what wrote it, or empty."""

    row: HistoryRow
    commit: str = ""


@dataclass(slots=True)
class InstanceRow:
    """One instance.

    ``number`` is its place in the order of creation. ``history`` holds the rows behind ``base``, in
    order. ``first_token`` is the one it was started with. ``seen`` are the ids of all messages that
    it ever got; ``watchers`` are hosts with the instants at which their notes end.
    """

    new: NewInstance
    number: int
    created_us: int
    updated_us: int
    began_us: int
    due_us: int | None
    input: str
    attributes: str
    token: int = 0
    first_token: int = 0
    version: int = 0
    base: int = 0
    owner: OwnerRow | None = None
    suspended: bool = False
    ended: InstanceStatus | None = None
    ended_us: int | None = None
    outcome: str | None = None
    custom: str | None = None
    history: list[CommitRow] = field(default_factory=list[CommitRow])
    letters: dict[int, Letter] = field(default_factory=dict[int, Letter])
    seen: set[str] = field(default_factory=set[str])
    replies: dict[str, str] = field(default_factory=dict[str, str])
    watchers: dict[HostId, int] = field(default_factory=dict[HostId, int])

    @property
    def id(self) -> InstanceId:
        """Its id."""
        return self.new.id

    @property
    def status(self) -> InstanceStatus:
        """Where it stands."""
        if self.ended is not None:
            return self.ended
        if self.suspended:
            return InstanceStatus.SUSPENDED
        return InstanceStatus.RUNNING if self.token else InstanceStatus.PENDING

    def row_of(self, version: int) -> CommitRow | None:
        """The row of a version, if it is one of the current run."""
        place = version - self.base - 1
        return self.history[place] if 0 <= place < len(self.history) else None


@dataclass(slots=True)
class DefinitionRow:
    """The instances of one definition that nobody owns and nobody suspended, and who waits.

    ``due`` has those with a due time, ``mailed`` those with letters; one may be in both. ``notes``
    are hosts in order of their notes, with the instant at which each note ends.
    """

    due: Line[InstanceId] = field(default_factory=Line[InstanceId])
    mailed: Line[InstanceId] = field(default_factory=Line[InstanceId])
    notes: dict[HostId, int] = field(default_factory=dict[HostId, int])


Definition = tuple[str, str]
"""The kind and the name of a definition."""


class InstanceTable:
    """The instances of one namespace. Whoever reads or writes holds the lock of its store."""

    __slots__ = ("children", "definitions", "floor", "kept", "letters", "owned", "roll", "rows")

    def __init__(self) -> None:
        self.rows: dict[InstanceId, InstanceRow] = {}
        self.children: dict[InstanceId, dict[InstanceId, None]] = {}
        self.roll = Roll[InstanceRow]()
        self.definitions: dict[Definition, DefinitionRow] = {}
        self.owned: dict[HostId, dict[InstanceId, None]] = {}
        # Ended instances by the end of their retention.
        self.kept = Line[InstanceId]()
        # The number of the newest letter, over all mailboxes.
        self.letters = 0
        # The greatest token of all that was forgotten: who owned some of it owns nothing of what is
        # started under the same id.
        self.floor = 0

    def definition(self, kind: str, name: str) -> DefinitionRow:
        """The definition of a name, made on first use."""
        found = self.definitions.get((kind, name))
        if found is None:
            found = self.definitions[kind, name] = DefinitionRow()
        return found

    def insert(self, row: InstanceRow) -> None:
        """Keep a new row."""
        self.rows[row.id] = row
        self.roll.append(row)
        if row.new.parent is not None:
            self.children.setdefault(row.new.parent, {})[row.id] = None

    def remove(self, row: InstanceRow) -> None:
        """Forget a row that has ended, with all that hangs on it."""
        self.floor = max(self.floor, row.token)
        self.kept.remove(row.id)
        del self.rows[row.id]
        self.roll.strike(row)
        parent = row.new.parent
        if parent is not None:
            siblings = self.children[parent]
            del siblings[row.id]
            if not siblings:
                del self.children[parent]
