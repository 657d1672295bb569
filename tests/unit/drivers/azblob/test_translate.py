"""What errors of the Azure client mean to a caller."""

from __future__ import annotations

import aiohttp
import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)

from outlive.drivers.azblob.translate import Refusal, is_busy, refusal_of, retry_after_s, translate
from outlive.errors import (
    ConfigurationError,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    UsageError,
)

pytestmark = pytest.mark.whitebox

SHOWN = "https://shop.blob.core.windows.net/leases"


class Response:
    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.status_code = status
        self.reason = ""
        self.headers = headers or {}


def reply(status: int, code: str | None = None, **headers: str) -> HttpResponseError:
    error = HttpResponseError(message="said the server", response=Response(status, headers))
    error.error_code = code
    return error


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        (reply(404, "BlobNotFound"), Refusal.MISSING),
        (reply(409, "BlobAlreadyExists"), Refusal.CHANGED),
        (reply(412, "ConditionNotMet"), Refusal.CHANGED),
        (reply(409, "LeaseAlreadyPresent"), Refusal.LEASE),
        (reply(409, "LeaseIdMismatchWithLeaseOperation"), Refusal.LEASE),
        (reply(409, "LeaseIsBrokenAndCannotBeRenewed"), Refusal.LEASE),
        (reply(412, "LeaseIdMismatchWithBlobOperation"), Refusal.LEASE),
        (reply(412, "LeaseIdMissing"), Refusal.LEASE),
        (reply(412, "LeaseLost"), Refusal.LEASE),
        (reply(404, "ContainerNotFound"), None),
        (reply(403, "AuthenticationFailed"), None),
        (reply(500, "InternalError"), None),
        (TimeoutError(), None),
    ],
)
def test_expected_refusals_are_told_apart(error, refusal):
    assert refusal_of(error) is refusal


@pytest.mark.parametrize(
    ("error", "write", "kind", "said"),
    [
        (TimeoutError(), True, OutcomeUnknown, "no reply in time"),
        (TimeoutError(), False, StoreUnavailable, "no reply in time"),
        (reply(500, "InternalError"), True, OutcomeUnknown, "500 InternalError"),
        (reply(500, "OperationTimedOut"), False, StoreUnavailable, "500"),
        (reply(503, "ServerBusy"), True, StoreUnavailable, "throttling"),
        (reply(429), True, StoreUnavailable, "throttling"),
        (reply(404, "ContainerNotFound"), True, StoreUnavailable, "does not exist"),
        (reply(403, "AuthenticationFailed"), True, ConfigurationError, "clock"),
        (reply(403, "AuthorizationPermissionMismatch"), True, ConfigurationError, "az role"),
        (reply(403, "AuthorizationFailure"), True, ConfigurationError, "firewall"),
        (reply(403, "Unheard"), True, ConfigurationError, "Storage Blob Data Contributor"),
        (reply(409, "BlobImmutableDueToPolicy"), True, ConfigurationError, "immutability"),
        (reply(400), False, ConfigurationError, "check endpoint"),
        (reply(400, "InvalidHeaderValue"), True, StoreError, "400 InvalidHeaderValue"),
        (ClientAuthenticationError("no identity"), True, ConfigurationError, "az login"),
        (
            ClientAuthenticationError("refused", response=Response(400)),
            True,
            ConfigurationError,
            "az login",
        ),
        (ValueError("key=canary"), False, ConfigurationError, "settings of"),
        (RuntimeError("canary"), False, StoreError, "RuntimeError"),
        (UsageError("ours"), True, UsageError, "ours"),
    ],
)
def test_each_error_says_what_the_caller_can_do(error, write, kind, said):
    translated = translate(error, write=write, shown=SHOWN)
    assert type(translated) is kind
    assert said in str(translated)
    assert "canary" not in str(translated)
    assert "said the server" not in str(translated)


def connector(kind: type[aiohttp.ClientConnectorError]) -> aiohttp.ClientConnectorError:
    error = kind.__new__(kind)
    OSError.__init__(error, 111, "refused")
    return error


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (connector(aiohttp.ClientConnectorError), "no connection"),
        (connector(aiohttp.ClientConnectorDNSError), "the host name does not exist"),
        (connector(aiohttp.ClientConnectorSSLError), "TLS failed"),
        (aiohttp.ConnectionTimeoutError(), "no connection"),
    ],
)
def test_what_never_connected_was_not_applied(cause, said):
    error = caused(ServiceRequestError("no"), cause)
    translated = translate(error, write=True, shown=SHOWN)
    assert type(translated) is StoreUnavailable
    assert said in str(translated)
    assert SHOWN in str(translated)


@pytest.mark.parametrize(
    "error",
    [
        # The client library calls these "request errors", although the request was sent.
        caused(ServiceRequestError("reset"), aiohttp.ClientOSError(104, "reset")),
        caused(ServiceRequestError("gone"), aiohttp.ServerDisconnectedError()),
        caused(ServiceResponseError("cut"), aiohttp.ClientPayloadError()),
    ],
)
def test_what_was_cut_off_may_have_been_applied(error):
    assert type(translate(error, write=True, shown=SHOWN)) is OutcomeUnknown
    assert type(translate(error, write=False, shown=SHOWN)) is StoreUnavailable


def test_a_busy_service_says_when_to_come_back():
    assert is_busy(reply(503, "ServerBusy"))
    assert not is_busy(reply(500, "InternalError"))
    busy = HttpResponseError(response=Response(503, {"Retry-After": "2"}))
    assert retry_after_s(busy) == 2
    for useless in ("soon", "-1"):
        later = HttpResponseError(response=Response(503, {"Retry-After": useless}))
        assert not retry_after_s(later)
    assert retry_after_s(TimeoutError()) is None
