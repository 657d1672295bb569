"""The moves of instances: who owns one, what lies in its mailbox, and who must hear of it.

Pure apart from the rows: reads no clock and rings nobody. One ``InstanceStep`` is a part of one
step of the jobs, made and used under the lock: what it enqueues and whom it calls goes with that.
"""

from __future__ import annotations

from outlive.drivers.memory.instance_rows import (
    CommitRow,
    Definition,
    InstanceRow,
    InstanceTable,
    OwnerRow,
)
from outlive.drivers.memory.job_step import JobStep
from outlive.drivers.memory.notes import take_notes
from outlive.model.instance import (
    CANCEL_KIND,
    CANCELS_MAX,
    MAILBOX_MAX,
    Entry,
    HistoryRow,
    InstanceStatus,
    Letter,
    Message,
    NewInstance,
    Sent,
    Started,
)
from outlive.names import HostId, Token
from outlive.ports.wakeups import Wakeup


class InstanceStep:
    """One step on a table, at the instant of a step of the jobs.

    ``fresh`` counts the instances of each definition that became claimable during it.
    """

    __slots__ = ("calls", "clock_us", "fresh", "jobs", "now_us", "table")

    def __init__(self, table: InstanceTable, jobs: JobStep) -> None:
        self.table = table
        self.jobs = jobs
        self.now_us = jobs.now_us
        self.clock_us = jobs.clock_us
        self.calls = jobs.calls
        self.fresh: dict[Definition, int] = {}

    def add(self, new: NewInstance, host: HostId) -> Started:
        """Start one instance, or find the one that has its id."""
        row = self.table.rows.get(new.id)
        entry = Entry.CREATED
        if row is None:
            row = self._insert(new, host)
        elif row.new.request != new.request:
            entry = Entry.EXISTING
        token = Token(row.first_token if entry is Entry.CREATED else 0)
        return Started(new.id, entry, row.new.name, row.new.parent, token, row.created_us)

    def _insert(self, new: NewInstance, host: HostId) -> InstanceRow:
        now_us = self.now_us
        due_us = now_us + new.delay_us if new.due_at_us is None else new.due_at_us
        row = InstanceRow(
            new,
            0,
            created_us=now_us,
            updated_us=now_us,
            # Its time begins when it is due: a nap is as long as that of any other.
            began_us=max(now_us, due_us),
            due_us=due_us,
            input=new.input,
            attributes=new.attributes,
        )
        self.table.insert(row)
        for events in new.history:
            self.record(row, events, "", new.worker or None)
        if new.session is None:
            self.place(row)
        else:
            self.take(row, OwnerRow(new.session, host, new.worker, "", row.version))
            row.first_token = row.token
        return row

    def record(self, row: InstanceRow, events: str, commit: str, worker: str | None) -> None:
        """Write the row of the next version."""
        row.version += 1
        written = HistoryRow(row.version, Token(row.token), worker, self.now_us, events)
        row.history.append(CommitRow(written, commit))
        row.updated_us = self.now_us

    def place(self, row: InstanceRow) -> None:
        """Put a row where claims find it, if they may; whoever waits is called if they can."""
        definition = self.table.definition(row.new.kind, row.new.name)
        definition.due.remove(row.id)
        definition.mailed.remove(row.id)
        if row.owner is not None or row.suspended or row.ended is not None:
            return
        if row.due_us is not None:
            definition.due.add(row.id, row.due_us, row.number)
        mailed = bool(row.letters) and not self._waits_for_its_time(row)
        if mailed:
            first = next(iter(row.letters.values()))
            definition.mailed.add(row.id, first.sent_at_us, row.number)
        if mailed or (row.due_us is not None and row.due_us <= self.now_us):
            self.freshen(row)

    def _waits_for_its_time(self, row: InstanceRow) -> bool:
        """Whether nobody may begin it yet, whatever letters it has."""
        if row.token or row.due_us is None or row.due_us <= self.now_us:
            return False
        return all(letter.kind != CANCEL_KIND for letter in row.letters.values())

    def freshen(self, row: InstanceRow) -> None:
        """Note that one more instance of a definition became claimable."""
        key = (row.new.kind, row.new.name)
        self.fresh[key] = self.fresh.get(key, 0) + 1

    def begin_by_now(self, row: InstanceRow) -> None:
        """Let the time of one that was to begin later begin now.

        Where something is recorded, that was computed from the time there is.
        """
        if row.version == row.base:
            row.began_us = min(row.began_us, self.now_us)

    def take(self, row: InstanceRow, owner: OwnerRow) -> None:
        """Let somebody own a row that nobody does."""
        row.token = max(row.token, self.table.floor) + 1
        row.owner = owner
        row.updated_us = self.now_us
        self.table.owned.setdefault(owner.session, {})[row.id] = None
        self.place(row)

    def leave(self, row: InstanceRow) -> None:
        """Let nobody own a row, which its caller then places. Repeatable."""
        owner, row.owner = row.owner, None
        row.updated_us = self.now_us
        if owner is None:
            return
        mine = self.table.owned[owner.session]
        del mine[row.id]
        if not mine:
            del self.table.owned[owner.session]

    def end(self, row: InstanceRow, status: InstanceStatus, outcome: str | None) -> None:
        """End a live row: nobody owns it, its mailbox is empty, and it is kept for a time."""
        self.leave(row)
        row.ended, row.ended_us, row.outcome = status, self.now_us, outcome
        row.suspended, row.due_us = False, None
        row.letters.clear()
        self.place(row)
        self.table.kept.add(row.id, self.now_us + row.new.retention_us)
        self.call_watchers(row)
        row.watchers.clear()

    def send(self, message: Message, *, limit: int | None = MAILBOX_MAX) -> Sent:
        """Put a message into a mailbox, unless so many lie there already."""
        row = self.table.rows.get(message.to)
        if row is None:
            return Sent.NOT_FOUND
        if message.id in row.seen:
            return Sent.DUPLICATE
        if row.ended is not None:
            return Sent.ENDED
        if limit is not None and message.kind == CANCEL_KIND:
            limit += CANCELS_MAX
        if limit is not None and len(row.letters) >= limit:
            return Sent.FULL
        self.table.letters += 1
        number = self.table.letters
        row.letters[number] = Letter(
            number, message.id, message.kind, message.name, message.payload, self.now_us
        )
        row.seen.add(message.id)
        self.place(row)
        self.call_owner(row, "mail")
        return Sent.SENT

    def call_owner(self, row: InstanceRow, topic: str) -> None:
        """Choose the owner, if there is one, to hear of something."""
        if row.owner is not None:
            self.calls.append((row.owner.host, Wakeup(f"{topic}/{row.id}")))

    def call_watchers(self, row: InstanceRow) -> None:
        """Choose those who watch a row to hear of it."""
        for host, until_us in list(row.watchers.items()):
            if until_us > self.clock_us:
                self.calls.append((host, Wakeup(f"instance/{row.id}")))
            else:
                del row.watchers[host]

    def call_waiting(self) -> None:
        """Choose who hears of what became claimable."""
        for (kind, name), count in self.fresh.items():
            notes = self.table.definition(kind, name).notes
            for host in take_notes(notes, count, self.clock_us):
                self.calls.append((host, Wakeup(f"instances/{kind}/{name}")))
        self.fresh.clear()
