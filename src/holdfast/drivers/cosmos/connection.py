"""Requests to one container: each bounded in time, repeated where that is safe, and counted.

Owns the client of azure-cosmos and everything it holds open. The client's own repetition is turned
off: only here is known how much time the caller has, and that a write which may have been applied
must be looked up. A write is safe to repeat, because its ETag lets it happen once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeVar

from holdfast.azure import COSMOS, missing_library, open_identity
from holdfast.drivers.cosmos.settings import CosmosSettings
from holdfast.drivers.cosmos.translate import is_answer, judge, status_of
from holdfast.errors import HoldfastError, OutcomeUnknown, StoreUnavailable, UsageError
from holdfast.ports.driver import DriverContext
from holdfast.process import current

REQUEST_UNITS = "request_units"
"""What Cosmos DB charges for; the name under which it is measured."""

_PROXIED = ("http", "https")

# Pauses vary by this much, so that clients that were throttled together do not come back together.
_JITTER = 0.2

Document = Mapping[str, Any]
Hooks = dict[str, Any]
_Result = TypeVar("_Result")


class Reply(NamedTuple):
    """The status of an answer, and the item where there is one."""

    status: int
    document: Document | None


class Library(NamedTuple):
    """What is used of the client library."""

    client: Any
    policy: Any
    transport: Any
    partition_key: Any
    if_match: Any


def import_library() -> Library:
    """The client library, imported on first use.

    Raises:
        ConfigurationError: It is not installed.
    """
    try:
        from azure.core import MatchConditions
        from azure.core.pipeline.transport import AioHttpTransport
        from azure.cosmos import PartitionKey
        from azure.cosmos.aio import CosmosClient
        from azure.cosmos.documents import ConnectionPolicy
    except ImportError:
        raise missing_library(COSMOS, "azure-cosmos") from None
    return Library(
        client=CosmosClient,
        policy=ConnectionPolicy,
        transport=AioHttpTransport,
        partition_key=PartitionKey,
        if_match=MatchConditions.IfNotModified,
    )


class Connection:
    """One client of one account, and one container of it."""

    def __init__(self, settings: CosmosSettings, context: DriverContext) -> None:
        self._settings = settings
        self._clock = context.clock
        self._random = context.random
        self._measure = context.measure
        self._library = import_library()
        self._identity: Any | None = None
        self._client: Any = self._new_client()
        self._container: Any = self._client.get_database_client(
            settings.database
        ).get_container_client(settings.container)
        self._pid = current.pid
        self._closed = False
        self._service_at = (0.0, 0.0)
        self.requests = 0
        self.request_units = 0.0

    def _new_client(self) -> Any:
        settings, access = self._settings, self._settings.access
        credential: Any = access.key
        if credential is None:
            credential = self._identity = open_identity(COSMOS)
        policy: Any = self._library.policy()
        # Zero as an argument is taken for "not given"; throttled requests would be repeated for
        # half a minute.
        policy.RetryOptions._max_retry_attempt_count = 0  # noqa: SLF001
        return self._library.client(
            access.endpoint,
            credential,
            connection_policy=policy,
            retry_total=0,
            retry_connect=0,
            retry_read=0,
            retry_status=0,
            connection_timeout=settings.connect_timeout_s,
            read_timeout=settings.request_timeout_s,
            enable_endpoint_discovery=settings.discovery,
            # The environment of the process is not ours to read; a proxy is named by an option.
            transport=self._library.transport(use_env_settings=False),
            proxies={} if settings.proxy is None else dict.fromkeys(_PROXIED, settings.proxy),
            raw_response_hook=self._note,
        )

    # -- the service's clock --------------------------------------------------------------------

    @property
    def service_s(self) -> float:
        """The service's clock, from the ``Date`` of its last reply: up to a second behind."""
        date_s, heard_s = self._service_at
        return date_s + self._clock.monotonic() - heard_s

    # -- requests -------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect.

        Raises:
            StoreUnavailable: The account cannot be reached.
            ConfigurationError: It does not accept the caller.
        """

        async def enter(hooks: Hooks) -> None:
            del hooks
            await self._client.__aenter__()

        await self.call(enter, write=False)

    async def account(self) -> Any:
        """What the account says of itself."""

        async def read(hooks: Hooks) -> Any:
            # The library has no public way to it.
            return await self._client._get_database_account(**hooks)  # noqa: SLF001

        return await self.call(read, write=False)

    async def read(self, identity: str, key: str) -> Document | None:
        """The item, or ``None``. One request unit for up to a kilobyte."""

        async def read(hooks: Hooks) -> Document:
            return await self._container.read_item(identity, partition_key=key, **hooks)

        return (await self._ask(read, write=False)).document

    async def create(self, body: dict[str, Any]) -> Reply:
        """Create the item; ``EXISTS`` if there is one.

        Raises:
            OutcomeUnknown: It may or may not have been created.
        """

        async def create(hooks: Hooks) -> Document:
            return await self._container.create_item(body, **hooks)

        return await self._ask(create, write=True)

    async def replace(self, body: dict[str, Any], etag: str) -> Reply:
        """Replace the item if it still has ``etag``; otherwise ``CHANGED``, or ``MISSING``.

        Raises:
            OutcomeUnknown: It may or may not have been replaced.
        """
        if_match = self._library.if_match

        async def replace(hooks: Hooks) -> Document:
            return await self._container.replace_item(
                body["id"], body, etag=etag, match_condition=if_match, **hooks
            )

        return await self._ask(replace, write=True)

    async def query(
        self,
        text: str,
        parameters: Sequence[Mapping[str, Any]],
        *,
        limit: int,
        wanted: Callable[[Document], bool],
    ) -> list[Document]:
        """The first ``limit`` items of a query that are ``wanted``, over all partitions.

        Pages are fetched until there are enough. Throttled in the middle, it begins anew.
        """

        async def fetch(hooks: Hooks) -> list[Document]:
            found: list[Document] = []
            items = self._container.query_items(
                text, parameters=list(parameters), max_item_count=limit, **hooks
            )
            async for page in items.by_page():
                found += [document async for document in page if wanted(document)]
                if len(found) >= limit:
                    break
            return found[:limit]

        return await self.call(fetch, write=False)

    async def container_properties(self) -> Reply:
        """What the service knows of the container; ``MISSING`` if there is none."""

        async def read(hooks: Hooks) -> Document:
            return await self._container.read(**hooks)

        return await self._ask(read, write=False)

    async def create_container(self, partition_path: str, indexing: Mapping[str, Any]) -> None:
        """Create the database and the container where they are missing. Repeatable.

        Others may create them at the same time; that is as good.
        """
        settings = self._settings

        async def create_database(hooks: Hooks) -> Document:
            await self._client.create_database_if_not_exists(settings.database, **hooks)
            return {}

        async def create_container(hooks: Hooks) -> Document:
            database = self._client.get_database_client(settings.database)
            await database.create_container_if_not_exists(
                settings.container,
                self._library.partition_key(path=partition_path),
                indexing_policy=dict(indexing),
                offer_throughput=settings.throughput,
                **hooks,
            )
            return {}

        await self._ask(create_database, write=False)
        await self._ask(create_container, write=False)

    async def _ask(
        self, operation: Callable[[Hooks], Awaitable[Document]], *, write: bool
    ) -> Reply:
        async def answer(hooks: Hooks) -> Reply:
            try:
                return Reply(200, await operation(hooks))
            except Exception as error:
                if not is_answer(error):
                    raise
                return Reply(status_of(error) or 0, None)

        return await self.call(answer, write=write)

    async def call(
        self, operation: Callable[[Hooks], Awaitable[_Result]], *, write: bool
    ) -> _Result:
        """Run ``operation``, again where it was throttled or met a passing failure, in time.

        Raises:
            StoreUnavailable: Nothing was applied.
            OutcomeUnknown: ``write`` is true, and one of the attempts may have been applied.
        """
        self.check_open()
        deadline = self._clock.monotonic() + self._settings.request_timeout_s
        unsure = False
        while True:
            sends = _Sends()
            left_s = deadline - self._clock.monotonic()
            try:
                async with asyncio.timeout(max(0.0, left_s)):
                    return await operation(self._hooks(sends))
            except Exception as error:
                failure = judge(error, write=write, sends=sends.count, shown=self._settings.shown)
                unsure = unsure or failure.unsure
                pause_s = self._pause_s(failure.retry_s)
                if pause_s is None or self._clock.monotonic() + pause_s >= deadline:
                    raise self._final(failure.error, unsure=unsure) from error
            await self._clock.sleep(pause_s)
            self.check_open()

    def check_open(self) -> None:
        """Refuse to work after `close`, and in a process that was forked since.

        Raises:
            StoreUnavailable: The driver is closed.
            UsageError: Its connections belong to the parent process.
        """
        if current.pid != self._pid:
            raise UsageError(
                "this driver was opened before the process was forked; its connections belong to "
                "the parent: connect again in the child"
            )
        if self._closed:
            raise StoreUnavailable("the driver is closed")

    def _pause_s(self, retry_s: float | None) -> float | None:
        if retry_s is None:
            return None
        return retry_s * self._random.uniform(1.0, 1.0 + _JITTER)

    def _final(self, error: HoldfastError, *, unsure: bool) -> HoldfastError:
        if unsure and not isinstance(error, OutcomeUnknown):
            # An earlier attempt may have been applied, whatever became of the last.
            return OutcomeUnknown(f"{error}; an earlier attempt may have been applied")
        if self._closed and isinstance(error, StoreUnavailable):
            return StoreUnavailable("the driver is closed")
        return error

    def _hooks(self, sends: _Sends) -> Hooks:
        return {"raw_request_hook": sends.note}

    def _note(self, response: Any) -> None:
        headers = response.http_response.headers
        try:
            told_s = parsedate_to_datetime(headers.get("Date")).timestamp()
            units = float(headers.get("x-ms-request-charge") or 0.0)
        except (TypeError, ValueError):
            # Not the service's own reply: some proxy's, which tells neither time nor price.
            return
        self._service_at = told_s, self._clock.monotonic()
        self.requests += 1
        self.request_units += units
        self._measure(REQUEST_UNITS, units)

    async def close(self) -> None:
        """Give everything back. Repeatable; requests under way end with an error."""
        if self._closed:
            return
        self._closed = True
        if current.pid != self._pid:
            return
        await self._client.close()
        if self._identity is not None:
            await self._identity.close()


class _Sends:
    """How often the client handed one request to the network."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, request: object) -> None:
        del request
        self.count += 1
