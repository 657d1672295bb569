"""What a worker answers over HTTP: its metrics, whether it lives, and whether it is ready.

One request per connection, no authentication and nothing but these three: an orchestrator and
Prometheus ask from inside of the network. Must never show a payload, a key or a secret.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from outlive.errors import ConfigurationError, StoreError, UsageError
from outlive.host import Host

# Whoever connects sends one short request: longer or slower ones are not for us.
_HEAD_BYTES_MAX = 8 * 1024
_HEAD_S = 5.0

# A scrape each few seconds must not count the store each time.
_MEASURED_S = 10.0

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

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        try:
            async with asyncio.timeout(_HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
            method, target, *_ = head.decode("latin-1").split(" ", 2)
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
        except (OSError, TimeoutError, ValueError, EOFError, asyncio.LimitOverrunError):
            # It hung up, or spoke no HTTP.
            return
        finally:
            writer.close()

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
                await self._host.measure()
            except StoreError as error:
                return _said(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        return HTTPStatus.OK, self._media_type, await asyncio.to_thread(self._expose)


def _said(status: HTTPStatus, text: str) -> Answer:
    return status, "text/plain; charset=utf-8", f"{text}\n".encode()
