"""Requests to one account: each bounded in time, repeated where that is safe, and counted.

Owns the client of azure-cosmos and everything it holds open. A write is safe to repeat, because its
ETag lets it happen once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeVar

from outlive.azure import COSMOS, missing_library, open_identity
from outlive.drivers.cosmos.settings import CosmosSettings
from outlive.drivers.cosmos.translate import is_answer, judge, status_of
from outlive.errors import OutcomeUnknown, OutliveError, StoreUnavailable, UsageError
from outlive.ports.driver import DriverContext
from outlive.process import current

REQUEST_UNITS = "request_units"
"""What Cosmos DB charges for; the name under which it is measured."""

# Pauses vary by this much, so that clients that were throttled together do not come back together.
_JITTER = 0.2

_OK = 200

Document = Mapping[str, Any]
Hooks = dict[str, Any]
_Result = TypeVar("_Result")

_PROXIED = ("http", "https")


class Reply(NamedTuple):
    """The status of an answer, and the item where there is one."""

    status: int
    document: Document | None


class Connection:
    """One client of one account."""

    def __init__(self, settings: CosmosSettings, context: DriverContext) -> None:
        self._settings = settings
        self._clock = context.clock
        self._random = context.random
        self._measure = context.measure
        self._pid = current.pid
        self._closed = False
        self._service_at = (0.0, 0.0)
        self.requests = 0
        self.request_units = 0.0
        self.library = import_library()
        key = settings.access.key
        self._identity: Any | None = open_identity(COSMOS, settings.access) if key is None else None
        self.client: Any = open_client(
            self.library, settings, self._identity if key is None else key, self._note
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
            await self.client.__aenter__()

        await self.call(enter, write=False)

    async def account(self) -> Any:
        """What the account says of itself."""

        async def read(hooks: Hooks) -> Any:
            # The library has no public way to it.
            return await self.client._get_database_account(**hooks)  # noqa: SLF001

        return await self.call(read, write=False)

    async def ask(self, operation: Callable[[Hooks], Awaitable[Document]], *, write: bool) -> Reply:
        """Like ``call``, for one item: missing, existing and changed are answers, not errors."""

        async def answer(hooks: Hooks) -> Reply:
            try:
                return Reply(_OK, await operation(hooks))
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

    def _final(self, error: OutliveError, *, unsure: bool) -> OutliveError:
        if unsure and not isinstance(error, OutcomeUnknown):
            # An earlier attempt may have been applied, whatever became of the last.
            return OutcomeUnknown(f"{error}; an earlier attempt of the write may have been applied")
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
        try:
            await self.client.close()
        finally:
            if self._identity is not None:
                await self._identity.close()


class _Sends:
    """How often the client handed one request to the network."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, request: object) -> None:
        del request
        self.count += 1


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


def open_client(
    library: Library, settings: CosmosSettings, credential: Any, note: Callable[[Any], None]
) -> Any:
    """A client of the account, not connected yet; ``note`` is told every reply.

    Its own repetition of requests is turned off: only the driver knows how much time a caller has,
    and that a write which may have been applied must be looked up.
    """
    policy: Any = library.policy()
    # Zero as an argument is taken for "not given"; throttled requests would be repeated for half a
    # minute.
    policy.RetryOptions._max_retry_attempt_count = 0  # noqa: SLF001
    return library.client(
        settings.access.endpoint,
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
        transport=library.transport(use_env_settings=False),
        proxies={} if settings.proxy is None else dict.fromkeys(_PROXIED, settings.proxy),
        raw_response_hook=note,
    )
