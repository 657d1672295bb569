"""What a type checker must say about errors: their fields, and who is whose kind."""

from __future__ import annotations

from typing import assert_type

import outlive


async def caught(leases: outlive.Leases) -> None:
    try:
        await leases.acquire("report", timeout=0)
    except outlive.LeaseHeld as error:
        assert_type(error.key, str)
        assert_type(error.owner, str | None)
    except outlive.AcquireTimeout as error:
        assert_type(error.owner, str | None)
        assert_type(error.timeout_s, float)
        late: TimeoutError = error
        del late
    except outlive.LeaseLost as error:
        assert_type(error.key, str)
        assert_type(error.reason, str)
    except outlive.SchemaMismatch as error:
        assert_type(error.found, int)
        assert_type(error.expected, int)
    except outlive.LeaseNotFound as error:
        assert_type(error.key, str)


def families() -> None:
    lost: list[type[outlive.LeaseLost]] = [outlive.Fenced, outlive.LeaseExpired]
    usage: list[type[outlive.UsageError]] = [
        outlive.ConfigurationError,
        outlive.InvalidName,
        outlive.UnsupportedByDriver,
        outlive.AlreadyOwned,
    ]
    store: list[type[outlive.StoreError]] = [
        outlive.StoreUnavailable,
        outlive.OutcomeUnknown,
        outlive.SchemaMismatch,
    ]
    conflict: list[type[outlive.Conflict]] = [outlive.LeaseHeld, outlive.AlreadyOwned]
    every: list[type[outlive.OutliveError]] = [*lost, *usage, *store, *conflict]
    del every


def options() -> None:
    changed = outlive.LeaseOptions(ttl=5, renew_backoff=(0.1, 1)).with_(ttl=10)
    assert_type(changed, outlive.LeaseOptions)
    outlive.LeaseOptions(ttk=5)  # pyright: ignore[reportCallIssue]
