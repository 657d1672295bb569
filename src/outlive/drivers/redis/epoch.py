"""What this client remembers of the store, so that a restart which lost leases is noticed.

Owns the largest ttl that was seen and the run of the server it was seen in. The decision is made
in the store, by ``adopt.lua``, so that all clients decide alike; this is what they tell it.
"""

from __future__ import annotations

from outlive.drivers.redis.scripts import load_scripts
from outlive.drivers.redis.server import Server
from outlive.drivers.redis.settings import RedisSettings
from outlive.drivers.redis.wire import Wire
from outlive.ports.driver import DriverContext

# What may have been granted where nobody remembers: this is the default ttl of leases.
ASSUMED_TTL_US = 30_000_000


class Epoch:
    """The memory of one driver, for all its connections."""

    def __init__(self, settings: RedisSettings, context: DriverContext) -> None:
        self.key = f"{settings.keys_of(context.namespace)}epoch"
        self._settings = settings
        # A keeper would only repeat what its host says.
        self._logger = context.logger if context.role == "host" else None
        self._script = load_scripts().adopt
        self._run_id: str | None = None
        # The largest ttl that any owner may count on.
        self._remembered_us = 0
        # The largest ttl of a session that this client has kept.
        self._session_us = 0

    def learn(self, ttl_us: int) -> None:
        """Note that somebody, here or elsewhere, may own a lease of ``ttl_us``."""
        self._remembered_us = max(self._remembered_us, ttl_us)

    def learn_session(self, ttl_us: int) -> None:
        """Note that a session of ``ttl_us`` may have claims that count on it."""
        self._session_us = max(self._session_us, ttl_us)

    async def adopt(self, wire: Wire, server: Server, *, lost: bool = False) -> None:
        """Tell the store in which run of the server it lives.

        ``lost`` says that the store's own record of it was there once and is gone.

        Raises whatever the wire does.
        """
        news = lost or self._run_id != server.run_id
        lost = lost or self._run_id not in {None, server.run_id}
        quiet_us, longest_us = await wire.send(
            "EVAL",
            self._script.text,
            1,
            self.key,
            server.run_id,
            self._remembered_us,
            "1" if lost else "",
            server.uptime_us if server.forgetful else "",
            ASSUMED_TTL_US,
            "1" if self._settings.restart_wait else "",
            self._session_us,
        )
        self._run_id = server.run_id
        self._remembered_us = max(self._remembered_us, longest_us)
        if quiet_us and news and self._logger is not None:
            self._logger.warning(
                "%s restarted, failed over or lost its data: no lease is granted for %.1f s, "
                "until every lease that it may have lost has expired",
                self._settings.shown,
                quiet_us / 1e6,
            )
