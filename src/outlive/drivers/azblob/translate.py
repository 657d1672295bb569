"""What an error of the Azure client means: the one place where the two vocabularies meet.

Pure, and imports no client library: errors are told apart by status, error code and class name.
Decides between "not applied" and "nobody knows", and must never call a write refused that may have
been applied. Messages name the code, never a URL with a signature, a key or a header.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from outlive.errors import (
    ConfigurationError,
    OutcomeUnknown,
    OutliveError,
    StoreError,
    StoreUnavailable,
)


class Refusal(Enum):
    """Answers that a lease store expects: the service was reached and changed nothing."""

    MISSING = "the blob does not exist"
    CHANGED = "the blob has changed since it was read"
    LEASE = "the lease has another owner, or no owner"


_REFUSALS = {
    "BlobNotFound": Refusal.MISSING,
    "BlobAlreadyExists": Refusal.CHANGED,
    "ContainerAlreadyExists": Refusal.CHANGED,
    "ConditionNotMet": Refusal.CHANGED,
}

# Refused before any work was done, because there is too much of it.
_BUSY = frozenset({"ServerBusy", "TooManyRequests", "EgressIsOverAccountLimit"})
_BUSY_STATUS = frozenset({429, 503})

# Raised by aiohttp when no connection came about, so that nothing was sent.
_NOT_CONNECTED = frozenset({"ClientConnectorError", "ConnectionTimeoutError", "InvalidURL"})

_ROLE = (
    'az role assignment create --role "Storage Blob Data Contributor" --assignee IDENTITY '
    "--scope CONTAINER_RESOURCE_ID"
)

# What stands behind a 401 or 403, by Azure's own codes, and what to do about it.
_FORBIDDEN = {
    "AuthenticationFailed": (
        "the key or signature was not accepted; check the key and the clock of this machine"
    ),
    "AuthorizationFailure": (
        "the key was not accepted, or the firewall of the account blocks this address"
    ),
    "AuthorizationPermissionMismatch": (
        f"the identity may not read and write blobs here; assign the role: {_ROLE}"
    ),
    "AuthorizationResourceTypeMismatch": (
        "the shared access signature is not valid for containers and blobs; create one for both"
    ),
    "AuthorizationProtocolMismatch": "the shared access signature requires https",
    "InsufficientAccountPermissions": f"the identity may not do this; assign the role: {_ROLE}",
    "InvalidAuthenticationInfo": "the token of the identity was not accepted",
    "KeyBasedAuthenticationNotPermitted": (
        f"the account does not accept keys; leave account_key out and assign the role: {_ROLE}"
    ),
    "AccountIsDisabled": "the storage account is disabled",
    "BlobImmutableDueToPolicy": (
        "an immutability policy forbids changing blobs; use a container without one"
    ),
}


def error_code(error: BaseException) -> str:
    """Azure's own code of an error, or an empty text."""
    code: Any = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")


def status_of(error: BaseException) -> int | None:
    """The HTTP status of an error that came as a reply."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def refusal_of(error: BaseException) -> Refusal | None:
    """The expected refusal that ``error`` is, if it is one."""
    code = error_code(error)
    if status_of(error) in {404, 409, 412} and code.startswith("Lease"):
        return Refusal.LEASE
    return _REFUSALS.get(code)


def is_busy(error: BaseException) -> bool:
    """Whether the service asks to come back later, and did nothing."""
    code = error_code(error)
    return code in _BUSY or (not code and status_of(error) in _BUSY_STATUS)


def retry_after_s(error: BaseException) -> float | None:
    """How long the service asks to wait, if it says so in seconds."""
    headers: Any = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        return max(0.0, float(headers.get("Retry-After")))
    except (TypeError, ValueError):
        return None


def translate(error: BaseException, *, write: bool, shown: str) -> OutliveError:
    """The error to raise for ``error``, which came while ``shown`` was asked for something.

    ``write`` says whether the request could change something.
    """
    if isinstance(error, OutliveError):
        return error
    if isinstance(error, TimeoutError):
        return _lost("no reply in time", write=write)
    status, names = status_of(error), _class_names(error)
    if "ClientAuthenticationError" in names and not error_code(error):
        # It was the identity's own service that refused, and nothing was sent to the storage.
        return ConfigurationError(
            "no identity for Azure Blob Storage: run with a managed or workload identity, run "
            "`az login`, or give account_key or connection_string"
        )
    if status is not None:
        return _translate_reply(error, status, write=write, shown=shown)
    cause = error.__cause__
    if not _NOT_CONNECTED.isdisjoint(_class_names(cause)):
        return _not_connected(cause, shown)
    what = type(cause or error).__name__
    if "AzureError" in names:
        return _lost(what, write=write)
    if isinstance(error, ValueError):
        # The client's own words may quote a key.
        return ConfigurationError(f"the Azure client rejected the settings of {shown}")
    return StoreError(f"the Azure client failed ({what})")


def _translate_reply(error: BaseException, status: int, *, write: bool, shown: str) -> OutliveError:
    code = error_code(error)
    said = f"{status} {code}".strip()
    if is_busy(error):
        return StoreUnavailable(f"Azure Blob Storage is throttling this account ({said})")
    if code in _FORBIDDEN or status in {401, 403}:
        advice = _FORBIDDEN.get(code, f"the identity may not do this; assign the role: {_ROLE}")
        return ConfigurationError(f"{shown} refused the request ({said}): {advice}")
    if code in {"ContainerNotFound", "ContainerBeingDeleted"}:
        return StoreUnavailable(f"the container {shown} does not exist ({said}); create it again")
    if status >= 500:  # noqa: PLR2004
        return _lost(said, write=write)
    if not code:
        return ConfigurationError(
            f"the replies of {shown} do not come from Azure Blob Storage ({said}); check endpoint"
        )
    return StoreError(f"Azure Blob Storage reported {said}")


def _not_connected(cause: BaseException | None, shown: str) -> StoreUnavailable:
    names = _class_names(cause)
    if "ClientConnectorDNSError" in names:
        why = "the host name does not exist; check the account name and the network"
    elif not {"ClientConnectorSSLError", "ClientConnectorCertificateError"}.isdisjoint(names):
        why = "TLS failed; check that endpoint uses https and that its certificate is trusted"
    else:
        why = f"no connection, {type(cause).__name__}"
    return StoreUnavailable(f"cannot reach {shown} ({why})")


def _class_names(error: BaseException | None) -> set[str]:
    return set() if error is None else {kind.__name__ for kind in type(error).__mro__}


def _lost(what: str, *, write: bool) -> StoreError:
    if write:
        return OutcomeUnknown(
            f"the reply of Azure Blob Storage was lost ({what}); the write may have been applied"
        )
    return StoreUnavailable(f"Azure Blob Storage did not answer ({what})")
