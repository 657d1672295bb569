"""Charts without ``await``: machines on an event loop and a thread of their own.

``with outlive.blocking.Orchestrator() as hub``: what is read here may be a moment old, and
functions of a chart run on that thread, where nothing may call this façade.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

from outlive.blocking.calls import awaited
from outlive.charts import orchestrator as twins
from outlive.charts.events import EventLike
from outlive.charts.snapshot import Snapshot
from outlive.runtime.portal import Portal

T = TypeVar("T")


class Machine:
    """A machine of a group; see ``outlive.charts.orchestrator.Machine``."""

    def __init__(self, machine: twins.Machine, portal: Portal) -> None:
        self._twin = machine
        self._portal = portal

    def __repr__(self) -> str:
        return repr(self._twin)

    @property
    def id(self) -> str:
        """Its whole id."""
        return self._twin.id

    @property
    def snapshot(self) -> Snapshot:
        """The machine as of the last event."""
        return self._twin.snapshot

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._twin.running

    def start(self) -> Self:
        """Enter the initial states, and wait until their actions are done."""
        self._portal.run(self._twin.start())
        return self

    def send(self, event: EventLike, /, **data: Any) -> None:
        """Give it an event; returns when it is in the mailbox, and raises if it was refused."""

        async def send() -> None:
            await self._twin.send(event, **data)

        self._portal.run(send())

    request = awaited(twins.Machine.request)
    wait_for = awaited(twins.Machine.wait_for)
    settled = awaited(twins.Machine.settled)
    stop = awaited(twins.Machine.stop)

    def persist(self) -> dict[str, Any]:
        """The machine as JSON; see ``Group.restore``."""
        return self._portal.run(_call(self._twin.persist))

    def subscribe(self, function: Callable[[Snapshot], Any]) -> Callable[[], None]:
        """Call ``function`` on the façade's thread with the snapshot after each event."""
        return self._portal.run(_call(lambda: self._twin.subscribe(function)))


class Group:
    """Machines that live and end together; see ``outlive.charts.orchestrator.Group``."""

    def __init__(self, group: twins.Group, portal: Portal) -> None:
        self._twin = group
        self._portal = portal

    def __repr__(self) -> str:
        return repr(self._twin)

    @property
    def machines(self) -> tuple[Machine, ...]:
        """Those that are registered, in the order in which they were."""
        return tuple(Machine(each, self._portal) for each in self._twin.machines)

    def get(self, name: str) -> Machine:
        """The machine with this id, or the only one that was given this name."""
        return Machine(self._twin.get(name), self._portal)

    def start(self, chart: Any, **options: Any) -> Machine:
        """Register a machine of ``chart`` and start it."""
        return Machine(self._portal.run(self._twin.start(chart, **options)), self._portal)

    def restore(self, chart: Any, saved: Any, **options: Any) -> Machine:
        """A machine that continues from ``saved`` when it is started."""
        return Machine(self._twin.restore(chart, saved, **options), self._portal)

    def broadcast(self, event: EventLike, /, **data: Any) -> int:
        """``send`` to every machine of the group that runs; gives how many those are."""
        return self._portal.run(_call(lambda: self._twin.broadcast(event, **data)))

    def release(self) -> None:
        """End every machine, and wait until they have ended. Safe to repeat."""

        async def release() -> None:
            await self._twin.release()

        self._portal.run(release())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()


class Orchestrator:
    """Machines in groups, on a thread of their own; see ``outlive.Orchestrator`` for ``options``.

    Close it, or use ``with``: every group is released then.
    """

    def __init__(self, **options: Any) -> None:
        self._twin = twins.Orchestrator(**options)
        self._portal = Portal()

    def group(self, name: str) -> Group:
        """A new group. ``with`` releases it at the end of the block."""
        return Group(self._twin.group(name), self._portal)

    def metrics(self) -> twins.Metrics:
        """The numbers of now."""
        return self._twin.metrics()

    def close(self) -> None:
        """Release every group and end the thread. Repeatable."""
        if not self._portal.closed:
            self._portal.run(self._twin.force_cleanup())
            self._portal.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


async def _call(function: Callable[[], T]) -> T:
    return function()
