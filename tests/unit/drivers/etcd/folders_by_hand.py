"""Folders written by hand, for tests of what is decided from them."""

from __future__ import annotations

from outlive.drivers.etcd.folder import Folder, Live, Place, Slot, SlotValue
from outlive.drivers.etcd.keys import Names
from outlive.model.lease import AcquireRequest
from outlive.names import HostId, Owner

NAMES = Names("outlive", "shop")


def slot(number: int, owner: str | None, token: int, *, live: bool = True) -> Slot:
    """A slot whose newest grant has ``token``; free when there is no owner."""
    value = SlotValue(owner, 1, 30_000_000, 0, "{}", token)
    lasts = live and owner is not None
    name = NAMES.live("k", number, 0)
    return Slot(
        number, token, value, Live(name, number, 0, owner or "", token, 77) if lasts else None
    )


def place(number: int, owner: str, host: str = "h") -> Place:
    """A place in the queue."""
    return Place(number, owner, host, 88, 15)


def folder(
    *slots: Slot, limit: int = 1, places: tuple[Place, ...] = (), passed: tuple[int, ...] = ()
) -> Folder:
    """The folder of the key ``k`` at revision 100."""
    return Folder("k", 100, limit if slots else 0, frozenset(passed), None, slots, places)


def ask(owner: str, *, limit: int = 1, resume: bool = False) -> AcquireRequest:
    """One attempt at ``k``."""
    return AcquireRequest(
        "k", Owner(owner), 30_000_000, "{}", HostId("h"), limit=limit, resume=resume
    )
