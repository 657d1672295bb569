"""Reading and changing folders: the one way to the stored keys of a lease.

Owns the pattern of every write: read, decide, and write on condition that nothing has changed;
else be shown what has, in the same round trip.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import NamedTuple

from outlive.drivers.etcd.changes import Change
from outlive.drivers.etcd.connections import Connections
from outlive.drivers.etcd.folder import EndedValue, Folder, read_ended, read_folder
from outlive.drivers.etcd.keys import Names
from outlive.drivers.etcd.operations import Read, Stored
from outlive.drivers.etcd.sightings import Sightings
from outlive.errors import StoreUnavailable
from outlive.ports.driver import DriverContext

# Each time a change is refused, another has succeeded: of sixteen who fight for one key on a slow
# server, the unluckiest loses dozens of times. Losing this often in a row, with growing pauses,
# means a storm that lasts for five seconds.
TRIES_MAX = 100

# Who loses waits a random while before the next try, or the nearest to the server wins always.
# Two tries are free, because most conflicts are between two.
_FREE_TRIES = 2
_PAUSE_FIRST_S = 0.002
_PAUSE_MOST_S = 0.1


class Committed(NamedTuple):
    """Whether a change was made, the folder after it, and the keys that it deleted."""

    succeeded: bool
    folder: Folder
    deleted: list[Stored]


class Folders:
    """The folders of one namespace."""

    def __init__(self, connections: Connections, names: Names, context: DriverContext) -> None:
        self._connections = connections
        self._context = context
        self.names = names
        self.sightings = Sightings()

    async def read(self, key: str) -> Folder:
        """The folder of ``key`` as it is now."""
        answer = await self._connections.read(Read(*self.names.folder(key)))
        return self._seen(key, answer.shown[0], answer.revision)

    async def known(self, key: str) -> Folder:
        """The folder of ``key`` as it was last seen, or as it is now."""
        return self.sightings.folder(key) or await self.read(key)

    async def read_raw(self, key: str) -> tuple[Folder, list[Stored]]:
        """The folder of ``key``, and what it was read from."""
        answer = await self._connections.read(Read(*self.names.folder(key)))
        return self._seen(key, answer.shown[0], answer.revision), answer.shown[0]

    async def read_history(self, key: str) -> tuple[Folder, list[tuple[int, EndedValue]]]:
        """The folder of ``key`` and its ended grants, newest first, at one revision."""
        answer = await self._connections.read(
            Read(*self.names.folder(key)), Read(*self.names.history(key))
        )
        folder = self._seen(key, answer.shown[0], answer.revision)
        return folder, read_ended(answer.shown[1])

    async def commit(self, key: str, change: Change) -> Committed:
        """Make ``change`` if its conditions hold; the folder after it, or as it is instead.

        Raises:
            StoreUnavailable: Nothing was applied.
            OutcomeUnknown: The reply was lost.
            LeaseGone: It was to hang on a lease of etcd that is gone; nothing was applied.
        """
        show = Read(*self.names.folder(key))
        answer = await self._connections.transact(
            change.conditions, (*change.operations, show), (show,)
        )
        folder = self._seen(key, answer.shown[-1], answer.revision)
        deleted = [item for shown in answer.shown[:-1] for item in shown]
        return Committed(answer.succeeded, folder, deleted)

    async def tries(self, key: str) -> AsyncGenerator[None]:
        """As many turns as a change gets, with growing pauses in between.

        Raises:
            StoreUnavailable: After the last of them.
        """
        for number in range(TRIES_MAX):
            if number >= _FREE_TRIES:
                most_s = min(_PAUSE_MOST_S, _PAUSE_FIRST_S * 2 ** (number - _FREE_TRIES))
                await self._context.clock.sleep(self._context.random.uniform(0, most_s))
            yield
        raise StoreUnavailable(
            f"key {key!r} changed {TRIES_MAX} times while it was to be written; nothing was "
            "applied: try again, with fewer at once"
        )

    def _seen(self, key: str, stored: list[Stored], revision: int) -> Folder:
        return self.sightings.saw(read_folder(self.names, key, stored, revision))
