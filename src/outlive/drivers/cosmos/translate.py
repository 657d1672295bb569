"""What an error of the Azure client means to a caller: the one place where the two meet.

Pure, and knows the client's errors by their fields and names, so that it imports no client library.
Decides between "not applied" and "nobody knows", and must never call a write refused that may have
been applied. Messages name the error's class and status, never a key, a token or a body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from outlive.errors import (
    ConfigurationError,
    OutcomeUnknown,
    OutliveError,
    StoreError,
    StoreUnavailable,
    UsageError,
)

# Answers that are part of the protocol and no failures: missing, exists already, changed meanwhile.
MISSING = 404
EXISTS = 409
CHANGED = 412

_UNAUTHORIZED = 401
_FORBIDDEN = 403
_TOO_LARGE = 413
_THROTTLED = 429

# Refused before anything was written: too many requests, and a conflict inside the service.
_REFUSED = {
    _THROTTLED: "the request rate is too large",
    449: "a conflicting request is in progress",
}

# Worth repeating after a pause; whether a write among them was applied, nobody knows.
_TRANSIENT = frozenset({408, 410, 500, 502, 503, 504})

# "Not found" for other reasons: the replica that was asked is behind what this client has seen, so
# that another one should be asked; or the container itself is gone.
_BEHIND = 1002
_CONTAINER_GONE = 1003

# The pause where the service names none, and the least where it names one: a request that is sent
# again at once would be throttled again.
_PAUSE_S = 0.1
_PAUSE_LEAST_S = 0.01

# The request was never sent: no address, no connection, no TLS.
_NEVER_SENT = frozenset(
    {"ClientConnectorError", "ClientConnectorDNSError", "ConnectionTimeoutError"}
    | {"ClientConnectorCertificateError", "ClientConnectorSSLError", "ClientProxyConnectionError"}
)


class Failure(NamedTuple):
    """What went wrong, and whether to send the request again after ``retry_s`` seconds.

    ``unsure`` means that a write may have been applied all the same.
    """

    error: OutliveError
    retry_s: float | None = None
    unsure: bool = False


def status_of(error: BaseException) -> int | None:
    """The HTTP status that ``error`` reports, if the service answered at all."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def is_answer(error: BaseException) -> bool:
    """Whether ``error`` is how the client says MISSING, EXISTS or CHANGED of one item."""
    status, substatus = status_of(error), getattr(error, "sub_status", None)
    return status in {EXISTS, CHANGED} or (
        status == MISSING and substatus not in {_BEHIND, _CONTAINER_GONE}
    )


def judge(error: BaseException, *, write: bool, sends: int, shown: str) -> Failure:
    """What ``error`` means, after the client sent the request ``sends`` times to ``shown``."""
    if isinstance(error, OutliveError):
        return Failure(error)
    if _is_a(error, "ClientAuthenticationError"):
        # Raised by the identity alone, before anything is sent; it may carry its own service's
        # status.
        return Failure(
            ConfigurationError(
                f"no token for {shown}: the identity of this process was not found or not accepted "
                "(az login, a managed identity, or AZURE_CLIENT_ID and its siblings); or give "
                "account_key or connection_string"
            )
        )
    status = status_of(error)
    if status is not None:
        return _answered(error, status, write=write, shown=shown)
    name = type(error).__name__
    if isinstance(error, TimeoutError):
        return _lost("no reply in time", write=write)
    inner = getattr(error, "inner_exception", None)
    cause = name if inner is None else type(inner).__name__
    if sends <= 1 and (cause in _NEVER_SENT or name == "ServiceRequestTimeoutError"):
        return Failure(
            StoreUnavailable(
                f"cannot connect to {shown} ({cause}): check the account name, and that this "
                "machine can reach the account"
            )
        )
    if _is_a(error, "AzureError") or isinstance(error, (OSError, RuntimeError, ValueError)):
        # A connection that was idle for long may be closed under a read, which is sent again.
        return _lost(cause, write=write, retry_s=None if write else _PAUSE_S)
    return Failure(StoreError(f"Azure Cosmos DB: unexpected {name}"), unsure=write)


def _answered(error: BaseException, status: int, *, write: bool, shown: str) -> Failure:
    what = f"{type(error).__name__}, {status}{_substatus(error)}"
    if status in _REFUSED:
        words = f"Azure Cosmos DB refused the request: {_REFUSED[status]} ({what})"
        if status == _THROTTLED:
            words += "; provision more request units, or poll and renew less often"
        return Failure(StoreUnavailable(words), retry_s=_retry_after(error))
    if status in _TRANSIENT:
        return _lost(what, write=write, retry_s=_retry_after(error))
    if status == _UNAUTHORIZED:
        return Failure(
            ConfigurationError(
                f"{shown} rejected the key: check account_key or connection_string against `az "
                "cosmosdb keys list`, and check the clock of this machine"
            )
        )
    if status == _FORBIDDEN:
        return Failure(ConfigurationError(forbidden(shown, what)))
    if status == _TOO_LARGE:
        return Failure(UsageError("the lease is too large for an item: shorten metadata or state"))
    if status == MISSING:
        if getattr(error, "sub_status", None) == _BEHIND:
            return _lost(what, write=write, retry_s=_PAUSE_S)
        return Failure(
            StoreError(
                f"the database or container of {shown} does not exist; connect again to create it"
            )
        )
    return Failure(StoreError(f"Azure Cosmos DB reported {what}"))


def forbidden(shown: str, what: str) -> str:
    """What to do where the service knows the caller and refuses it."""
    return (
        f"{shown} forbids this ({what}): give the identity the role Cosmos DB Built-in Data "
        "Contributor (az cosmosdb sql role assignment create --role-definition-name 'Cosmos DB "
        "Built-in Data Contributor' --principal-id ID --scope / --account-name ACCOUNT "
        "--resource-group GROUP), or check the firewall of the account"
    )


def _lost(what: str, *, write: bool, retry_s: float | None = None) -> Failure:
    if write:
        error = OutcomeUnknown(
            f"the reply of Azure Cosmos DB was lost ({what}); the write may have been applied"
        )
        return Failure(error, retry_s, unsure=True)
    return Failure(StoreUnavailable(f"Azure Cosmos DB did not answer ({what})"), retry_s)


def _retry_after(error: BaseException) -> float:
    headers = cast("Mapping[str, Any]", getattr(error, "headers", None) or {})
    for name, unit in (("x-ms-retry-after-ms", 1e-3), ("Retry-After", 1.0)):
        try:
            return max(_PAUSE_LEAST_S, float(headers[name]) * unit)
        except (KeyError, TypeError, ValueError):
            continue
    return _PAUSE_S


def _substatus(error: BaseException) -> str:
    substatus = getattr(error, "sub_status", None)
    return f"/{substatus}" if substatus else ""


def _is_a(error: BaseException, name: str) -> bool:
    return any(kind.__name__ == name for kind in type(error).__mro__)
