"""What the Azure drivers share: where a service is, who asks, and secrets that never show."""

from __future__ import annotations

import sys

import pytest

from outlive.azure import BLOB, COSMOS, open_identity, read_access
from outlive.errors import ConfigurationError

CANARY = "Y2FuYXJ5+/canaryAA=="


def test_an_account_alone_means_the_public_cloud_and_the_identity_of_the_process():
    access = read_access(BLOB, "shop", {})
    assert access.endpoint == "https://shop.blob.core.windows.net"
    assert (access.key, access.signature) == (None, None)
    assert access.method == "identity of the process"
    assert read_access(COSMOS, "shop", {}).endpoint == "https://shop.documents.azure.com:443/"


def test_an_endpoint_wins_over_the_public_cloud():
    endpoint = "https://shop.blob.core.chinacloudapi.cn"
    assert read_access(BLOB, "shop", {"endpoint": endpoint}).endpoint == endpoint
    assert read_access(BLOB, "", {"endpoint": endpoint}).account == ""


def test_an_account_key_is_used_and_never_shown():
    access = read_access(BLOB, "shop", {"account_key": CANARY})
    assert access.key == CANARY
    assert access.method == "account key"
    assert CANARY not in repr(access)


def test_a_connection_string_of_storage_says_everything():
    text = (
        f"DefaultEndpointsProtocol=https;AccountName=shop;AccountKey={CANARY};"
        "EndpointSuffix=core.usgovcloudapi.net"
    )
    access = read_access(BLOB, "", {"connection_string": text})
    assert (access.account, access.key) == ("shop", CANARY)
    assert access.endpoint == "https://shop.blob.core.usgovcloudapi.net"
    assert CANARY not in repr(access)


def test_a_connection_string_may_name_its_endpoint():
    text = f"AccountName=dev;AccountKey={CANARY};BlobEndpoint=http://127.0.0.1:10000/dev;"
    access = read_access(BLOB, "dev", {"connection_string": text})
    assert access.endpoint == "http://127.0.0.1:10000/dev"


def test_a_connection_string_may_hold_a_signature():
    text = f"BlobEndpoint=https://shop.example;SharedAccessSignature=sv=2024&sig={CANARY}"
    access = read_access(BLOB, "", {"connection_string": text})
    assert access.signature == f"sv=2024&sig={CANARY}"
    assert access.method == "shared access signature"
    assert CANARY not in repr(access)


def test_a_connection_string_of_cosmos_says_everything():
    text = f"AccountEndpoint=https://shop.documents.azure.com:443/;AccountKey={CANARY};"
    access = read_access(COSMOS, "", {"connection_string": text})
    assert access.endpoint == "https://shop.documents.azure.com:443/"
    assert access.key == CANARY


@pytest.mark.parametrize(
    ("account", "options", "said"),
    [
        ("", {}, "no account"),
        ("Shop", {}, "not valid"),
        ("a.evil.example", {}, "not valid"),
        ("ab", {}, "not valid"),
        ("shop", {"account_key": ""}, "must be a non-empty string"),
        ("shop", {"account_key": 7}, "must be a non-empty string"),
        ("shop", {"account_key": f"'{CANARY}'"}, "base64"),
        ("shop", {"account_key": f"{CANARY[:6]}\n{CANARY}"}, "base64"),
        ("shop", {"connection_string": f"AccountName=shop;AccountKey={CANARY[:7]}"}, "base64"),
        ("shop", {"account_key": "env:KEY"}, "OUTLIVE_OPTIONS_ACCOUNT_KEY"),
        ("shop", {"account_key": CANARY, "connection_string": f"AccountKey={CANARY}"}, "not both"),
        (
            "shop",
            {"connection_string": f"AccountName=other;AccountKey={CANARY}"},
            "but connection_string names",
        ),
        ("shop", {"connection_string": CANARY[:6]}, "not of the form"),
        ("shop", {"connection_string": f"AccountKey={CANARY};{CANARY[:6]}"}, "not of the form"),
        ("shop", {"connection_string": "AccountName=shop"}, "neither AccountKey nor"),
        ("", {"connection_string": "UseDevelopmentStorage=true"}, "UseDevelopmentStorage"),
        ("shop", {"endpoint": "shop.blob.core.windows.net"}, "https://"),
        ("shop", {"endpoint": "https://"}, "https://"),
        ("shop", {"endpoint": "https://x:port"}, "https://"),
        ("shop", {"endpoint": f"https://shop.example?sig={CANARY}"}, "not contain a query"),
        ("shop", {"endpoint": f"https://{CANARY[:6]}@shop.example"}, "or a user"),
        ("shop", {"endpoint": "http://127.0.0.1:10000/shop"}, "sent over TLS only"),
    ],
)
def test_what_contradicts_itself_is_refused_without_a_secret(account, options, said):
    with pytest.raises(ConfigurationError, match=said) as raised:
        read_access(BLOB, account, options)
    assert CANARY[:6] not in str(raised.value)


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "azure.identity.aio", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'outlive\[cosmos\]'"):
        open_identity(COSMOS)
