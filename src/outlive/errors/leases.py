"""What goes wrong with leases, and with whatever else has an owner."""

from __future__ import annotations

from outlive.errors.families import Conflict, NotFound, OutliveError, UsageError


class LeaseNotFound(NotFound):
    """No lease of this key was ever granted in this namespace."""

    def __init__(self, key: str) -> None:
        super().__init__(f"no lease {key!r} in this namespace; see `outlive lease ls --all`")
        self.key = key


class LeaseHeld(Conflict):
    """The lease belongs to somebody else right now.

    ``owner`` names the owner, or is ``None`` when the key is free but reserved for those who
    queued earlier.
    """

    def __init__(self, key: str, owner: str | None, *, detail: str = "") -> None:
        by = f"owned by {owner}" if owner is not None else "reserved for earlier waiters"
        super().__init__(f"lease {key!r} is {by}{detail}")
        self.key, self.owner = key, owner


class AlreadyOwned(UsageError, LeaseHeld):
    """The task that asks already owns the key, so waiting for it would never end.

    Leases are not reentrant: pass the handle along instead of acquiring twice.
    """

    def __init__(self, key: str, owner: str | None) -> None:
        detail = (
            " in this same task; leases are not reentrant: pass the handle along, or release it "
            "first"
        )
        LeaseHeld.__init__(self, key, owner, detail=detail)


class LeaseLost(OutliveError):
    """The lease is no longer ours: stop side effects at once.

    ``reason`` is a short, stable code (``expired``, ``fenced``, ``broken``, ``stalled``,
    ``forked``, ``released``, ``closed``, ``abandoned``).
    """

    def __init__(self, key: str, reason: str, message: str | None = None) -> None:
        super().__init__(message or f"lease {key!r} was lost ({reason})")
        self.key, self.reason = key, reason


class LeaseExpired(LeaseLost):
    """The time ran out before a renewal was acknowledged. Others may own the key now."""

    def __init__(self, key: str, message: str | None = None) -> None:
        super().__init__(key, "expired", message)


class Fenced(LeaseLost):
    """The store refused the token: a newer grant exists, or the grant was ended by others."""

    def __init__(self, key: str, reason: str = "fenced", message: str | None = None) -> None:
        super().__init__(key, reason, message)

    @classmethod
    def broken(cls, key: str, why: str | None) -> Fenced:
        """The error of an owner whose lease somebody broke, with the words that were given."""
        return cls(key, "broken", f"lease {key!r} was lost (broken: {why})" if why else None)


class AcquireTimeout(OutliveError, TimeoutError):
    """The lease could not be had in the time allowed. Nothing is held, no place is queued."""

    def __init__(self, key: str, owner: str | None, timeout_s: float) -> None:
        by = f"; owned by {owner}" if owner is not None else ""
        super().__init__(f"lease {key!r} was not acquired within {timeout_s:g} s{by}")
        self.key, self.owner = key, owner
        self.timeout_s = timeout_s
