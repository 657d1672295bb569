"""Serving: opens the namespaces, binds, and takes everything down in order.

Owns who may be let in where. A server that nobody can tell friends from strangers for is bound to
this machine alone, or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from outlive.connect import connect
from outlive.errors import ConfigurationError
from outlive.runtime.runtime import Runtime
from outlive.server import limits
from outlive.server.access import any_token
from outlive.server.application import Application
from outlive.server.hosts import is_loopback
from outlive.server.limits import Limits
from outlive.server.problems import MEDIA_TYPE, Problem
from outlive.telemetry import installed

try:
    import uvicorn
    from uvicorn.protocols.http.auto import AutoHTTPProtocol
except ImportError:
    raise ConfigurationError(
        "the server needs Starlette and uvicorn: pip install 'outlive[server]'"
    ) from None

_log = logging.getLogger("outlive.server")

# The port of the server where none is named; no other well-known service has it.
PORT_DEFAULT = 8420


@dataclass(frozen=True, slots=True, kw_only=True)
class ServePlan:
    """What to serve, and where. The first namespace is that of callers without a token."""

    url: str | None
    namespaces: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = PORT_DEFAULT
    allowed_hosts: tuple[str, ...] = ()
    bounds: Limits = field(default_factory=Limits)


async def serve(plan: ServePlan, *, started: Callable[[str, bool], None]) -> None:
    """Serve until cancelled; ``started`` is told the address and whether tokens are asked for.

    When cancelled, requests that wait are let go at once, others get a few seconds.

    Raises:
        ConfigurationError: The address cannot be bound, or must not be.
    """
    async with _application(plan) as (application, authenticated):
        with _bound(plan) as listener:
            server = _Server(_config(application))
            serving = asyncio.create_task(server.serve([listener]), name="outlive-server")
            started(_address(listener), authenticated)
            try:
                await asyncio.shield(serving)
            finally:
                # First: whatever else goes wrong, the server is told to end, and awaited.
                server.should_exit = True
                try:
                    application.close()
                finally:
                    await asyncio.wait([serving])


@asynccontextmanager
async def _application(plan: ServePlan) -> AsyncGenerator[tuple[Application, bool], None]:
    async with AsyncExitStack() as stack:
        telemetry = installed()
        hosts = {
            name: await stack.enter_async_context(
                connect(plan.url, namespace=name, telemetry=telemetry)
            )
            for name in plan.namespaces
        }
        # A further name is that of a proxy, which lets others in though the loopback is bound.
        reached = [name for name in (plan.host, *plan.allowed_hosts) if not is_loopback(name)]
        application = Application(
            {name: host.driver for name, host in hosts.items()},
            flows={
                name: host.flows
                for name, host in hosts.items()
                if host.driver.instances is not None
            },
            opened=lambda name, ttl_s: hosts[name].expect_session(ttl_s),
            telemetry=telemetry,
            runtime=Runtime(),
            bounds=plan.bounds,
            open_to=None if reached else plan.namespaces[0],
            allowed_hosts=_names(plan),
        )
        stack.callback(application.close)
        authenticated = await any_token(application.spaces.tokens)
        if not authenticated and reached:
            raise ConfigurationError(
                f"other machines could reach a server on {reached[0]}, but no token exists: create "
                "one with `outlive token create NAME --scope work`, or leave out --host and "
                "--allowed-host"
            )
        yield application, authenticated


def _names(plan: ServePlan) -> tuple[str, ...]:
    """The names the server answers to besides those of the loopback."""
    any_address = plan.host in ("0.0.0.0", "::", "")  # noqa: S104 - compared, not bound
    own = () if any_address or is_loopback(plan.host) else (_bracketed(plan.host),)
    return (*own, *plan.allowed_hosts)


def _is_not_ours(record: logging.LogRecord) -> bool:
    """Whether ``Connection`` does not log the same, with the address."""
    return record.msg != "Invalid HTTP request received."


def _config(application: Application) -> uvicorn.Config:
    logging.getLogger("uvicorn.error").addFilter(_is_not_ours)
    return uvicorn.Config(
        # The type of uvicorn names its own form of ASGI.
        application,  # pyright: ignore[reportArgumentType]
        http=Connection,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # The address of a peer decides who is slowed down; a header that anybody may write does
        # not.
        proxy_headers=False,
        ws="none",
        limit_concurrency=limits.CONNECTIONS_MAX,
        timeout_keep_alive=round(limits.KEEP_ALIVE_S),
        timeout_graceful_shutdown=round(limits.STOP_S),
    )


class _Server(uvicorn.Server):
    """A server that leaves signals to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Catch none."""
        yield


@contextlib.contextmanager
def _bound(plan: ServePlan) -> Generator[socket.socket, None, None]:
    try:
        found = socket.getaddrinfo(
            plan.host, plan.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _unbound(plan, error) from None
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(socket.SOMAXCONN)
        except OSError as error:
            raise _unbound(plan, error) from None
        listener.setblocking(False)
        yield listener


def _unbound(plan: ServePlan, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"cannot listen on port {plan.port} of {plan.host} ({error.strerror}): choose another with "
        "--port or --host"
    )


def _address(listener: socket.socket) -> str:
    name: Any = listener.getsockname()
    return f"http://{_bracketed(name[0])}:{name[1]}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


class Connection(AutoHTTPProtocol):
    """Closes itself when a head does not arrive in time, or is too large.

    What is left of a body after its answer counts as well: a refused request must not be a way to
    go on sending.
    """

    # Of the base, which is one of two classes, by what is installed; both have these.
    client: tuple[str, int] | None
    cycle: Any
    transport: asyncio.Transport

    _unseen_bytes = 0
    _giving_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; the first head is awaited from now on."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came, unless it is more than anybody will look at."""
        before = self.cycle
        # Asked before: the last part of a body is one that a route sees, too.
        seen = before is not None and before.more_body and not before.response_complete
        super().data_received(data)
        request = self.cycle
        under_way = request is not None and not request.response_complete
        in_body = request is not None and request.more_body
        if seen or request is not before:
            self._unseen_bytes = 0
        else:
            self._unseen_bytes += len(data)
        if under_way:
            self._wait_no_more()
        else:
            self._wait()
        most = limits.HEAD_BYTES_MAX + (limits.BODY_BYTES_MAX if in_body else 0)
        if self._unseen_bytes > most:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP as everything else is refused, and hang up."""
        del msg
        address = self.client[0] if self.client else "unknown"
        _log.warning("a request from %s is not valid HTTP", address, extra={"address": address})
        body = Problem("invalid-request", "The request is not valid HTTP/1.1.").document()
        head = (
            f"HTTP/1.1 400 Bad Request\r\nContent-Type: {MEDIA_TYPE}\r\nCache-Control: no-store\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _wait(self) -> None:
        if self._giving_up is None:
            loop = asyncio.get_running_loop()
            self._giving_up = loop.call_later(limits.HEAD_TIMEOUT_S, self.transport.abort)

    def _wait_no_more(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
