"""What a server says of itself, and what that means for leases. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from outlive.drivers.redis.translate import cluster
from outlive.errors import ConfigurationError, StoreUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One run of one server.

    ``forgetful`` means that it keeps nothing across a restart: no log and no snapshots. ``evicts``
    means that it may remove keys without expiry when its memory is full, and so forget leases.
    """

    run_id: str
    version: str
    uptime_us: int
    replica: bool
    policy: str
    log: bool
    forgetful: bool

    @property
    def evicts(self) -> bool:
        """Whether leases may be removed; policies named volatile spare keys without expiry."""
        return self.policy.startswith("allkeys-")


def read_server(info: Mapping[str, str], snapshots: str | None, shown: str) -> Server:
    """The server that ``info`` describes; ``snapshots`` is its setting, ``None`` if not told.

    Raises:
        ConfigurationError: Leases cannot be kept on it.
        StoreUnavailable: It is still loading.
    """
    if info.get("cluster_enabled") == "1":
        raise cluster()
    if info.get("loading") == "1":
        raise StoreUnavailable(f"{shown} is loading its data (LOADING)")
    if not info.get("run_id"):
        raise ConfigurationError(
            f"{shown} does not report its run id, which is needed to detect a restart that lost "
            "leases: check that it is a Redis server"
        )
    log = info.get("aof_enabled") == "1"
    return Server(
        run_id=info["run_id"],
        version=info.get("valkey_version") or info.get("redis_version", "?"),
        uptime_us=int(info.get("uptime_in_seconds", "0")) * 1_000_000,
        replica=info.get("role") == "slave",
        policy=info.get("maxmemory_policy", "noeviction"),
        log=log,
        forgetful=not log and snapshots == "",
    )


def parse_info(text: str) -> dict[str, str]:
    """The fields of an answer to ``INFO``."""
    pairs = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, sep, value in pairs if sep}


def parse_config(reply: Any) -> dict[str, str]:
    """The settings in an answer to ``CONFIG GET``; empty where it was refused."""
    if not isinstance(reply, list):
        return {}
    words = [str(word) for word in cast("list[Any]", reply)]
    return dict(zip(words[::2], words[1::2], strict=False))
