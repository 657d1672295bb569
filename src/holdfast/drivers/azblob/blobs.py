"""Requests to one container: each bounded in time, retried while the service is busy, translated.

Owns the client library and its connections. Knows blobs and their leases, and nothing of what a
lease store decides: what the service refuses comes back as a ``Refusal``, everything else that goes
wrong as an error of ours.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

from holdfast.azure import BLOB, AzureAccess, missing_library, open_identity
from holdfast.drivers.azblob.records import BlobRecord, Seen, decode, encode, is_in_content
from holdfast.drivers.azblob.service_clock import ServiceClock
from holdfast.drivers.azblob.settings import AzureBlobSettings
from holdfast.drivers.azblob.translate import (
    Refusal,
    error_code,
    is_busy,
    refusal_of,
    retry_after_s,
    translate,
)
from holdfast.errors import ConfigurationError, StoreUnavailable, UsageError
from holdfast.ports.driver import DriverContext
from holdfast.process import current

# A throttled request is repeated so often, after what the service asks for, or these pauses; all
# within the time limit of one request, so that a busy account does not look like a dead one.
_BUSY_TRIES_MAX = 4
_BUSY_FIRST_S = 0.1
_BUSY_MOST_S = 3.0

# A blob that is never made: asking for it tells whether the container is there.
_PROBE = "holdfast-probe"

# One request of a listing brings at most so many, by Azure's own limit.
_LIST_PAGE = 5000

_Answer = TypeVar("_Answer")


class Blobs:
    """The blobs of one container. Belongs to the event loop that opened it."""

    def __init__(
        self, settings: AzureBlobSettings, context: DriverContext, clock: ServiceClock
    ) -> None:
        self._settings = settings
        self._context = context
        self._clock = clock
        self._pid = current.pid
        self._closed = False
        self._identity: Any = None
        self._library, self._conditions = _import_library()
        self._container: Any = self._make_client(settings.access)

    def _make_client(self, access: AzureAccess) -> Any:
        credential: Any
        if access.key is not None:
            credential = {"account_name": access.account, "account_key": access.key}
        elif access.signature is not None:
            credential = access.signature
        else:
            credential = self._identity = open_identity(BLOB)
        try:
            return self._library.ContainerClient(
                access.endpoint,
                self._settings.container,
                credential=credential,
                # Repeating is decided here, where it is known what may be repeated.
                retry_total=0,
                connection_timeout=self._settings.connect_timeout_s,
                # Our own limit strikes first; this one is for what slips through.
                read_timeout=self._settings.request_timeout_s + 5,
                raw_response_hook=self._on_reply,
                # The library would look for a proxy and a password in the environment, for each
                # request, in the pool of threads that the user's own blocking calls may fill.
                use_env_settings=False,
                proxies=_proxies(self._settings.proxy),
                user_agent="holdfast",
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, it is translated
            raise translate(error, write=False, shown=self._settings.shown) from None

    def _on_reply(self, reply: Any) -> None:
        self._clock.observe(reply.http_response.headers.get("Date"))

    # -- the container --------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Make sure of the container; make it if it is missing and the identity may.

        Raises:
            ConfigurationError: It is missing and may not be made, or the identity may not use it.
            StoreUnavailable: The service cannot be reached.
        """
        try:
            await self.read(_PROBE)
        except StoreUnavailable as error:
            if _code_behind(error) != "ContainerNotFound":
                raise
        else:
            return
        try:
            await self._ask(self._container.create_container, write=True)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"the container {self._settings.shown} does not exist, and this identity may not "
                f"create it: az storage container create --name {self._settings.container} "
                f"--account-name {self._settings.access.account or 'ACCOUNT'} --auth-mode login"
            ) from error
        self._context.logger.info("created the container %s", self._settings.shown)

    async def container_properties(self) -> Any:
        """What the container says about itself; not every signature may ask."""
        return await self._ask(self._container.get_container_properties, write=False)

    # -- one blob -------------------------------------------------------------------------------

    async def read(self, name: str) -> Seen | None:
        """The blob as it is now, or ``None`` if there is none."""
        properties = await self.properties(name)
        if properties is None:
            return None
        content = None
        if is_in_content(properties.metadata):
            content = await self._content(name, properties.etag)
            if content is None:
                # Written between the two requests: what is there now is what counts.
                return await self.read(name)
        return Seen(
            etag=properties.etag,
            lease_state=str(properties.lease.state),
            record=decode(properties.metadata, content),
        )

    async def properties(self, name: str) -> Any | None:
        """The blob's properties as the service tells them, or ``None`` if there is no blob."""
        answer = await self._ask(self._blob(name).get_blob_properties, write=False)
        return None if isinstance(answer, Refusal) else answer

    async def _content(self, name: str, etag: str) -> bytes | None:
        async def download() -> bytes:
            stream = await self._blob(name).download_blob(**self._unchanged(etag))
            return await stream.readall()

        answer = await self._ask(download, write=False)
        return None if isinstance(answer, Refusal) else answer

    async def create(self, name: str) -> Seen | None:
        """Make an empty blob, or ``None`` if there is one already."""
        answer = await self._ask(lambda: self._blob(name).upload_blob(b""), write=True)
        if isinstance(answer, Refusal):
            return None
        return Seen(etag=answer["etag"], lease_state="available", record=None)

    async def write(
        self, name: str, record: BlobRecord, seen: Seen, *, lease_id: str | None
    ) -> Seen | Refusal:
        """Write ``record`` if the blob is as ``seen``, under ``lease_id`` where it is leased.

        One request. The lease itself is not touched.
        """
        metadata, content = encode(record)
        blob = self._blob(name)
        conditions = self._unchanged(seen.etag)
        if lease_id is not None:
            conditions["lease"] = lease_id
        if content is None or (seen.record is not None and encode(seen.record)[1] == content):
            answer = await self._ask(
                lambda: blob.set_blob_metadata(metadata, **conditions), write=True
            )
        else:
            answer = await self._ask(
                lambda: blob.upload_blob(content, overwrite=True, metadata=metadata, **conditions),
                write=True,
            )
        if isinstance(answer, Refusal):
            return answer
        return Seen(etag=answer["etag"], lease_state=seen.lease_state, record=record)

    # -- its lease ------------------------------------------------------------------------------

    async def acquire(self, name: str, lease_id: str, seconds: int) -> Refusal | None:
        """Lease the blob for ``seconds``; again, if ``lease_id`` has it already."""
        lease = self._lease(name, lease_id)
        return await self._ask(lambda: lease.acquire(lease_duration=seconds), write=True)

    async def renew(self, name: str, lease_id: str) -> Refusal | None:
        """Count the lease's duration anew; also after it ran out, if nobody took it."""
        return await self._ask(self._lease(name, lease_id).renew, write=True)

    async def change(self, name: str, lease_id: str, new_id: str) -> Refusal | None:
        """Give the lease another id, without a moment in which it is free."""
        lease = self._lease(name, lease_id)
        return await self._ask(lambda: lease.change(new_id), write=True)

    async def release(self, name: str, lease_id: str) -> Refusal | None:
        """Free the blob."""
        return await self._ask(self._lease(name, lease_id).release, write=True)

    async def end_lease(self, name: str, etag: str) -> Refusal | None:
        """Free the blob whoever leases it, if it is unchanged since ``etag``."""
        lease = self._lease(name, None)
        answer = await self._ask(
            lambda: lease.break_lease(lease_break_period=0, **self._unchanged(etag)), write=True
        )
        return answer if isinstance(answer, Refusal) else None

    # -- many blobs -----------------------------------------------------------------------------

    async def walk(self, prefix: str) -> AsyncGenerator[tuple[str, Seen], None]:
        """All blobs whose names start with ``prefix``, in order, as they are met."""
        pages = self._container.list_blobs(
            name_starts_with=prefix, include=["metadata"], results_per_page=_LIST_PAGE
        ).by_page()
        while True:
            page = await self._ask(lambda: _next_page(pages), write=False)
            if page is None:
                return
            for item in page:
                seen: Seen | None
                if is_in_content(item.metadata or {}):
                    seen = await self.read(item.name)
                else:
                    record = decode(item.metadata, None)
                    seen = Seen(etag=item.etag, lease_state=str(item.lease.state), record=record)
                if seen is not None:
                    yield item.name, seen

    # -- requests -------------------------------------------------------------------------------

    async def _ask(self, request: Callable[[], Awaitable[_Answer]], *, write: bool) -> Any:
        """The answer to ``request``, or the refusal that it met."""
        self.check_open()
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                return await self._insist(request)
        except Exception as error:
            if self._closed:
                raise StoreUnavailable("the driver was closed") from None
            refusal = refusal_of(error)
            if refusal is not None:
                return refusal
            raise translate(error, write=write, shown=self._settings.shown) from error

    async def _insist(self, request: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Repeat ``request`` while the service is too busy to do anything."""
        for tries in range(_BUSY_TRIES_MAX):
            try:
                return await request()
            except Exception as error:
                if not is_busy(error):
                    raise
                pause_s = retry_after_s(error)
                if pause_s is None:
                    pause_s = _BUSY_FIRST_S * 2**tries * self._context.random.uniform(0.5, 1.5)
                self._context.logger.debug("Azure Blob Storage is busy; again in %g s", pause_s)
                await self._context.clock.sleep(min(pause_s, _BUSY_MOST_S))
        return await request()

    def check_open(self) -> None:
        """Refuse to work when closed, or in a process that was forked off.

        Raises:
            StoreUnavailable: The driver is closed.
            UsageError: The connections belong to the parent process.
        """
        if current.pid != self._pid:
            raise UsageError(
                "this driver was opened before the process was forked; its connections belong to "
                "the parent: connect again in the child"
            )
        if self._closed:
            raise StoreUnavailable("the driver is closed")

    async def close(self) -> None:
        """Close every connection; requests under way end with an error. Repeatable."""
        if self._closed:
            return
        self._closed = True
        await self._container.close()
        if self._identity is not None:
            await self._identity.close()

    def _blob(self, name: str) -> Any:
        return self._container.get_blob_client(name)

    def _lease(self, name: str, lease_id: str | None) -> Any:
        return self._library.BlobLeaseClient(self._blob(name), lease_id)

    def _unchanged(self, etag: str) -> dict[str, Any]:
        return {"etag": etag, "match_condition": self._conditions.IfNotModified}


def _proxies(proxy: str | None) -> dict[str, str] | None:
    return None if proxy is None else {"http": proxy, "https": proxy}


async def _next_page(pages: Any) -> list[Any] | None:
    try:
        page = await anext(pages)
    except StopAsyncIteration:
        return None
    return [item async for item in page]


def _code_behind(error: BaseException) -> str:
    return "" if error.__cause__ is None else error_code(error.__cause__)


def shown_properties(properties: Any) -> Mapping[str, Any]:
    """A blob's properties by the service's own names, for people who debug."""
    return {
        "name": properties.name,
        "etag": properties.etag,
        "last_modified": properties.last_modified.isoformat(),
        "creation_time": properties.creation_time.isoformat(),
        "content_length": properties.size,
        "lease_state": str(properties.lease.state),
        "lease_status": str(properties.lease.status),
        "lease_duration": properties.lease.duration,
        "metadata": dict(properties.metadata),
    }


def _import_library() -> tuple[Any, Any]:
    """The client library, imported on first use.

    Raises:
        ConfigurationError: It is not installed.
    """
    try:
        import azure.storage.blob.aio as library
        from azure.core import MatchConditions

        # The library needs it for its connections, and looks for it only when it makes one.
        importlib.import_module("aiohttp")
    except ImportError:
        raise missing_library(BLOB, "azure-storage-blob and aiohttp") from None
    return library, MatchConditions
