"""What the Azure drivers share: where a service is, who asks, and secrets that never show."""

from __future__ import annotations

import sys
import threading

import pytest
from azure.core.credentials import AzureSasCredential
from azure.cosmos.aio import CosmosClient
from azure.identity import AzureCliCredential, aio
from azure.storage.blob.aio import BlobServiceClient

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


def test_the_emulator_is_named_as_everywhere():
    access = read_access(BLOB, "", {"connection_string": "UseDevelopmentStorage=true"})
    assert access.endpoint == "http://127.0.0.1:10000/devstoreaccount1"
    assert access.account == "devstoreaccount1"
    with pytest.raises(ConfigurationError, match="no account for Azure Cosmos DB"):
        read_access(COSMOS, "", {"connection_string": "UseDevelopmentStorage=true"})


class Tokens:
    """A credential as azure-identity makes them, which blocks."""

    asked_in: threading.Thread | None = None

    def get_token(self, *scopes: str) -> str:
        self.asked_in = threading.current_thread()
        return f"a token for {scopes}"


@pytest.mark.parametrize("service", [BLOB, COSMOS])
async def test_a_credential_of_the_caller_is_asked_beside_the_event_loop(service):
    tokens = Tokens()
    access = read_access(service, "shop", {"credential": tokens})
    assert access.method == "credential of the caller"
    identity = open_identity(service, access)
    assert await identity.get_token("scope") == "a token for ('scope',)"
    assert tokens.asked_in not in {None, threading.main_thread()}
    await identity.close()


@pytest.mark.parametrize(
    ("service", "client", "endpoint", "key", "signature"),
    [
        (
            *(BLOB, BlobServiceClient("https://shop.blob.core.windows.net", credential=CANARY)),
            *("https://shop.blob.core.windows.net", CANARY, None),
        ),
        (
            *(
                BLOB,
                BlobServiceClient(
                    "https://a1b.blob.core.windows.net", credential=AzureSasCredential("sig=1")
                ),
            ),
            *("https://a1b.blob.core.windows.net", None, "sig=1"),
        ),
        (
            *(BLOB, BlobServiceClient("https://a1b.blob.core.windows.net", credential=Tokens())),
            *("https://a1b.blob.core.windows.net", None, None),
        ),
        (
            *(COSMOS, CosmosClient("https://shop.example:443/", credential=CANARY)),
            *("https://shop.example:443/", CANARY, None),
        ),
        (
            *(COSMOS, CosmosClient("https://a.example:443/", credential=AzureCliCredential())),
            *("https://a.example:443/", None, None),
        ),
    ],
)
def test_an_sdk_client_says_where_and_who(service, client, endpoint, key, signature):
    access = read_access(service, "", {"credential": client})
    assert (access.endpoint, access.key, access.signature) == (endpoint, key, signature)
    assert (access.credential is None) == (key is not None or signature is not None)


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
        ("shop", {"credential": object()}, "one of azure-identity"),
        ("shop", {"credential": aio.AzureCliCredential()}, "in azure.identity"),
        ("shop", {"credential": AzureCliCredential(), "account_key": CANARY}, "not both"),
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
        open_identity(COSMOS, read_access(COSMOS, "shop", {}))
