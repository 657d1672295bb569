"""What a worker answers over HTTP: its metrics, whether it lives, and whether it is ready.

One request per connection, no authentication and nothing but these three: an orchestrator and
Prometheus ask from inside of the network. Must never show a payload, a key or a secret.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from outlive.errors import ConfigurationError, StoreError, UsageError
from outlive.host import Host

# A probe sends one short request and reads a short answer: longer or slower ones are given up.
_HEAD_BYTES_MAX = 8 * 1024
_REQUEST_S = 10.0

# An orchestrator and a few Prometheus servers ask at a time; the next request comes soon.
_REQUESTS_MAX = 16

# Counting reads what is stored, and each worker of a fleet is scraped: not at each scrape.
_MEASURED_S = 60.0

# Prometheus gives a scrape up after 10 s by default. Its other numbers must come in time, most of
# all while the store does not answer.
_MEASURE_S = 5.0

_log = logging.getLogger("outlive.host")

Answer = tuple[HTTPStatus, str, bytes]


def parse_address(text: str) -> tuple[str | None, int]:
    """HOST:PORT, or :PORT for all addresses of this machine.

    Raises:
        UsageError: It is neither.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004 - the last port
        raise UsageError(f"--listen must be :PORT or HOST:PORT, such as :9100, not {text!r}")
    return host.strip("[]") or None, int(port)


@asynccontextmanager
async def listening(host: Host, address: str) -> AsyncGenerator[str]:
    """Answer on ``address`` for the length of the block; gives the address that was bound.

    Raises:
        UsageError: The address is not one, or another program uses it.
        ConfigurationError: The Prometheus client is not installed.
    """
    name, port = parse_address(address)
    probes = _Probes(host)
    try:
        server = await asyncio.start_server(probes.serve, name, port, limit=_HEAD_BYTES_MAX)
    except OSError as error:
        raise UsageError(f"cannot listen on {address}: {error.strerror or error}") from error
    async with server:
        bound = server.sockets[0].getsockname()
        yield f"{name or '*'}:{bound[1]}"


class _Probes:
    def __init__(self, host: Host) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise ConfigurationError(
                "--listen needs the Prometheus client: pip install 'outlive[metrics]'"
            ) from None
        self._host = host
        self._expose: Callable[[], bytes] = prometheus_client.generate_latest
        self._media_type: str = prometheus_client.CONTENT_TYPE_LATEST
        self._measured_at = float("-inf")
        self._requests = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request; one that is too slow, or is no HTTP, has its connection closed."""
        self._requests += 1
        try:
            if self._requests <= _REQUESTS_MAX:
                async with asyncio.timeout(_REQUEST_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    await self._reply(head.decode("latin-1"), writer)
        except (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError) as error:
            _log.debug("gave up a request for metrics or health: %r", error)
        finally:
            self._requests -= 1
            writer.close()

    async def _reply(self, head: str, writer: asyncio.StreamWriter) -> None:
        method, _, rest = head.partition(" ")
        target = rest.partition(" ")[0]
        status, media_type, body = await self._answer(method, target.partition("?")[0])
        lines = (
            f"HTTP/1.1 {status.value} {status.phrase}",
            f"Content-Type: {media_type}",
            f"Content-Length: {len(body)}",
            *("Cache-Control: no-store", "X-Content-Type-Options: nosniff"),
            *("Connection: close", "", ""),
        )
        writer.write("\r\n".join(lines).encode() + (b"" if method == "HEAD" else body))
        await writer.drain()

    async def _answer(self, method: str, path: str) -> Answer:
        if path not in ("/healthz", "/readyz", "/metrics"):
            return _said(HTTPStatus.NOT_FOUND, "ask for /metrics, /healthz or /readyz")
        if method not in ("GET", "HEAD"):
            return _said(HTTPStatus.METHOD_NOT_ALLOWED, "GET alone is answered")
        if path == "/healthz":
            # A loop that is blocked does not come here.
            return _said(HTTPStatus.OK, "ok")
        if path == "/readyz":
            health = await self._host.health()
            wrong = [each.what for each in health.findings if each.level == "error"]
            if wrong:
                return _said(HTTPStatus.SERVICE_UNAVAILABLE, "; ".join(wrong))
            return _said(HTTPStatus.OK, "ok")
        now = asyncio.get_running_loop().time()
        if now - self._measured_at >= _MEASURED_S:
            self._measured_at = now
            try:
                async with asyncio.timeout(_MEASURE_S):
                    await self._host.measure()
            except (StoreError, TimeoutError) as error:
                _log.warning(
                    "could not count what is stored; these metrics keep what they say: %s",
                    str(error) or "no answer from the store in time",
                )
        return HTTPStatus.OK, self._media_type, await asyncio.to_thread(self._expose)


def _said(status: HTTPStatus, text: str) -> Answer:
    return status, "text/plain; charset=utf-8", f"{text}\n".encode()
