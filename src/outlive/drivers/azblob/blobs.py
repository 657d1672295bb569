"""Blobs of one container, and their leases: one method is one request.

Owns what is asked of the client library. Knows blobs, and nothing of what a lease store decides:
what the service refuses comes back as a ``Refusal``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from outlive.drivers.azblob.connection import Connection
from outlive.drivers.azblob.records import (
    CONTENT_BYTES_MAX,
    SCHEMA,
    BlobRecord,
    Seen,
    decode,
    encode,
    is_in_content,
)
from outlive.drivers.azblob.settings import AzureBlobSettings
from outlive.drivers.azblob.translate import Refusal, error_code
from outlive.errors import ConfigurationError, SchemaMismatch, StoreError, StoreUnavailable
from outlive.ports.driver import DriverContext

# A blob that is never made: asking for it tells whether the container is there.
_PROBE = "outlive-probe"

# How often a record in a blob's content is written between the two requests that read it.
_READ_TRIES_MAX = 5

# One request of a listing brings at most so many, by Azure's own limit.
_LIST_PAGE = 5000


class Blobs:
    """The blobs of one container."""

    def __init__(
        self, connection: Connection, settings: AzureBlobSettings, context: DriverContext
    ) -> None:
        self._connection = connection
        self._ask = connection.ask
        self._container = connection.container
        self._settings = settings
        self._context = context

    def check_open(self) -> None:
        """Refuse to work when closed or forked; see the connection."""
        self._connection.check_open()

    async def close(self) -> None:
        """Close every connection; requests under way end with an error. Repeatable."""
        await self._connection.close()

    # -- the container --------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Make sure of the container; make it if it is missing and the identity may.

        Raises:
            SchemaMismatch: It is missing, and the context says ``create=False``.
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
        if not self._context.create:
            raise SchemaMismatch(
                f"there is no container {self._settings.shown}; `outlive provision azblob` creates "
                "it",
                found=0,
                expected=SCHEMA,
            )
        try:
            await self._ask(self._container.create_container, write=True)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"the container {self._settings.shown} does not exist, and this identity may not "
                f"create it: az storage container create --name {self._settings.container} "
                f"--account-name {self._settings.access.account or 'ACCOUNT'} --auth-mode login"
            ) from error
        self._context.logger.info("created the container %s", self._settings.shown)

    async def remove(self) -> None:
        """Delete the container, with everything in it."""
        await self._ask(self._container.delete_container, write=True)

    async def container_properties(self) -> Any:
        """What the container says about itself; not every signature may ask."""
        return await self._ask(self._container.get_container_properties, write=False)

    # -- one blob -------------------------------------------------------------------------------

    async def read(self, name: str) -> Seen | None:
        """The blob as it is now, or ``None`` if there is none."""
        for _ in range(_READ_TRIES_MAX):
            properties = await self.properties(name)
            if properties is None:
                return None
            content = None
            if is_in_content(properties.metadata):
                content = await self._content(name, properties)
                if content is None:
                    # Written between the two requests: what is there now is what counts.
                    continue
            return Seen(
                etag=properties.etag,
                lease_state=_lease_state(properties),
                record=decode(name, properties.metadata, content),
            )
        raise StoreUnavailable(
            f"the blob {name!r} changed during every attempt to read it; try again"
        )

    async def properties(self, name: str) -> Any | None:
        """The blob's properties as the service tells them, or ``None`` if there is no blob."""
        answer = await self._ask(self._blob(name).get_blob_properties, write=False)
        return None if isinstance(answer, Refusal) else answer

    async def _content(self, name: str, properties: Any) -> bytes | None:
        """The blob's content, or ``None`` if it was changed since ``properties`` were read."""
        if properties.size > CONTENT_BYTES_MAX:
            raise StoreError(
                f"the blob {name!r} is larger than any record of Outlive: another program wrote it"
            )

        async def download() -> bytes:
            unchanged = self._unchanged(properties.etag)
            stream = await self._blob(name).download_blob(**unchanged)
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
                    record = decode(item.name, item.metadata, None)
                    seen = Seen(etag=item.etag, lease_state=_lease_state(item), record=record)
                if seen is not None:
                    yield item.name, seen

    def _blob(self, name: str) -> Any:
        return self._container.get_blob_client(name)

    def _lease(self, name: str, lease_id: str | None) -> Any:
        return self._connection.library.BlobLeaseClient(self._blob(name), lease_id)

    def _unchanged(self, etag: str) -> dict[str, Any]:
        return {"etag": etag, "match_condition": self._connection.conditions.IfNotModified}


def _lease_state(properties: Any) -> str:
    """The state of a lease as the service spells it; some releases of the library wrap it."""
    state = properties.lease.state
    return str(getattr(state, "value", state))


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
        "lease_state": _lease_state(properties),
        "lease_status": str(properties.lease.status),
        "lease_duration": properties.lease.duration,
        "metadata": dict(properties.metadata),
    }
