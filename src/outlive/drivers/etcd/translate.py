"""What a failed call means to a caller: the one place where gRPC's and our vocabularies meet.

Pure. Decides between "not applied" and "nobody knows", and must never call a write refused that
may have been applied. Messages repeat what etcd said, never a password or a token.
"""

from __future__ import annotations

from enum import Enum

from outlive.errors import (
    ConfigurationError,
    OutcomeUnknown,
    OutliveError,
    StoreError,
    StoreUnavailable,
    UsageError,
)


class CallFailed(Exception):
    """A call to etcd failed: gRPC's code by name, and the words that came with it.

    ``sent`` is false when the call surely never left this machine.
    """

    def __init__(self, code: str, words: str, *, sent: bool = True) -> None:
        super().__init__(f"{code}: {words}")
        self.code = code
        self.words = " ".join(words.split())
        self.sent = sent


class LeaseGone(StoreError):
    """The lease of etcd that a write was to hang on is gone. Nothing was written."""


class Compacted(StoreError):
    """The revision that was to be read is not kept any more. Read again."""


class Verdict(Enum):
    """What a failure says about the call, and about the member that was asked."""

    NOT_APPLIED = "not applied; another member may do better"
    REFUSED = "not applied; another member would say the same"
    STALE_LOGIN = "not applied; log in again"
    UNKNOWN = "perhaps applied"


# gRPC's own words for a call that found no connection to leave by.
_NO_CONNECTION = ("failed to connect", "connections to all backends failing", "dns resolution")

# etcd's words for work that it did not begin.
_NOT_BEGUN = ("too many requests", "not capable", "no leader", "not ready", "learner")

_LOGIN = ("invalid auth token", "revision in header is old")


def judge(failure: CallFailed) -> Verdict:
    """What ``failure`` says."""
    words = failure.words.lower()
    if not failure.sent or any(part in words for part in _NO_CONNECTION):
        return Verdict.NOT_APPLIED
    if failure.code == "UNIMPLEMENTED":
        # No etcd, one that is too old, or one that has just begun to start.
        return Verdict.NOT_APPLIED
    if any(part in words for part in _LOGIN):
        return Verdict.STALE_LOGIN
    if "etcdserver" in words and any(part in words for part in _NOT_BEGUN):
        return Verdict.NOT_APPLIED
    if failure.code in _ANSWERS or "space exceeded" in words:
        return Verdict.REFUSED
    return Verdict.UNKNOWN


# Codes by which etcd answers a request that it has looked at and refused.
_ANSWERS = frozenset(
    {
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
        "FAILED_PRECONDITION",
        "OUT_OF_RANGE",
        "RESOURCE_EXHAUSTED",
    }
)


def translate(failure: CallFailed, shown: str, *, write: bool) -> OutliveError:
    """The error to raise for ``failure`` of a call to ``shown``."""
    verdict, words = judge(failure), failure.words
    if verdict is Verdict.NOT_APPLIED:
        return StoreUnavailable(f"cannot reach etcd at {shown}: {_brief(failure)}")
    if verdict is Verdict.STALE_LOGIN:
        return StoreUnavailable(f"etcd at {shown} does not accept its own login token: {words}")
    if verdict is Verdict.REFUSED:
        return _refused(failure, shown)
    if write:
        return OutcomeUnknown(
            f"the reply of etcd at {shown} was lost ({_brief(failure)}); it may be applied"
        )
    return StoreUnavailable(f"etcd at {shown} did not answer ({_brief(failure)})")


def _refused(failure: CallFailed, shown: str) -> OutliveError:
    words, lower = failure.words, failure.words.lower()
    if "lease not found" in lower:
        return LeaseGone(f"a lease of etcd ran out before it was used: {words}")
    if "compacted" in lower:
        return Compacted(f"etcd has compacted the revision that was read: {words}")
    if "space exceeded" in lower:
        return StoreUnavailable(
            f"etcd at {shown} is full and refuses writes: compact and defragment it, then run "
            "`etcdctl alarm disarm`"
        )
    if "invalid user id or password" in lower:
        return ConfigurationError(f"etcd at {shown} does not accept the user or the password")
    if "user name is empty" in lower or "user name not found" in lower:
        return ConfigurationError(
            f"etcd at {shown} asks for a user: write etcd://user:password@host"
        )
    if failure.code == "PERMISSION_DENIED" or "permission denied" in lower:
        return ConfigurationError(
            f"etcd at {shown} does not permit this: give the user's role readwrite on the prefix"
        )
    if failure.code == "RESOURCE_EXHAUSTED" and "larger than max" in lower:
        return StoreError(f"an answer of etcd at {shown} is too large: {words}")
    if "request is too large" in lower or "too many operations" in lower:
        return UsageError(f"etcd at {shown} takes no request of this size: {words}")
    return StoreError(f"etcd at {shown} refused: {words} ({failure.code})")


def _brief(failure: CallFailed) -> str:
    # gRPC's own words may go on for lines; the first sentence says it.
    return f"{failure.code}, {failure.words[:160]}" if failure.words else failure.code
