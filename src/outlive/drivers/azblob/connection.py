"""The client library on one container: each request bounded in time, retried while busy.

Owns the library, its connections and the identity it shows. Knows nothing of blobs: it is handed
requests, and gives back their answer, the ``Refusal`` they met, or an error of ours.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from outlive.azure import BLOB, AzureAccess, missing_library, open_identity
from outlive.drivers.azblob.service_clock import ServiceClock
from outlive.drivers.azblob.settings import AzureBlobSettings
from outlive.drivers.azblob.translate import is_busy, refusal_of, retry_after_s, translate
from outlive.errors import StoreUnavailable, UsageError
from outlive.ports.driver import DriverContext
from outlive.process import current

# A throttled request is repeated so often, after what the service asks for, or these pauses; all
# within the time limit of one request, so that a busy account does not look like a dead one.
_BUSY_TRIES_MAX = 4
_BUSY_FIRST_S = 0.1
_BUSY_MOST_S = 3.0

_Answer = TypeVar("_Answer")


class Connection:
    """The way to one container. Belongs to the event loop that uses it first.

    ``container`` is the library's client, ``library`` and ``conditions`` the library itself.
    """

    def __init__(
        self, settings: AzureBlobSettings, context: DriverContext, clock: ServiceClock
    ) -> None:
        self._settings = settings
        self._context = context
        self._clock = clock
        self._pid = current.pid
        self._closed = False
        self._identity: Any = None
        self.library, self.conditions = _import_library()
        self.container: Any = self._make_client(settings.access)

    def _make_client(self, access: AzureAccess) -> Any:
        credential: Any
        if access.key is not None:
            credential = {"account_name": access.account, "account_key": access.key}
        elif access.signature is not None:
            credential = access.signature
        else:
            credential = self._identity = open_identity(BLOB, access)
        try:
            return self.library.ContainerClient(
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
                user_agent="outlive",
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, it is translated
            raise translate(error, write=False, shown=self._settings.shown) from None

    def _on_reply(self, reply: Any) -> None:
        self._clock.observe(reply.http_response.headers.get("Date"))

    async def ask(self, request: Callable[[], Awaitable[_Answer]], *, write: bool) -> Any:
        """The answer to ``request``, or the refusal that it met."""
        self.check_open()
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                return await self._insist(request)
        except Exception as error:
            if self._closed:
                raise StoreUnavailable("the driver is closed") from None
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
                self._context.logger.debug(
                    "Azure Blob Storage is busy, next attempt in %g s", pause_s
                )
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
        if current.pid != self._pid:
            # A child of a fork must leave the parent's connections alone: they share a poller.
            return
        await self.container.close()
        if self._identity is not None:
            await self._identity.close()


def _proxies(proxy: str | None) -> dict[str, str] | None:
    return None if proxy is None else {"http": proxy, "https": proxy}


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
