"""Who may use a container, where it is, and what is said when not; and a service that is busy."""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import pytest
from azure.storage.blob import ContainerSasPermissions, generate_container_sas
from azure.storage.blob.aio import BlobServiceClient

import outlive
from outlive.errors import ConfigurationError, StoreUnavailable, UsageError
from outlive.testing.conformance import Lab
from tests.services import free_port
from tests.services.azblob_labs import AzureBlobLabs
from tests.services.azurite import ACCOUNT, AzuriteServer

pytestmark = pytest.mark.service


@pytest.fixture
async def labs() -> AsyncIterator[AzureBlobLabs]:
    labs = AzureBlobLabs()
    yield labs
    await labs.close()


def new_container() -> str:
    return f"made-{secrets.token_hex(6)}"


def signed(server: AzuriteServer, container: str, permissions: str) -> str:
    """A connection string with a signature for one container, and no key."""
    signature = generate_container_sas(
        ACCOUNT,
        container,
        account_key=server.key,
        permission=ContainerSasPermissions.from_string(permissions),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    return f"BlobEndpoint={server.endpoint};SharedAccessSignature={signature}"


def by_signature(labs: AzureBlobLabs, server: AzuriteServer, container: str, may: str) -> Lab:
    return labs.make(
        server,
        container=container,
        connection_string=signed(server, container, may),
        account_key=None,
        endpoint=None,
    )


async def test_a_missing_container_is_made_once(labs, azurite_server) -> None:
    lab = labs.make(azurite_server, container=new_container())
    a, b, *_ = await asyncio.gather(*(lab.host(name) for name in "abcdef"))
    await a.own("k")
    await b.is_refused("k")


async def test_a_missing_container_that_may_not_be_made_is_named_with_the_command(
    labs, azurite_server
) -> None:
    lab = by_signature(labs, azurite_server, new_container(), "racwl")
    with pytest.raises(ConfigurationError, match="az storage container create") as raised:
        await lab.host("a")
    assert "sig=" not in str(raised.value)


async def test_the_emulator_is_reached_as_by_every_client(azurite_server) -> None:
    options = {
        "connection_string": "UseDevelopmentStorage=true",
        # Not on its usual port, which another program of this machine may have.
        "endpoint": f"http://127.0.0.1:{azurite_server.port}/devstoreaccount1",
    }
    url = f"azblob:///{new_container()}"
    async with outlive.connect(url, options=options) as host, host.leases.hold("k") as lease:
        assert lease.is_held


async def test_a_client_of_the_caller_says_where_and_who(azurite_server) -> None:
    async with (
        BlobServiceClient.from_connection_string(azurite_server.connection_string) as client,
        outlive.connect(f"azblob:///{new_container()}", options={"credential": client}) as host,
        host.leases.hold("k") as lease,
    ):
        assert lease.is_held
        # It stays the caller's own.
        assert [each async for each in client.list_containers()]


async def test_a_signature_for_one_container_is_enough_and_never_shown(
    labs, azurite_server, caplog
) -> None:
    caplog.set_level(logging.DEBUG)
    container = new_container()
    await labs.make(azurite_server, container=container).open("maker")
    lab = by_signature(labs, azurite_server, container, "racwl")
    a, b = await lab.host("a"), await lab.host("b")
    grant = await a.renew(await a.own("k"), state="s")
    await b.is_refused("k")
    await b.leases.break_lease("k", reason="test")
    assert (await b.own("k")).token > grant.token
    assert len(await b.leases.list(prefix="", owner=None, active=True, after=None, limit=9)) == 1
    findings = await a.driver.check()
    assert [finding for finding in findings if finding.level == "error"] == []
    assert any("shared access signature" in finding.what for finding in findings)
    signature = a.driver._settings.access.signature
    secret = signature.partition("sig=")[2].partition("&")[0]
    assert secret
    for text in (secret, unquote(secret)):
        assert text not in caplog.text + repr(a.driver._settings)


async def test_a_signature_that_may_not_write_is_refused_with_advice(labs, azurite_server) -> None:
    container = new_container()
    await labs.make(azurite_server, container=container).open("maker")
    a = await by_signature(labs, azurite_server, container, "rl").host("a")
    with pytest.raises(ConfigurationError, match="Storage Blob Data Contributor"):
        await a.attempt("k")


async def test_a_wrong_key_is_refused_and_no_key_is_ever_shown(
    labs, azurite_server, caplog
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = base64.b64encode(secrets.token_bytes(64)).decode()
    with pytest.raises(ConfigurationError, match="key was not accepted") as raised:
        await labs.make(azurite_server, account_key=wrong).host("a")
    a = await labs.make(azurite_server).host("a")
    await a.leases.release(await a.own("k"))
    shown = caplog.text + str(raised.value) + repr(a.driver._settings)
    assert wrong not in shown
    assert azurite_server.key not in shown


async def test_a_key_that_is_none_is_refused_without_being_shown(labs, azurite_server) -> None:
    with pytest.raises(ConfigurationError) as raised:
        await labs.make(azurite_server, account_key="canary, not base64!").host("a")
    assert "canary" not in str(raised.value)


async def test_an_endpoint_where_nobody_listens_is_unavailable_and_named(
    labs, azurite_server
) -> None:
    port = free_port()
    with pytest.raises(StoreUnavailable, match=f"cannot reach http://127.0.0.1:{port}"):
        await labs.make(azurite_server, port=port).host("a")


@contextmanager
def answering(*replies: tuple[int, dict[str, str]]) -> Iterator[tuple[int, list[str]]]:
    """A server that gives ``replies`` in turn, the last one for ever; gives its port and log."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            asked.append(f"{self.command} {self.path}")
            status, headers = replies[min(len(asked), len(replies)) - 1]
            self.send_response_only(status)
            for name, value in {"Date": formatdate(usegmt=True), **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET = do_PUT = answer  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


MISSING = (404, {"x-ms-error-code": "BlobNotFound"})
BUSY = (503, {"x-ms-error-code": "ServerBusy", "Retry-After": "0"})


async def test_a_server_that_is_no_storage_service_is_told_apart(labs, azurite_server) -> None:
    with answering((404, {})) as (port, _), pytest.raises(ConfigurationError, match="endpoint"):
        await labs.make(azurite_server, port=port).host("a")


async def test_a_busy_service_is_asked_again_when_it_wants_to(labs, azurite_server) -> None:
    with answering(MISSING, BUSY, BUSY, MISSING) as (port, asked):
        a = await labs.make(azurite_server, port=port).host("a")
        assert list(await a.leases.get("k")) == []
        assert len(asked) == 4


async def test_a_service_that_stays_busy_is_unavailable_after_a_few_tries(
    labs, azurite_server
) -> None:
    with answering(MISSING, BUSY) as (port, asked):
        a = await labs.make(azurite_server, port=port).host("a")
        with pytest.raises(StoreUnavailable, match="throttling"):
            await a.leases.get("k")
        assert len(asked) == 6


async def test_a_busy_service_does_not_hold_a_call_beyond_its_limit(labs, azurite_server) -> None:
    patient = (503, {"x-ms-error-code": "ServerBusy", "Retry-After": "3600"})
    with answering(MISSING, patient) as (port, asked):
        a = await labs.make(azurite_server, port=port, request_timeout=0.3).host("a")
        with pytest.raises(StoreUnavailable):
            await a.leases.get("k")
        assert len(asked) == 2


async def test_a_missing_library_is_named_with_its_extra(labs, azurite_server, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'outlive\[azure-blob\]'"):
        await labs.make(azurite_server).host("a")


async def test_an_application_locks_waits_and_is_told_the_limits(azurite_server) -> None:
    url = f"azblob://{ACCOUNT}/{new_container()}"
    options = {"connection_string": azurite_server.connection_string}
    async with (
        outlive.connect(url, name="a", options=options) as a,
        outlive.connect(url, name="b", options=options) as b,
    ):
        lease = await a.leases.acquire("report", ttl=15, metadata={"region": "us-east"})
        token = lease.token
        assert await b.leases.try_acquire("report") is None
        await lease.renew()
        waiting = asyncio.ensure_future(b.leases.acquire("report", timeout=20))
        await asyncio.sleep(0)
        await lease.release()
        taken = await waiting
        assert taken.token > token
        await taken.release()
        for ttl in (14, 61):
            with pytest.raises(UsageError, match="15 to 60 s"):
                await a.leases.try_acquire("report", ttl=ttl)
        with pytest.raises(outlive.UnsupportedByDriver):
            async with a.leases.semaphore("gpu", limit=2):
                pass
