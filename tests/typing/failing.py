"""What a type checker must say about errors: their fields, and who is whose kind."""

from __future__ import annotations

from typing import assert_type

import holdfast


async def caught(leases: holdfast.Leases) -> None:
    try:
        await leases.acquire("report", timeout=0)
    except holdfast.LeaseHeld as error:
        assert_type(error.key, str)
        assert_type(error.owner, str | None)
    except holdfast.AcquireTimeout as error:
        assert_type(error.owner, str | None)
        assert_type(error.timeout_s, float)
        late: TimeoutError = error
        del late
    except holdfast.LeaseLost as error:
        assert_type(error.key, str)
        assert_type(error.reason, str)
    except holdfast.SchemaMismatch as error:
        assert_type(error.found, int)
        assert_type(error.expected, int)
    except holdfast.LeaseNotFound as error:
        assert_type(error.key, str)


def families() -> None:
    lost: list[type[holdfast.LeaseLost]] = [holdfast.Fenced, holdfast.LeaseExpired]
    usage: list[type[holdfast.UsageError]] = [
        holdfast.ConfigurationError,
        holdfast.InvalidName,
        holdfast.UnsupportedByDriver,
        holdfast.AlreadyOwned,
    ]
    store: list[type[holdfast.StoreError]] = [
        holdfast.StoreUnavailable,
        holdfast.OutcomeUnknown,
        holdfast.SchemaMismatch,
    ]
    conflict: list[type[holdfast.Conflict]] = [holdfast.LeaseHeld, holdfast.AlreadyOwned]
    every: list[type[holdfast.HoldfastError]] = [*lost, *usage, *store, *conflict]
    del every


def options() -> None:
    changed = holdfast.LeaseOptions(ttl=5, renew_backoff=(0.1, 1)).with_(ttl=10)
    assert_type(changed, holdfast.LeaseOptions)
    holdfast.LeaseOptions(ttk=5)  # pyright: ignore[reportCallIssue]
