"""Settings and errors: what is refused before anything is sent, and what an answer means."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys

import pytest

from outlive.clock import SystemClock
from outlive.drivers.cosmos import CosmosFactory
from outlive.drivers.cosmos.settings import read_settings
from outlive.drivers.cosmos.translate import is_answer, judge
from outlive.errors import (
    ConfigurationError,
    OutcomeUnknown,
    OutliveError,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from outlive.model.location import parse_url
from outlive.names import HostId
from outlive.ports.driver import DriverContext

pytestmark = pytest.mark.whitebox

CANARY = "Y2FuYXJ5LWtleQ=="


class Answered(Exception):
    """An error of the client library, as far as it is looked at."""

    def __init__(self, status: int, sub_status: int | None = None, **headers: str) -> None:
        super().__init__(f"the body may quote {CANARY}")
        self.status_code = status
        self.sub_status = sub_status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class AzureError(Exception):
    def __init__(self, inner: BaseException | None = None) -> None:
        super().__init__(CANARY)
        self.inner_exception = inner


class ClientConnectorError(OSError):
    pass


class ServerDisconnectedError(Exception):
    pass


class ClientAuthenticationError(AzureError):
    pass


@pytest.mark.parametrize(
    ("error", "read", "write"),
    [
        (Answered(429), StoreUnavailable, StoreUnavailable),
        (Answered(449), StoreUnavailable, StoreUnavailable),
        (Answered(503), StoreUnavailable, OutcomeUnknown),
        (Answered(500), StoreUnavailable, OutcomeUnknown),
        (Answered(408), StoreUnavailable, OutcomeUnknown),
        (Answered(404, 1002), StoreUnavailable, OutcomeUnknown),
        (Answered(404, 1003), StoreError, StoreError),
        (Answered(400), StoreError, StoreError),
        (Answered(401), ConfigurationError, ConfigurationError),
        (Answered(403), ConfigurationError, ConfigurationError),
        (Answered(413), UsageError, UsageError),
        (AzureError(ClientConnectorError()), StoreUnavailable, StoreUnavailable),
        (AzureError(ServerDisconnectedError()), StoreUnavailable, OutcomeUnknown),
        (ClientAuthenticationError(), ConfigurationError, ConfigurationError),
        (TimeoutError(), StoreUnavailable, OutcomeUnknown),
        (ConnectionResetError(), StoreUnavailable, OutcomeUnknown),
        (KeyError("_etag"), StoreError, StoreError),
    ],
)
def test_every_error_says_whether_a_write_was_applied(error, read, write):
    found = [judge(error, write=wrote, sends=1, shown="shown") for wrote in (False, True)]
    assert [type(failure.error) for failure in found] == [read, write]
    assert found[1].unsure == (write is OutcomeUnknown or isinstance(error, KeyError))
    assert not found[0].unsure
    assert CANARY not in "".join(str(failure.error) for failure in found)


def test_a_connection_that_failed_the_second_time_leaves_the_first_open():
    refused = AzureError(ClientConnectorError())
    again = judge(refused, write=True, sends=2, shown="shown")
    assert type(again.error) is OutcomeUnknown


def test_the_service_says_when_to_come_back():
    assert judge(_throttled(x_ms_retry_after_ms="250"), **_CALL).retry_s == 0.25
    assert judge(Answered(503, None, Retry_After="2"), **_CALL).retry_s == 2.0
    assert judge(_throttled(x_ms_retry_after_ms="soon"), **_CALL).retry_s == 0.1
    assert judge(Answered(401), **_CALL).retry_s is None


_CALL = {"write": False, "sends": 1, "shown": "shown"}


def _throttled(**headers: str) -> Answered:
    return Answered(429, None, **headers)


def test_a_condition_that_failed_is_an_answer_and_no_error():
    assert is_answer(Answered(412, 1110))
    assert is_answer(Answered(409))
    assert is_answer(Answered(404, 0))
    assert not is_answer(Answered(404, 1002))
    assert not is_answer(Answered(404, 1003))
    assert not is_answer(Answered(429))
    assert not is_answer(TimeoutError())


def test_our_own_errors_pass_unchanged():
    error = OutliveError("ours")
    assert judge(error, **_CALL).error is error


def test_a_url_names_account_database_and_container():
    settings = read_settings(parse_url("cosmos://shop/db/leases"), {"account_key": CANARY})
    assert settings.access.endpoint == "https://shop.documents.azure.com:443/"
    assert (settings.database, settings.container) == ("db", "leases")
    assert settings.discovery
    assert CANARY not in repr(settings)


def test_database_and_container_have_names_by_default():
    settings = read_settings(parse_url("cosmos://shop"), {})
    assert (settings.database, settings.container) == ("DistributedLeasing", "Leases")
    assert read_settings(parse_url("cosmos://shop/db"), {}).container == "Leases"


@pytest.mark.parametrize(
    "endpoint", ["http://10.0.0.7:8081", "http://cosmos:8081", "https://127.0.0.1:8081"]
)
def test_an_emulator_is_not_asked_for_its_regions(endpoint):
    options = {"endpoint": endpoint, "account_key": CANARY}
    assert not read_settings(parse_url("cosmos://emulator"), options).discovery


def test_options_of_the_url_are_taken_and_arguments_win():
    url = "cosmos://shop?fast_takeover=true&max_server_skew=7&request_timeout=3"
    settings = read_settings(parse_url(url), {"request_timeout": 4, "throughput": 400})
    assert settings.fast_takeover
    assert (settings.max_server_skew_s, settings.request_timeout_s) == (7.0, 4.0)
    assert settings.throughput == 400


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("cosmos://", {}),
        ("cosmos://shop/a/b/c", {}),
        ("cosmos://shop/a%23b", {}),
        ("cosmos://shop/a%20", {}),
        ("cosmos://shop", {"request_timeout": 0}),
        ("cosmos://shop", {"request_timeout": "soon"}),
        ("cosmos://shop", {"max_server_skew": 0.5}),
        ("cosmos://shop", {"fast_takeover": "maybe"}),
        ("cosmos://shop", {"throughput": 100}),
        ("cosmos://shop", {"proxy": "proxy.example:8080"}),
        (
            "cosmos://shop",
            {"connection_string": "AccountEndpoint=https://x;SharedAccessSignature=s"},
        ),
    ],
)
def test_a_wrong_url_or_option_is_refused(url, options):
    with pytest.raises(ConfigurationError):
        read_settings(parse_url(url), options)


def test_importing_the_driver_imports_no_client_library():
    check = (
        "import sys; from outlive.drivers.cosmos import CosmosFactory; "
        "CosmosFactory().capabilities; assert not any(m.startswith('azure') for m in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
    assert "fast_takeover" in CosmosFactory().options


@pytest.mark.parametrize("module", ["azure.cosmos", "azure.cosmos.aio", "azure.core"])
def test_a_missing_library_names_the_command(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    context = DriverContext(
        clock=SystemClock(), random=random.Random(1), namespace="n", host=HostId("h")
    )
    opening = CosmosFactory().open(parse_url("cosmos://shop"), context)
    with pytest.raises(ConfigurationError, match=r"pip install 'outlive\[cosmos\]'"):
        asyncio.run(opening)


@pytest.mark.parametrize("wanted", ["0", "-5", "nan"])
def test_a_throttled_request_is_never_sent_again_at_once(wanted):
    error = Answered(429, x_ms_retry_after_ms=wanted)
    pause_s = judge(error, write=True, sends=1, shown="cosmos://a").retry_s
    assert pause_s is not None
    assert pause_s >= 0.01


@pytest.mark.parametrize("status", [400, 401, 500])
def test_an_identity_that_is_refused_is_told_from_a_key(status):
    error = ClientAuthenticationError()
    error.status_code = status
    said = judge(error, write=True, sends=0, shown="cosmos://a").error
    assert isinstance(said, ConfigurationError)
    assert "the identity of this process" in str(said)
