"""The URL and options of the driver: what they mean, and what is refused."""

from __future__ import annotations

import pytest

from outlive.connect import find_factory
from outlive.drivers.azblob.settings import read_settings
from outlive.errors import ConfigurationError
from outlive.model.location import parse_url

pytestmark = pytest.mark.whitebox


def test_an_account_and_a_container_are_enough():
    settings = read_settings(parse_url("azblob://shop/leases"), {})
    assert settings.container == "leases"
    assert settings.shown == "https://shop.blob.core.windows.net/leases"
    assert (settings.request_timeout_s, settings.connect_timeout_s) == (10, 5)


def test_arguments_win_over_the_query():
    url = "azblob://shop/leases?request_timeout=3&connect_timeout=2"
    settings = read_settings(parse_url(url), {"request_timeout": 4})
    assert (settings.request_timeout_s, settings.connect_timeout_s) == (4, 2)


def test_a_connection_string_needs_no_account_in_the_url():
    text = "AccountName=shop;AccountKey=canary=="
    settings = read_settings(parse_url("azblob:///leases"), {"connection_string": text})
    assert settings.access.account == "shop"
    assert "canary" not in repr(settings)


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("azblob://shop", {}, "is not a valid container name"),
        ("azblob://shop/Leases", {}, "is not a valid container name"),
        ("azblob://shop/a--b", {}, "is not a valid container name"),
        ("azblob://shop/-ab", {}, "is not a valid container name"),
        ("azblob://shop/ab", {}, "is not a valid container name"),
        ("azblob://shop/a/b", {}, "is not a valid container name"),
        ("azblob://shop/" + "a" * 64, {}, "is not a valid container name"),
        ("azblob://shop:canary@host/leases", {}, "not contain a user or a password"),
        (
            "azblob:///leases",
            {"endpoint": "https://x", "account_key": "canary=="},
            "the name of its account",
        ),
        ("azblob://shop/leases?request_timeout=0", {}, "between 0.05"),
        ("azblob://shop/leases", {"connect_timeout": True}, "a number of seconds"),
        ("azblob://shop/leases", {"connect_timeout": "soon"}, "a number of seconds"),
        ("azblob://shop/leases", {"proxy": "canary:8080"}, "http://host:port"),
    ],
)
def test_what_cannot_work_is_refused_without_a_secret(url, options, said):
    with pytest.raises(ConfigurationError, match=said) as raised:
        read_settings(parse_url(url), options)
    assert "canary" not in str(raised.value)


def test_promises_can_be_read_without_the_client_library():
    capabilities = find_factory("azblob").capabilities
    assert (capabilities.ttl_min_s, capabilities.ttl_max_s) == (15, 60)
    assert (capabilities.fifo, capabilities.push, capabilities.sessions) == (False,) * 3
