"""What this host has seen: folders as it last knew them, and since when keys are free.

Owns the memory of the driver. Both are hints: a folder from memory is good for an attempt that
proves itself, and a time counts from when this host saw the key free, so that it is late but
never early.
"""

from __future__ import annotations

from collections import OrderedDict

from outlive.drivers.etcd.folder import Folder

# Enough for the keys a busy host works with at a time; a forgotten one costs a round trip.
_FOLDERS_MAX = 2_000
# One with a long queue is read again at every attempt anyway, and one with many slots may hold as
# many kilobytes of metadata.
_PARTS_MAX = 32

# A namespace with more releases than this within a quarter of a second forgets the first of them;
# those who wait there then count from their next attempt.
_FREED_MAX = 10_000


class Sightings:
    """The memory of one driver."""

    def __init__(self) -> None:
        self._folders: OrderedDict[str, Folder] = OrderedDict()
        self._freed: OrderedDict[tuple[str, int], tuple[int, int]] = OrderedDict()

    def folder(self, key: str) -> Folder | None:
        """The folder of ``key`` as it was last seen."""
        return self._folders.get(key)

    def saw(self, folder: Folder) -> Folder:
        """Remember ``folder``, unless a newer one is known; return it."""
        known = self._folders.get(folder.key)
        if known is not None and known.revision > folder.revision:
            return folder
        if len(folder.places) + len(folder.slots) > _PARTS_MAX:
            self._folders.pop(folder.key, None)
            return folder
        self._folders[folder.key] = folder
        self._folders.move_to_end(folder.key)
        if len(self._folders) > _FOLDERS_MAX:
            self._folders.popitem(last=False)
        return folder

    def freed(self, key: str, slot: int, revision: int, now_us: int) -> None:
        """Note that a slot was seen free from ``revision`` on."""
        known = self._freed.get((key, slot))
        if known is not None and known[0] >= revision:
            return
        self._freed[key, slot] = (revision, now_us)
        self._freed.move_to_end((key, slot))
        if len(self._freed) > _FREED_MAX:
            self._freed.popitem(last=False)

    def free_since_us(self, folder: Folder, now_us: int) -> int:
        """Since when the first free slot of the folder is known to be free, at the latest now.

        What was seen of an earlier grant of a slot does not count: every grant has a greater
        token than the revision at which the slot was free before.
        """
        since_us = now_us
        for slot in folder.slots:
            if slot.live is not None:
                continue
            seen = self._freed.get((folder.key, slot.number))
            # A grant that ran out ended after its own revision, at which a resume deleted the live
            # key of its former self. One that was broken may have left just that as its token.
            ended_after = slot.token if slot.value.owner is not None else slot.token - 1
            if seen is not None and seen[0] > ended_after:
                since_us = min(since_us, seen[1])
            else:
                self.freed(folder.key, slot.number, folder.revision, now_us)
        return since_us
