"""The names of everything the driver keeps in etcd.

Pure. All that belongs to a key and decides about it lies in one range, its *folder*, so that one
comparison can say "nothing here has changed". A tab ends the key: it is allowed in no key and sorts
before every character that is, so that folders are in code-point order of their keys.
"""

from __future__ import annotations

from typing import NamedTuple

_TAB = b"\t"
# The byte after the tab: the end of a range of all that begins with a name and a tab.
_PAST_TAB = b"\n"
# The byte after "/", for ranges of all that begins with a path.
_PAST_SLASH = b"0"


class Part(NamedTuple):
    """One key of a folder: the lease's key, what it is, and what tells it from its like."""

    key: str
    kind: bytes
    rest: bytes


class Names:
    """Names in one namespace of one installation; ``prefix`` tells installations apart.

    In a folder: ``record`` is what all slots share, ``slot`` the newest grant of each slot,
    ``live`` exists while that grant lasts, ``state`` is the owners' text, ``wait`` are places in
    the queue.
    """

    def __init__(self, prefix: str, namespace: str) -> None:
        root = f"{prefix}/{namespace}".encode()
        self.leases = root + b"/lease/"
        self.leases_end = root + b"/lease" + _PAST_SLASH
        self._history = root + b"/history/"
        self.bells = root + b"/bell/"
        self.bells_end = root + b"/bell" + _PAST_SLASH

    def folder(self, key: str) -> tuple[bytes, bytes]:
        """The range of everything about ``key``."""
        start = self.leases + key.encode()
        return start + _TAB, start + _PAST_TAB

    def record(self, key: str) -> bytes:
        """What the slots of ``key`` share."""
        return self.leases + key.encode() + b"\trecord"

    def state(self, key: str) -> bytes:
        """The text that the owners of ``key`` keep with it."""
        return self.leases + key.encode() + b"\tstate"

    def slot(self, key: str, slot: int) -> bytes:
        """The newest grant of one slot; four digits keep slots in order."""
        return self.leases + key.encode() + b"\tslot\t%04d" % slot

    def slots_from(self, key: str, slot: int) -> tuple[bytes, bytes]:
        """The range of the slots from ``slot`` on."""
        return self.slot(key, slot), self.leases + key.encode() + b"\tslot" + _PAST_TAB

    def live(self, key: str, slot: int, turn: int) -> bytes:
        """The key that lives as long as a grant, and whose creation is its token.

        ``turn`` is 0 or 1: a host that resumes replaces its former self in one transaction, and
        etcd does not delete and create the same key in one.
        """
        return self.leases + key.encode() + b"\tlive\t%04d.%d" % (slot, turn)

    def place(self, key: str, owner: str) -> bytes:
        """The place of ``owner`` in the queue of ``key``."""
        return self.leases + key.encode() + b"\twait\t" + owner.encode()

    def ended(self, key: str, slot: int, number: int) -> bytes:
        """One ended grant, by its number in the slot's ring of them."""
        return self._history + key.encode() + b"\t%04d\t%04d" % (slot, number)

    def history(self, key: str) -> tuple[bytes, bytes]:
        """The range of the ended grants of ``key``."""
        start = self._history + key.encode()
        return start + _TAB, start + _PAST_TAB

    def bell(self, host: str | None) -> bytes:
        """Where hints for ``host`` are put, or those for all."""
        return self.bells + (b"*" if host is None else b"=" + host.encode())

    def listing(self, prefix: str, after: str | None) -> tuple[bytes, bytes]:
        """The range of the folders whose key begins with ``prefix`` and comes after ``after``."""
        start = self.leases + prefix.encode()
        # UTF-8 never holds the byte 0xff.
        end = start + b"\xff" if prefix else self.leases_end
        if after is not None:
            start = max(start, self.folder(after)[1])
        return start, end

    def part(self, name: bytes) -> Part | None:
        """What a name under ``leases`` is, or ``None`` for a stranger's."""
        if not name.startswith(self.leases):
            return None
        key, tab, tail = name[len(self.leases) :].partition(_TAB)
        if not tab:
            return None
        kind, _, rest = tail.partition(_TAB)
        try:
            return Part(key.decode(), kind, rest)
        except UnicodeDecodeError:
            return None
