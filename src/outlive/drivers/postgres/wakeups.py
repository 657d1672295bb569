"""Hints between hosts by LISTEN and NOTIFY, on one connection of their own.

Owns the listening connection: proves at its start and every half minute that a notification to
oneself arrives, calls itself deaf when it does not, and connects again. Only hosts listen, from
the moment they open, so that who subscribes hears at once. Losing hints costs latency, never work.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any

from outlive.drivers.postgres.connections import Connections
from outlive.drivers.postgres.settings import PostgresSettings
from outlive.errors import StoreError
from outlive.names import HostId
from outlive.ports.driver import DriverContext
from outlive.ports.hearing import Listeners
from outlive.ports.wakeups import MISSED, Listener, Wakeup
from outlive.serialization import decode_json, encode_json

# Often enough that a pooler or a firewall that swallows notifications is found before people
# notice; rare enough to cost nothing.
_PROVE_EVERY_S = 30.0

# A notification to oneself takes a millisecond; a loaded server gets five seconds.
_PROVE_WITHIN_S = 5.0

# How long opening waits for the first proof; without one it goes on, deaf.
_START_WITHIN_S = 2.0

# How long the next connection waits to learn whether the database answers: a pool of which all
# connections are taken must not keep the host deaf.
_PROBE_WITHIN_S = 1.0

# After so many failures in a row, at which the database answered, something else keeps wake-ups
# away. One is a connection that was dropped, or a server that came back just then.
_FAILURES_TOLD = 2

_BACKOFF_FIRST_S = 0.1
_BACKOFF_MOST_S = 10.0

# PostgreSQL takes payloads below 8,000 bytes; a topic is a key of at most 512 with a prefix.
_PAYLOAD_BYTES_MAX = 7_900

_NOTIFY = "SELECT pg_notify($1, $2)"


def channel_of(schema: str, namespace: str) -> str:
    """The channel of a namespace: short, and safe as an identifier whatever the namespace."""
    digest = hashlib.sha256(f"{schema}/{namespace}".encode()).hexdigest()
    return f"outlive_{digest[:24]}"


class PostgresWakeups:
    """The ``Wakeups`` of one namespace."""

    def __init__(
        self,
        connections: Connections,
        settings: PostgresSettings,
        context: DriverContext,
        channel: str,
    ) -> None:
        self._connections = connections
        self._dsn = settings.listen_dsn or settings.dsn
        self._own_address = settings.listen_dsn is not None
        self._context = context
        self._channel = channel
        self._listeners = Listeners(context.logger)
        self._task: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()
        self._settled = asyncio.Event()
        self._nonce = ""
        self._hearing = False
        self._closed = False
        self._warned = False
        self._suspicions = 0

    @property
    def deaf(self) -> bool:
        """Whether hints are known not to arrive now."""
        return not self._hearing

    @property
    def deaf_now(self) -> bool | None:
        """The same for people: ``None`` where nobody listens, as in a keeper."""
        return None if self._task is None else self.deaf

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` for each hint; see the port."""
        return self._listeners.add(listener)

    async def start(self) -> None:
        """Begin to listen; returns once hints arrive, or soon after if they do not."""
        if self._context.role != "host" or self._task is not None or self._closed:
            return
        self._task = asyncio.get_running_loop().create_task(self._listen())
        if self._likely_deaf:
            return
        try:
            async with asyncio.timeout(_START_WITHIN_S):
                await self._settled.wait()
        except TimeoutError:
            return

    @property
    def _likely_deaf(self) -> bool:
        """A pooler in transaction mode drops notifications; waiting for a proof is in vain."""
        return self._connections.pooled and not self._own_address

    async def ring(self, wakeup: Wakeup, *, host: HostId | None = None) -> None:
        """Send a hint; see the port. It may be lost."""
        message = {
            "ns": self._context.namespace,
            "host": host,
            "topic": wakeup.topic,
            "waiter": wakeup.waiter,
            "position": wakeup.position,
        }
        payload = encode_json(message, "a wake-up", limit=_PAYLOAD_BYTES_MAX)
        try:
            await self._connections.fetch(_NOTIFY, self._channel, payload, write=False)
        except StoreError as error:
            self._context.logger.debug("could not send a notification: %s", error)

    async def close(self) -> None:
        """Stop listening. Repeatable."""
        self._closed = True
        self._hearing = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None

    # -- listening ------------------------------------------------------------------------------

    async def _listen(self) -> None:
        failures = 0
        while not self._closed:
            connection: Any = None
            try:
                connection = await self._connections.connect(self._dsn)
                async with asyncio.timeout(_PROVE_WITHIN_S):
                    await connection.add_listener(self._channel, self._on_notification)
                while await self._proves(connection):
                    self._now_hearing()
                    failures = 0
                    await self._until_lost_or_due(connection)
                self._now_deaf()
                if not connection.is_closed():
                    await self._warn("a test notification did not arrive", certain=True)
            except Exception as error:  # noqa: BLE001 - whatever it is, connect again
                self._now_deaf()
                await self._warn(type(error).__name__)
            finally:
                if connection is not None:
                    connection.terminate()
            pause = min(_BACKOFF_MOST_S, _BACKOFF_FIRST_S * 2 ** min(failures, 10))
            failures += 1
            await self._context.clock.sleep(pause * self._context.random.uniform(0.5, 1.0))

    async def _proves(self, connection: Any) -> bool:
        """Whether a notification that this connection sends comes back to it."""
        if connection.is_closed():
            return False
        self._nonce = f"{self._context.random.getrandbits(64):016x}"
        self._heard.clear()
        try:
            async with asyncio.timeout(_PROVE_WITHIN_S):
                # A simple query: it must not depend on prepared statements surviving a pooler.
                await connection.execute(f"NOTIFY {self._channel}, '{self._nonce}'")
                await self._heard.wait()
        except TimeoutError:
            return False
        return True

    async def _until_lost_or_due(self, connection: Any) -> None:
        lost = asyncio.Event()

        def on_end(_connection: Any) -> None:
            lost.set()

        connection.add_termination_listener(on_end)
        try:
            async with asyncio.timeout(_PROVE_EVERY_S):
                await lost.wait()
        except TimeoutError:
            return
        finally:
            connection.remove_termination_listener(on_end)

    def _on_notification(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        if payload == self._nonce:
            self._heard.set()
            return
        try:
            message = decode_json(payload)
            if message["ns"] != self._context.namespace:
                return
            if message["host"] not in (None, self._context.host):
                return
            wakeup = Wakeup(message["topic"], int(message["waiter"]), int(message["position"]))
        except (ValueError, KeyError, TypeError):
            # Others may notify on this channel: proofs of other hosts, or strangers.
            return
        self._listeners.tell(wakeup)

    def _now_hearing(self) -> None:
        if self._warned:
            self._context.logger.info("notifications arrive again")
        again, self._hearing = self._settled.is_set() and not self._hearing, True
        self._warned = False
        self._suspicions = 0
        self._settled.set()
        if again:
            self._listeners.tell(MISSED)

    def _now_deaf(self) -> None:
        heard, self._hearing = self._hearing, False
        self._settled.set()
        if heard and not self._closed:
            # Who waits for a ring must poll from now on.
            self._listeners.tell(MISSED)

    async def _warn(self, why: str, *, certain: bool = False) -> None:
        """Say once that wake-ups do not arrive, unless the database itself is away.

        That is told by all who ask it for more, and an address to listen at would not help. It is
        ``certain`` where a connection is open and nothing arrives on it; else a failure counts.
        """
        if self._warned or self._closed:
            return
        try:
            async with asyncio.timeout(_PROBE_WITHIN_S):
                await self._connections.fetch("SELECT 1", write=False)
        except Exception:  # noqa: BLE001 - whatever it is, listening goes on
            self._suspicions = 0
            return
        self._suspicions += 1
        if not self._closed and (certain or self._suspicions >= _FAILURES_TOLD):
            self._warned = True
            self._context.logger.warning(
                "notifications do not arrive (%s): waiters poll instead; behind a pooler, set "
                "listen_url to a direct address of the server",
                why,
            )
