"""Hosts that run instances: a session of their own, and the port of instances in short sentences.

Durations are in seconds here; the port's own units stay inside. Knows no backend.
"""

from __future__ import annotations

import itertools
from typing import Any

from msgspec.structs import replace

from outlive.model.instance import (
    ClaimedInstance,
    ClaimedInstances,
    Commit,
    Committed,
    Entry,
    Handback,
    HistoryRow,
    InstanceClaimRequest,
    InstanceFilter,
    InstanceRecord,
    InstanceStatus,
    Letter,
    Message,
    NewInstance,
    Opened,
    Sent,
    Started,
)
from outlive.names import InstanceId
from outlive.ports.instance_store import InstanceStore
from outlive.testing.conformance.lab import LONG_S, Lab, Member
from outlive.testing.conformance.session_host import SessionHost

EVENTS = '[{"event":"patched","at":1,"id":"p"}]'
# What a page or a reading asks for when the test has far fewer.
MANY = 1000


def message(to: str, id: str, payload: str = "null", **fields: Any) -> Message:  # noqa: A002
    """A signal as somebody sends it."""
    values = {"kind": "signal", "name": "go", **fields}
    return Message(InstanceId(to), id, payload=payload, **values)


async def runner(
    lab: Lab, name: str = "a", namespace: str = "default", *, ttl: float = LONG_S
) -> Runner:
    """One more host with an open session; skips where the backend keeps no instances."""
    lab.require("instances", "sessions")
    one = Runner(await lab.host(name, namespace))
    await one.open_session(one.id, ttl)
    return one


async def runners(lab: Lab, count: int) -> list[Runner]:
    """Several hosts, each with a driver and a session of its own."""
    return [await runner(lab, f"r{number}") for number in range(count)]


class Runner(SessionHost):
    """One host of a lab that starts, claims and commits flows of the name ``f`` and others."""

    def __init__(self, member: Member) -> None:
        super().__init__(member)
        instances = member.driver.instances
        assert instances is not None, "the driver promises instances and has none"
        self.instances: InstanceStore = instances
        self._numbers = itertools.count(1)

    def _unique(self) -> str:
        return f"{self.id}/{next(self._numbers)}"

    # -- starting -------------------------------------------------------------------------------

    def new(self, id: str, name: str = "f", **fields: Any) -> NewInstance:  # noqa: A002
        """An instance as somebody starts it, by a request that no other call has made."""
        for field in ("delay", "retention"):
            if field in fields:
                fields[f"{field}_us"] = round(fields.pop(field) * 1e6)
        values: dict[str, Any] = {
            "kind": "flow",
            "input": '{"n":1}',
            "request": self._unique(),
            **fields,
        }
        return NewInstance(id=InstanceId(id), name=name, **values)

    async def start(self, *instances: NewInstance) -> list[Started]:
        """Start instances and return what became of each."""
        return list(await self.instances.start(instances))

    async def put(self, *ids: str, name: str = "f", **fields: Any) -> None:
        """Start instances; the test fails unless each of them is created."""
        outcomes = await self.start(*(self.new(id_, name, **fields) for id_ in ids))
        assert [(found.id, found.entry) for found in outcomes] == [
            (id_, Entry.CREATED) for id_ in ids
        ]

    async def own(self, id: str, name: str = "f", **fields: Any) -> ClaimedInstance:  # noqa: A002
        """Start an instance as its owner; the test fails unless it is created so."""
        values: dict[str, Any] = {"session": self.id, "worker": self.member.name, **fields}
        new = self.new(id, name, **values)
        (started,) = await self.start(new)
        assert (started.entry, started.token > 0) == (Entry.CREATED, True)
        return ClaimedInstance(
            new.id,
            new.kind,
            new.name,
            started.token,
            len(new.history),
            0,
            new.input,
            started.began_at_us,
            new.parent,
            new.headers,
            new.attributes,
            None,
        )

    async def park(self, *ids: str, due: float | None = None, name: str = "f") -> None:
        """Start instances that nobody owns, and that wait for ``due`` seconds or for letters."""
        for id_ in ids:
            held = await self.own(id_, name)
            due_at_us = None if due is None else await self.now_us() + round(due * 1e6)
            await self.advance(held, release=True, due_at_us=due_at_us)

    async def put_ended(self, *ids: str, **fields: Any) -> None:
        """Start instances and complete them."""
        for id_ in ids:
            await self.finish(await self.own(id_, **fields))

    # -- claiming -------------------------------------------------------------------------------

    def request(self, limit: int = 1, *, wait: float = 0, **fields: Any) -> InstanceClaimRequest:
        """A request that no other call has made."""
        values: dict[str, Any] = {
            "session": self.id,
            "worker": self.member.name,
            "request": self._unique(),
            "kind": "flow",
            "names": ("f",),
            "wait_us": round(wait * 1e6),
        }
        return InstanceClaimRequest(limit=limit, **{**values, **fields})

    async def ask(self, limit: int = 1, **fields: Any) -> ClaimedInstances:
        """Claim, and return the whole answer."""
        return await self.instances.claim(self.request(limit, **fields))

    async def claim(self, limit: int = 1, **fields: Any) -> list[ClaimedInstance]:
        """Claim, and return what was had."""
        return list((await self.ask(limit, **fields)).instances)

    async def claim_one(self, **fields: Any) -> ClaimedInstance:
        """Claim one instance; the test fails if there is none."""
        found = await self.claim(1, **fields)
        assert len(found) == 1, f"one instance should be had, and {len(found)} were"
        return found[0]

    async def ids(self, limit: int = 100, **fields: Any) -> list[str]:
        """Claim, and return the ids of what was had, in order."""
        return [found.id for found in await self.claim(limit, **fields)]

    async def now_us(self) -> int:
        """The store's wall clock."""
        return (await self.ask(0)).at_us

    # -- owning ---------------------------------------------------------------------------------

    def next(self, held: ClaimedInstance, **fields: Any) -> Commit:
        """The commit of the next version, with an id that no other has."""
        values: dict[str, Any] = {
            "id": held.id,
            "token": held.token,
            "version": held.version + 1,
            "commit": self._unique(),
            "events": EVENTS,
        }
        return Commit(**{**values, **fields})

    async def commit(self, held: ClaimedInstance, **fields: Any) -> Committed:
        """Commit the next version, and return the answer."""
        return await self.send_commit(self.next(held, **fields))

    async def send_commit(self, commit: Commit) -> Committed:
        """Send one commit as it is."""
        (outcome,) = await self.instances.commit([commit])
        return outcome

    async def advance(self, held: ClaimedInstance, **fields: Any) -> ClaimedInstance:
        """Commit the next version; the test fails if it is refused."""
        outcome = await self.commit(held, **fields)
        assert outcome.ok, f"{held.id} at token {held.token}, version {held.version}: refused"
        return replace(held, version=held.version + 1)

    async def finish(
        self,
        held: ClaimedInstance,
        status: InstanceStatus = InstanceStatus.COMPLETED,
        outcome: str | None = "1",
        **fields: Any,
    ) -> None:
        """Commit the end."""
        await self.advance(held, status=status, outcome=outcome, **fields)

    async def release(self, held: ClaimedInstance, *, due: bool = False) -> bool:
        """Give an instance up."""
        (outcome,) = await self.instances.release([Handback(held.id, held.token, due)])
        return outcome

    async def reclaim(self, limit: int = 100) -> list[str]:
        """Take what the gone had, and return the ids in order of name."""
        return sorted(found.id for found in await self.instances.reclaim(limit=limit))

    # -- mail -----------------------------------------------------------------------------------

    async def send(
        self,
        to: str,
        id: str,  # noqa: A002 - it is one
        payload: str = "null",
        **fields: Any,
    ) -> Sent:
        """Send one message."""
        (outcome,) = await self.instances.send([message(to, id, payload, **fields)])
        return outcome

    async def mail(self, id: str, after: int = 0, limit: int = MANY) -> list[Letter]:  # noqa: A002
        """What lies in a mailbox."""
        return list(await self.instances.letters(InstanceId(id), after=after, limit=limit))

    async def mail_ids(self, id: str) -> list[str]:  # noqa: A002 - it is one
        """The ids of what lies in a mailbox."""
        return [letter.id for letter in await self.mail(id)]

    # -- the desk -------------------------------------------------------------------------------

    async def record(self, id: str) -> InstanceRecord:  # noqa: A002 - it is one
        """What is known of an instance; the test fails if nothing is."""
        record = await self.instances.get(InstanceId(id))
        assert record is not None, f"no record of instance {id!r}"
        return record

    async def status(self, id: str) -> InstanceStatus:  # noqa: A002 - it is one
        """Where an instance stands."""
        return (await self.record(id)).status

    async def exists(self, id: str) -> bool:  # noqa: A002 - it is one
        """Whether anything is known of an instance."""
        return await self.instances.get(InstanceId(id)) is not None

    async def versions(self, id: str, after: int = 0) -> list[int]:  # noqa: A002 - it is one
        """The versions of the history rows that are kept."""
        return [row.version for row in await self.history(id, after)]

    async def history(
        self,
        id: str,  # noqa: A002 - it is one
        after: int = 0,
        limit: int = MANY,
    ) -> list[HistoryRow]:
        """The history rows of the current run."""
        return list(await self.instances.history(InstanceId(id), after=after, limit=limit))

    async def list(self, **wanted: Any) -> list[str]:
        """The ids of the first page of instances that match."""
        page = await self.instances.list(InstanceFilter(**wanted), after=None, limit=100)
        return [record.id for record in page]

    async def terminate(
        self,
        id: str,  # noqa: A002 - it is one
        outcome: str = '"stop"',
        **fields: Any,
    ) -> Opened:
        """Terminate one instance."""
        return await self.instances.terminate(InstanceId(id), outcome=outcome, **fields)

    async def suspend(self, id: str) -> Opened:  # noqa: A002 - it is one
        """Suspend one instance."""
        return await self.instances.suspend(InstanceId(id))

    async def resume(self, id: str) -> Opened:  # noqa: A002 - it is one
        """Resume one instance."""
        return await self.instances.resume(InstanceId(id))

    async def reopen(self, id: str, version: int, events: str = EVENTS) -> Opened:  # noqa: A002
        """Reopen one instance."""
        return await self.instances.reopen(InstanceId(id), version=version, events=events)

    async def purge(self, id: str) -> Opened:  # noqa: A002 - it is one
        """Purge one instance."""
        (outcome,) = await self.instances.purge([InstanceId(id)])
        return outcome
