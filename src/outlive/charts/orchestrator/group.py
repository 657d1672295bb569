"""``Group``: machines that belong together, reach each other, and end together.

Owns who is in it, by reference. A name is looked up here and nowhere else; no id is taken apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from outlive.charts.actor import Actor
from outlive.charts.chart import Chart
from outlive.charts.events import Event, EventLike, as_event
from outlive.charts.orchestrator.acceptance import Acceptance
from outlive.charts.orchestrator.lanes import Lanes
from outlive.charts.orchestrator.machine import Machine, ended
from outlive.charts.orchestrator.options import REQUEST_TIMEOUT_S, MailboxPolicy, MailboxRule
from outlive.charts.persistence import TimerPolicy, from_json
from outlive.charts.snapshot import Snapshot
from outlive.errors import GroupReleased, InvalidName, UnknownTarget, UsageError
from outlive.model.options import Duration
from outlive.runtime.running_loop import running_loop

if TYPE_CHECKING:
    from outlive.charts.orchestrator.orchestrator import Orchestrator

# A name is for people and for logs; a longer one is data that went astray.
NAME_MAX = 255


class Group:
    """A token for machines that live and end together; ``async with`` releases it.

    ``id`` is a number that no other group of the process has, ``name`` is for people and need not
    be unique. ``released`` is whether it is over. Machines of a group find each other by name, and
    nobody else, unless ``link`` lets them.
    """

    def __init__(
        self,
        orchestrator: Orchestrator,
        *,
        id: int,  # noqa: A002
        name: str,
        created_at: datetime,
    ) -> None:
        self.orchestrator = orchestrator
        self.id = id
        self.name = name
        self.created_at = created_at
        self.released = False
        self._members: dict[str, Machine] = {}
        self._names: dict[str, Machine | dict[Machine, None]] = {}
        self._links: dict[Group, None] = {}

    def __repr__(self) -> str:
        state = "released" if self.released else f"{len(self._members)} machines"
        return f"<Group {self.name!r} #{self.id} {state}>"

    def __len__(self) -> int:
        return len(self._members)

    def __bool__(self) -> bool:
        # A group without machines is still a group.
        return True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.release()

    # -- members --------------------------------------------------------------------------------

    @property
    def machines(self) -> tuple[Machine, ...]:
        """Those that are registered, in the order in which they were."""
        return tuple(self._members.values())

    def register(
        self,
        chart: Chart | Actor,
        *,
        id: str | None = None,  # noqa: A002
        input: Any = None,  # noqa: A002
        mailbox_limit: int | None = None,
        mailbox_policy: MailboxPolicy | None = None,
    ) -> Machine:
        """Make a machine of ``chart`` and keep it here; ``await machine.start()`` sets it going.

        ``id`` is what others call it by, by default the chart's id. Several machines may share one;
        then only their whole ids tell them apart. In any thread.

        An ``Actor`` moves here: it is stopped, and the machine continues where it was. Who listens
        to it does not move.

        Raises:
            GroupReleased: The group is gone.
            InvalidName: The id is no text, empty or too long.
            UsageError: The actor is busy or was not started.
        """
        if isinstance(chart, Actor):
            saved = chart.persist()
            machine = self.restore(
                chart.chart,
                saved,
                id=chart.id if id is None else id,
                mailbox_limit=mailbox_limit,
                mailbox_policy=mailbox_policy,
            )
            # Two that continue from one state would do everything twice.
            chart.stop()
            return machine
        base = checked_name(chart.id if id is None else id, "a machine's id")
        rule = self.orchestrator.rule
        if mailbox_limit is not None or mailbox_policy is not None:
            rule = MailboxRule(
                limit=rule.limit if mailbox_limit is None else mailbox_limit,
                policy=rule.policy if mailbox_policy is None else mailbox_policy,
            )
        machine = Machine(
            chart,
            base=base,
            id=f"{base}#{self.id}#{self.orchestrator.new_guid()}",
            input=input,
            environment=self.orchestrator.environment,
            rule=rule,
        )
        machine.group = self
        with self.orchestrator.lock:
            if self.released:
                raise GroupReleased(self.name)
            self._members[machine.id] = machine
            self.orchestrator.registered += 1
            namesake = self._names.get(base)
            if namesake is None:
                self._names[base] = machine
            elif isinstance(namesake, Machine):
                self._names[base] = {namesake: None, machine: None}
            else:
                namesake[machine] = None
        self.orchestrator.log.debug(
            "machine %s: registered in group %s",
            *(machine.id, self.name),
            extra={"machine": machine.id, "group": self.name},
        )
        return machine

    def restore(
        self,
        chart: Chart,
        saved: Mapping[str, Any],
        *,
        id: str | None = None,  # noqa: A002
        mailbox_limit: int | None = None,
        mailbox_policy: MailboxPolicy | None = None,
        timers: TimerPolicy = "absolute",
    ) -> Machine:
        """A machine that continues from ``saved``, which ``persist`` gave, when it is started.

        ``id`` is by default the one it was registered by. See ``Actor.restore`` for timers and
        services, and ``register`` for the rest.

        Raises:
            GroupReleased, InvalidName: As ``register``.
            UsageError: ``saved`` does not fit the chart.
        """
        kept = from_json(chart, saved, timers)
        machine = self.register(
            chart,
            id=saved.get("id") if id is None else id,
            mailbox_limit=mailbox_limit,
            mailbox_policy=mailbox_policy,
        )
        machine.adopt(kept)
        return machine

    async def start(
        self,
        chart: Chart | Actor,
        *,
        id: str | None = None,  # noqa: A002
        input: Any = None,  # noqa: A002
        mailbox_limit: int | None = None,
        mailbox_policy: MailboxPolicy | None = None,
    ) -> Machine:
        """``register`` a machine and ``start`` it; one whose start fails is not kept.

        Raises:
            GroupReleased, InvalidName: As ``register``.
            Exception: As ``Machine.start``.
        """
        machine = self.register(
            chart,
            id=id,
            input=input,
            mailbox_limit=mailbox_limit,
            mailbox_policy=mailbox_policy,
        )
        try:
            return await machine.start()
        except BaseException:
            await machine.stop(drain=False)
            machine.unregister()
            raise

    def forget(self, machine: Machine) -> None:
        """Take ``machine`` out; one that is not here needs nothing."""
        with self.orchestrator.lock:
            if self._members.pop(machine.id, None) is None:
                return
            namesake = self._names.get(machine.base)
            if isinstance(namesake, dict):
                namesake.pop(machine, None)
                if len(namesake) == 1:
                    self._names[machine.base] = next(iter(namesake))
            else:
                self._names.pop(machine.base, None)
        self.orchestrator.log.debug(
            "machine %s: left group %s",
            *(machine.id, self.name),
            extra={"machine": machine.id, "group": self.name},
        )

    # -- reaching -------------------------------------------------------------------------------

    def get(self, name: str) -> Machine:
        """The machine with this id, or the only one that was given this name.

        Raises:
            UnknownTarget: There is none here, or there are several.
            GroupReleased: The group is gone.
        """
        if self.released:
            raise GroupReleased(self.name)
        found = self._find(name)
        if found is None:
            raise UnknownTarget(name, f"group {self.name!r} has no such machine")
        return found

    def _find(self, name: str) -> Machine | None:
        found = self._members.get(name)
        if found is not None:
            return found
        namesake = self._names.get(name)
        if isinstance(namesake, dict):
            raise UnknownTarget(
                name,
                f"{len(namesake)} machines of group {self.name!r} have this name; use the full id",
            )
        return namesake

    def reach(self, name: str) -> Machine | None:
        """What ``name`` means to a machine of this group: here first, then in the linked groups.

        Raises:
            UnknownTarget: Several machines of one group share that name.
        """
        found = self._find(name)
        for other in tuple(self._links) if found is None else ():
            found = other._find(name)  # noqa: SLF001 - of the same class
            if found is not None:
                break
        return found

    def link(self, other: Group) -> None:
        """Let the machines of this group reach those of ``other``; not the other way round.

        Raises:
            UsageError: ``other`` belongs to another orchestrator.
            GroupReleased: One of them is gone.
        """
        if other.orchestrator is not self.orchestrator:
            raise UsageError("groups of different orchestrators cannot be linked")
        with self.orchestrator.lock:
            for group in (self, other):
                if group.released:
                    raise GroupReleased(group.name)
            self._links[other] = None

    def unlink(self, other: Group) -> None:
        """Take the link back; one that is not there needs nothing."""
        with self.orchestrator.lock:
            self._links.pop(other, None)

    # -- events ---------------------------------------------------------------------------------

    def send(self, target: str, event: EventLike, /, **data: Any) -> Acceptance:
        """``Machine.send`` to the machine called ``target``; see there.

        An unknown target is a dead letter, and an ``UnknownTarget`` for those who await.
        """
        return self.orchestrator.send_to(self, target, event, data)

    async def request(
        self,
        target: str,
        event: EventLike,
        /,
        *,
        timeout: Duration = REQUEST_TIMEOUT_S,
        run_late: bool = False,
        **data: Any,
    ) -> Snapshot:
        """``Machine.request`` to the machine called ``target``; see there.

        Raises:
            UnknownTarget: There is none, or several.
            GroupReleased: The group is gone.
        """
        return await self.get(target).request(event, timeout=timeout, run_late=run_late, **data)

    def broadcast(self, event: EventLike, /, **data: Any) -> int:
        """``send`` to every machine of the group that runs; gives how many those are."""
        given = Event(event, data) if data and isinstance(event, str) else as_event(event)
        if self.released:
            raise GroupReleased(self.name)
        running = [machine for machine in self.machines if machine.running]
        for machine in running:
            machine.send(given)
        return len(running)

    # -- the end --------------------------------------------------------------------------------

    def release(self) -> Release:
        """End every machine: timers, services, activities, actions that await. Safe to repeat.

        Events that wait are dropped, requests that wait are answered with ``GroupReleased``. Takes
        time for its own members only. In any thread, with an event loop or without: when it
        returns, the group is released and no machine of this thread begins anything. ``await``
        what it gives to wait until all have ended, on whatever loop they live; actions on a loop
        that does not run now end when it does.
        """
        with self.orchestrator.lock:
            if self.released:
                return Release()
            self.released = True
            members = list(self._members.values())
            self._members.clear()
            self._names.clear()
            self._links.clear()
        self.orchestrator.drop(self)
        reason = GroupReleased(self.name)
        here = running_loop()
        homes: dict[Lanes, list[Machine]] = {}
        for machine in members:
            if machine.home is None:
                machine.halt(reason)
            else:
                homes.setdefault(machine.home, []).append(machine)
        release = Release()
        for lanes, machines in homes.items():
            if lanes.loop is not here and lanes.loop.is_running():
                done: Future[None] = Future()
                lanes.post(_halt_there, machines, reason, done)
                release.elsewhere.append(done)
            else:
                # Another loop stands still and may never run again: nobody else is at them.
                release.actions += _halt(machines, reason)
        return release


class Release:
    """What ``Group.release`` gives: ``await`` it to wait until everything has ended."""

    def __init__(self) -> None:
        self.actions: list[asyncio.Task[None]] = []
        self.elsewhere: list[Future[None]] = []

    def __await__(self) -> Generator[Any, None, None]:
        return self._wait().__await__()

    async def _wait(self) -> None:
        here = asyncio.get_running_loop()
        await ended([task for task in self.actions if task.get_loop() is here])
        for done in self.elsewhere:
            await asyncio.wrap_future(done)


def checked_name(name: object, what: str) -> str:
    """``name``, if it is one.

    Raises:
        InvalidName: It is no text, empty or too long.
    """
    if not isinstance(name, str) or not 0 < len(name) <= NAME_MAX:
        raise InvalidName(f"{what} must be text of 1 to {NAME_MAX} characters, not {name!r}")
    return name


def _halt(machines: list[Machine], reason: Exception) -> list[asyncio.Task[None]]:
    return [task for machine in machines for task in machine.halt(reason)]


def _halt_there(machines: list[Machine], reason: Exception, done: Future[None]) -> None:
    cancelled = _halt(machines, reason)
    if not done.set_running_or_notify_cancel():
        return
    if not cancelled:
        done.set_result(None)
        return
    waiting = asyncio.ensure_future(ended(cancelled))
    waiting.add_done_callback(lambda _: done.set_result(None))
