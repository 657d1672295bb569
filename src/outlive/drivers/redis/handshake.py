"""Opens a connection: address, TLS, user, database, and who answers there.

Owns the first words on every connection. Nothing here waits longer than the connect timeout.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from outlive.drivers.redis.server import Server, parse_config, parse_info, read_server
from outlive.drivers.redis.settings import RedisSettings
from outlive.drivers.redis.translate import translate_connect
from outlive.drivers.redis.wire import Wire
from outlive.names import HostId

# Dead peers are found by the kernel within seconds even where nothing is being sent.
_KEEPALIVE_IDLE_S = 5
_KEEPALIVE_INTERVAL_S = 2
_KEEPALIVE_COUNT = 3


async def open_wire(settings: RedisSettings, host: HostId) -> tuple[Wire, Server]:
    """A new connection, which belongs to the caller, and the server at its other end.

    Raises:
        StoreUnavailable: The server cannot be reached, or is loading its data.
        ConfigurationError: The URL is wrong, the server refuses the user, or is no place for
            leases.
    """
    wire: Wire | None = None
    try:
        async with asyncio.timeout(settings.connect_timeout_s):
            wire = await _connect(settings)
            return wire, await _introduce(wire, settings, host)
    except BaseException as error:
        if wire is not None:
            wire.abandon("the connection could not be opened")
            await wire.ended()
        if isinstance(error, Exception):
            raise translate_connect(error, settings.shown) from None
        raise


async def _connect(settings: RedisSettings) -> Wire:
    loop = asyncio.get_running_loop()
    context = settings.tls_context()

    def make() -> Wire:
        return Wire(settings.command_timeout_s)

    if settings.path is not None:
        _, wire = await loop.create_unix_connection(make, settings.path)
        return wire
    transport, wire = await loop.create_connection(make, settings.host, settings.port, ssl=context)
    _keep_alive(transport.get_extra_info("socket"), settings.command_timeout_s)
    return wire


async def _introduce(wire: Wire, settings: RedisSettings, host: HostId) -> Server:
    """Say who we are and learn who answers, in one round trip."""
    needed: list[asyncio.Future[Any]] = []
    if settings.password is not None:
        user = [] if settings.username is None else [settings.username]
        needed.append(wire.send("AUTH", *user, settings.password))
    if settings.database:
        needed.append(wire.send("SELECT", settings.database))
    # The name is for people who look at CLIENT LIST; a server that refuses it does no harm.
    name = wire.send("CLIENT", "SETNAME", f"outlive-{host}")
    info = wire.send("INFO")
    save = wire.send("CONFIG", "GET", "save")
    replies: list[Any] = await asyncio.gather(*needed, name, info, save, return_exceptions=True)
    if any(isinstance(reply, BaseException) for reply in (*replies[: len(needed)], replies[-2])):
        # The first says why: a server that takes no more clients answers once and hangs up.
        raise next(reply for reply in replies if isinstance(reply, BaseException))
    config = parse_config(replies[-1])
    return read_server(parse_info(str(replies[-2])), config.get("save"), settings.shown)


def _keep_alive(endpoint: socket.socket | None, timeout_s: float) -> None:
    """Let the kernel notice a peer that is gone."""
    if endpoint is None:
        return
    endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", _KEEPALIVE_COUNT),
        ("TCP_USER_TIMEOUT", int(timeout_s * 1000)),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            endpoint.setsockopt(socket.IPPROTO_TCP, option, value)
