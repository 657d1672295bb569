"""No failure of a call says "not applied" of what may be applied."""

from __future__ import annotations

import pytest

from outlive.drivers.etcd.translate import CallFailed, Compacted, LeaseGone, translate
from outlive.errors import (
    ConfigurationError,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    UsageError,
)


@pytest.mark.parametrize(
    ("code", "words", "expected"),
    [
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", OutcomeUnknown),
        ("UNAVAILABLE", "Socket closed", OutcomeUnknown),
        ("UNAVAILABLE", "recvmsg:Connection reset by peer", OutcomeUnknown),
        ("UNAVAILABLE", "etcdserver: request timed out", OutcomeUnknown),
        ("UNAVAILABLE", "etcdserver: leader changed", OutcomeUnknown),
        ("UNKNOWN", "raft proposal dropped", OutcomeUnknown),
        ("CANCELLED", "the connection was closed", OutcomeUnknown),
        ("INTERNAL", "something", OutcomeUnknown),
        ("UNAVAILABLE", "failed to connect to all addresses; last error: …", StoreUnavailable),
        ("UNAVAILABLE", "DNS resolution failed for x", StoreUnavailable),
        ("UNAVAILABLE", "etcdserver: no leader", StoreUnavailable),
        ("UNIMPLEMENTED", "unknown service etcdserverpb.KV", StoreUnavailable),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", StoreUnavailable),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", StoreUnavailable),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", StoreUnavailable),
        ("NOT_FOUND", "etcdserver: requested lease not found", LeaseGone),
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted", Compacted),
        ("PERMISSION_DENIED", "etcdserver: permission denied", ConfigurationError),
        (
            "INVALID_ARGUMENT",
            "etcdserver: authentication failed, invalid user ID or password",
            ConfigurationError,
        ),
        ("INVALID_ARGUMENT", "etcdserver: user name is empty", ConfigurationError),
        ("INVALID_ARGUMENT", "etcdserver: request is too large", UsageError),
        ("INVALID_ARGUMENT", "etcdserver: duplicate key given in txn request", StoreError),
    ],
)
def test_a_write_that_failed(code: str, words: str, expected: type[Exception]) -> None:
    assert type(translate(CallFailed(code, words), "shown", write=True)) is expected


def test_a_read_is_never_unknown() -> None:
    for code in ("DEADLINE_EXCEEDED", "UNAVAILABLE", "CANCELLED"):
        error = translate(CallFailed(code, "gone"), "shown", write=False)
        assert type(error) is StoreUnavailable


def test_what_never_left_is_not_applied_whatever_it_says() -> None:
    failure = CallFailed("DEADLINE_EXCEEDED", "late", sent=False)
    assert type(translate(failure, "shown", write=True)) is StoreUnavailable


def test_a_message_names_the_store_and_stays_short() -> None:
    error = translate(CallFailed("UNAVAILABLE", "x" * 1000), "etcd://db", write=True)
    assert "etcd://db" in str(error)
    assert len(str(error)) < 300
