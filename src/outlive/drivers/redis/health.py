"""What ``check`` looks at: the server, how well it keeps what it is told, its clock.

Only reads. Every line says what was found, and what to do where something is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.drivers.redis.link import Link
from outlive.drivers.redis.server import Server, parse_config, parse_info, read_server
from outlive.drivers.redis.settings import RedisSettings
from outlive.errors import OutliveError
from outlive.ports.driver import DriverContext, Finding

# The oldest that the documentation promises.
_OLDEST = (6, 2)

# Expiry is judged by the server alone, so a skew breaks nothing; it only makes times that people
# compare look wrong.
_SKEW_MAX_S = 2.0


async def look(
    link: Link,
    settings: RedisSettings,
    context: DriverContext,
    *,
    epoch_key: str,
    deaf: bool | None,
) -> Sequence[Finding]:
    """The findings; ``deaf`` is ``None`` while nobody listens."""
    try:
        # The first answer opens the connection, the second is measured.
        info = parse_info(str(await link.call("INFO", write=False)))
        start = context.clock.monotonic()
        seconds, micros = await link.call("TIME", write=False)
        round_trip_s = context.clock.monotonic() - start
        until, ttl, claims_until = await link.call(
            "HMGET", epoch_key, "until", "ttl", "claims_until", write=False
        )
        config = await _config(link)
        server = read_server(info, config.get("save"), settings.shown)
    except OutliveError as error:
        return [Finding(level="error", what=str(error), advice="check that the server is running")]
    now_s = int(seconds) + int(micros) / 1e6
    findings = [
        Finding(level="ok", what=f"Redis {server.version} at {settings.shown}"),
        Finding(level="ok", what=f"round trip {round_trip_s * 1000:.1f} ms"),
        _skew(now_s - context.clock.now().timestamp()),
        *_role(server, info),
        *_durability(server, config),
        _eviction(server),
        _quiet(until, ttl, now_s),
        *_quiet_claims(claims_until, now_s),
    ]
    if deaf:
        findings.append(
            Finding(
                level="warning",
                what="notifications do not arrive: waiters poll instead",
                advice="check that the user may SUBSCRIBE to the channels of the prefix",
            )
        )
    return findings


async def _config(link: Link) -> dict[str, str]:
    """The settings that matter; managed servers refuse to show them."""
    found: dict[str, str] = {}
    for name in ("save", "appendfsync"):
        try:
            reply: Any = await link.call("CONFIG", "GET", name, write=False)
        except OutliveError:
            continue
        found |= parse_config(reply)
    return found


def _skew(skew_s: float) -> Finding:
    what = f"the clock of the server differs by {skew_s:+.3f} s from the clock of this machine"
    if abs(skew_s) <= _SKEW_MAX_S:
        return Finding(level="ok", what=what)
    return Finding(
        level="warning",
        what=what,
        advice="run NTP on both; leases stay correct, but times in listings are wrong",
    )


def _role(server: Server, info: dict[str, str]) -> list[Finding]:
    findings: list[Finding] = []
    number = tuple(int(part) for part in server.version.split(".")[:2] if part.isdigit())
    if number < _OLDEST:
        findings.append(
            Finding(
                level="warning", what="this server is older than 6.2", advice="upgrade the server"
            )
        )
    if server.replica:
        findings.append(
            Finding(
                level="error",
                what="the server is a replica and accepts no writes",
                advice="use the URL of the primary",
            )
        )
    replicas = info.get("connected_slaves", "0")
    if replicas != "0":
        findings.append(
            Finding(
                level="warning",
                what=f"connected replicas: {replicas}; a failover may lose the newest grants, jobs "
                "and claims",
                advice="carry the token in every write; the driver's page says what is lost",
            )
        )
    return findings


def _durability(server: Server, config: dict[str, str]) -> list[Finding]:
    advice = "set appendonly yes and appendfsync always on a server that holds leases or work"
    if not server.log:
        what = "the server has no append-only log: a crash loses the newest leases and jobs"
        if server.forgetful:
            what = "the server does not persist its data: a restart loses all leases and jobs"
        return [Finding(level="warning", what=what, advice=advice)]
    flush = config.get("appendfsync")
    if flush is None:
        return [
            Finding(
                level="ok",
                what="the server has an append-only log, but does not report appendfsync",
                advice="use appendfsync always for leases and work",
            )
        ]
    if flush != "always":
        what = (
            f"appendfsync is {flush!r}: a crash of the machine loses the newest leases, and "
            "acknowledged jobs, claims and results"
        )
        return [Finding(level="warning", what=what, advice=advice)]
    return [
        Finding(level="ok", what="every write is flushed before the reply (appendfsync always)")
    ]


def _eviction(server: Server) -> Finding:
    if server.evicts:
        return Finding(
            level="warning",
            what=f"maxmemory-policy is {server.policy}: a full server may evict leases and jobs",
            advice="set maxmemory-policy noeviction",
        )
    return Finding(level="ok", what=f"leases and jobs are never evicted ({server.policy})")


def _quiet(until: str | None, ttl: str | None, now_s: float) -> Finding:
    left_s = int(until or 0) / 1e6 - now_s
    if left_s > 0:
        return Finding(
            level="warning",
            what=f"the server restarted: no lease is granted for another {left_s:.1f} s",
            advice="wait until the leases that the server may have lost have expired",
        )
    return Finding(
        level="ok",
        what=f"after a restart, no lease is granted for {int(ttl or 0) / 1e6:g} s",
    )


def _quiet_claims(until: str | None, now_s: float) -> list[Finding]:
    left_s = int(until or 0) / 1e6 - now_s
    if left_s <= 0:
        return []
    return [
        Finding(
            level="warning",
            what=f"the server restarted: no job is claimed for another {left_s:.1f} s",
            advice="wait until the hosts whose sessions the server may have lost have stopped",
        )
    ]
