"""Who asks, and where: what the Azure drivers share.

Owns the meaning of the options ``connection_string``, ``account_key``, ``credential`` and
``endpoint``, and the identity of the process that speaks where none of them is given; and of
``proxy`` and the limits of time. Looks at nothing but its arguments; only ``open_identity`` imports
a client library. Must never show a secret.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from outlive.errors import ConfigurationError

ACCESS_OPTIONS = frozenset({"connection_string", "account_key", "credential", "endpoint", "proxy"})

# What ``UseDevelopmentStorage=true`` stands for in all client libraries. The key is public.
_EMULATED_STORAGE = {
    "accountname": "devstoreaccount1",
    "accountkey": "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr"
    "/KBHBeksoGMGw==",
    "blobendpoint": "http://127.0.0.1:10000/devstoreaccount1",
}

_PROOFS = ("connection_string", "account_key", "credential")

# Where the credentials of azure-core and azure-storage-blob keep what a connection string names.
_KEPT_IN = (
    ("account_name", "accountname"),
    ("account_key", "accountkey"),
    ("signature", "sharedaccesssignature"),
)

# Storage accounts have 3 to 24 lower-case letters and digits, Cosmos accounts up to 44 and hyphens.
# The name becomes part of a host name, so nothing else may pass.
_ACCOUNT = re.compile(r"[a-z0-9][a-z0-9-]{2,43}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureService:
    """What tells one Azure service from the other.

    Attributes:
        name: As people say it.
        address: Where an account is found in the public cloud.
        domain: What stands between account and endpoint suffix in a connection string's address;
            empty where connection strings always name the address.
        address_field: The field of a connection string that names the address.
        extra: The extra of this package that brings the client library.
    """

    name: str
    address: str
    domain: str
    address_field: str
    extra: str


BLOB = AzureService(
    name="Azure Blob Storage",
    address="https://{account}.blob.core.windows.net",
    domain="blob",
    address_field="blobendpoint",
    extra="azure-blob",
)
COSMOS = AzureService(
    name="Azure Cosmos DB",
    address="https://{account}.documents.azure.com:443/",
    domain="",
    address_field="accountendpoint",
    extra="cosmos",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureAccess:
    """Where a service is, and what proves who asks. ``repr`` shows no secret.

    ``account`` is empty where only an endpoint is known. With neither ``key`` nor ``signature``
    it is ``credential`` that speaks, or the identity of the process: see ``open_identity``.
    """

    endpoint: str
    account: str
    key: str | None = field(default=None, repr=False)
    signature: str | None = field(default=None, repr=False)
    credential: Any = field(default=None, repr=False)

    @property
    def method(self) -> str:
        """How the caller proves who it is, in words for people."""
        if self.key is not None:
            return "account key"
        if self.signature is not None:
            return "shared access signature"
        return "identity of the process" if self.credential is None else "credential of the caller"


def read_access(service: AzureService, account: str, options: Mapping[str, Any]) -> AzureAccess:
    """The access that ``account`` (of the URL; may be empty) and ``options`` describe.

    A connection string says everything by itself, and so does an SDK client as ``credential``; an
    account key and another credential need the account or an endpoint; these alone mean the
    identity of the process.

    Raises:
        ConfigurationError: They contradict each other or say too little. Shows no secret.
    """
    text, key = _text(options, "connection_string"), _text(options, "account_key")
    given = None if options.get("endpoint") is None else _text(options, "endpoint")
    given_by = [name for name in _PROOFS if options.get(name) is not None]
    if len(given_by) > 1:
        raise ConfigurationError(f"give {given_by[0]} or {given_by[1]}, not both")
    fields = {} if text is None else _connection_fields(service, text)
    credential = options.get("credential")
    if credential is not None:
        fields, credential = _credential_fields(service, credential)
    named = fields.get("accountname", "")
    if account and named and account != named:
        raise ConfigurationError(
            f"the URL names account {account!r}, but connection_string names account {named!r}"
        )
    account = _checked_account(account or named)
    endpoint = _checked_endpoint(given or _endpoint_of(service, account, fields))
    access = AzureAccess(
        endpoint=endpoint,
        account=account,
        key=_checked_key(key or fields.get("accountkey")),
        signature=fields.get("sharedaccesssignature"),
        credential=credential,
    )
    if text is not None and access.key is None and access.signature is None:
        raise ConfigurationError(
            "connection_string contains neither AccountKey nor SharedAccessSignature"
        )
    if access.key is None and access.signature is None and not endpoint.startswith("https:"):
        raise ConfigurationError(
            f"the identity of the process is sent over TLS only, but {endpoint} is not https: "
            "give account_key or connection_string, or an https endpoint"
        )
    return access


def open_identity(service: AzureService, access: AzureAccess) -> Any:
    """The caller's credential, or the identity of this process; whoever opened it closes it.

    azure-identity finds the latter, in turn: the environment, workload identity, managed identity,
    and the developer's ``az login``. Nothing is sent until a token is needed. It belongs to the
    event loop that uses it first.

    Raises:
        ConfigurationError: The client library is not installed.
    """
    if access.credential is not None:
        return _CallersCredential(access.credential)
    try:
        from azure.identity.aio import DefaultAzureCredential
    except ImportError:
        raise missing_library(service, "azure-identity") from None
    return DefaultAzureCredential()


class _CallersCredential:
    """A credential of the caller's, asked in a thread because it blocks, and never closed."""

    def __init__(self, credential: Any) -> None:
        self._credential = credential

    async def get_token(self, *scopes: str, **options: Any) -> Any:
        """A token; asked for about once an hour."""
        return await asyncio.to_thread(self._credential.get_token, *scopes, **options)

    async def close(self) -> None:
        """Do nothing: the credential is the caller's."""


def missing_library(service: AzureService, library: str) -> ConfigurationError:
    """The error that says which extra brings ``library``."""
    return ConfigurationError(
        f"the driver of {service.name} needs {library}: pip install 'outlive[{service.extra}]'"
    )


def _text(options: Mapping[str, Any], name: str) -> str | None:
    value = options.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{name} must be a non-empty string")
    if value.startswith("env:"):
        raise ConfigurationError(
            f"{name}: env:NAME is allowed in options (connect, outlive.toml, "
            f"OUTLIVE_OPTIONS_{name.upper()}), not in the URL's query"
        )
    return value.strip()


def _credential_fields(service: AzureService, given: Any) -> tuple[dict[str, str], Any]:
    """What ``credential`` says: fields as of a connection string, and what gives tokens, if any.

    Of an SDK client its address and credential are taken. Requests go over connections of the
    driver's own: a client belongs to one event loop, and leases are renewed on another.
    """
    fields, found = dict[str, str](), given
    if (account := getattr(given, "client_connection", None)) is not None:
        # azure.cosmos.CosmosClient
        fields[service.address_field] = account.url_connection
        found = account.aad_credentials
        fields |= {"accountkey": account.master_key} if account.master_key else {}
    elif hasattr(given, "primary_endpoint"):
        # azure.storage.blob.BlobServiceClient
        fields[service.address_field] = given.primary_endpoint.rstrip("/")
        found = given.credential
    for attribute, field_name in _KEPT_IN:
        if isinstance(value := getattr(found, attribute, None), str):
            fields[field_name] = value
    if "accountkey" in fields or "sharedaccesssignature" in fields:
        return fields, None
    if not callable(get_token := getattr(found, "get_token", None)):
        raise ConfigurationError(
            f"credential must be one of azure-identity, or a client of {service.name} that was "
            f"made with a credential, not {type(given).__name__}"
        )
    if inspect.iscoroutinefunction(get_token):
        raise ConfigurationError(
            "a credential of azure.identity.aio belongs to one event loop, and leases are renewed "
            "on another: make it of the class of the same name in azure.identity"
        )
    return fields, found


def _connection_fields(service: AzureService, text: str) -> dict[str, str]:
    """The fields of a connection string, their names lowered; the values keep their ``=``."""
    fields: dict[str, str] = {}
    for part in text.split(";"):
        name, sep, value = part.partition("=")
        if part.strip() and not (sep and name.strip() and value.strip()):
            # The part may be half a key, so it is not repeated.
            raise ConfigurationError(
                "connection_string is not of the form Name=value;Name=value; copy it whole "
                "(`az storage account show-connection-string`, `az cosmosdb keys list`)"
            )
        if sep:
            fields[name.strip().lower()] = value.strip()
    if service is BLOB and fields.get("usedevelopmentstorage", "").lower() == "true":
        return _EMULATED_STORAGE
    return fields


def _checked_key(key: str | None) -> str | None:
    try:
        if key is not None:
            base64.b64decode(key, validate=True)
    except ValueError:
        # The clients would notice when they sign, and speak of something else.
        raise ConfigurationError(
            "the account key is not valid base64: copy the whole key, without quotes"
        ) from None
    return key


def _checked_account(account: str) -> str:
    if account and _ACCOUNT.fullmatch(account) is None:
        raise ConfigurationError(
            f"account {account!r} is not valid: use 3 to 44 characters of a-z, 0-9 and '-'"
        )
    return account


def _endpoint_of(service: AzureService, account: str, fields: Mapping[str, str]) -> str:
    named = fields.get(service.address_field)
    if named is not None:
        return named
    if not account:
        raise ConfigurationError(
            f"no account for {service.name}: name it in the URL, or give endpoint or "
            "connection_string"
        )
    suffix = fields.get("endpointsuffix")
    if suffix and service.domain:
        protocol = fields.get("defaultendpointsprotocol", "https")
        return f"{protocol}://{account}.{service.domain}.{suffix}"
    return service.address.format(account=account)


def _checked_endpoint(endpoint: str) -> str:
    try:
        parts = urlsplit(endpoint)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        good, parts = False, None
    if not good or parts is None:
        raise ConfigurationError(
            "endpoint must have the form https://name.example, optionally with a port"
        )
    if parts.query or parts.fragment or "@" in parts.netloc:
        # A signature in the query would be shown wherever the endpoint is.
        raise ConfigurationError(
            "endpoint must not contain a query or a user; a shared access signature belongs in "
            "connection_string (BlobEndpoint=…;SharedAccessSignature=…)"
        )
    return endpoint


def read_proxy(given: Mapping[str, Any]) -> str | None:
    """The proxy that is asked for.

    Raises:
        ConfigurationError: It is no address. The message hides it: it may hold a password.
    """
    value = given.get("proxy")
    if value is None:
        return None
    if not isinstance(value, str) or not value.startswith(("http://", "https://")):
        raise ConfigurationError("proxy must be an address of the form http://host:port")
    return value
