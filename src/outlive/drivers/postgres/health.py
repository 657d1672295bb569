"""What ``check`` looks at: the server, its settings, its clock, and what stands in between.

Only reads. Every line says what was found, and what to do where something is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlive.drivers.postgres.connections import Connections
from outlive.drivers.postgres.settings import PostgresSettings
from outlive.errors import StoreError
from outlive.ports.driver import DriverContext, Finding

_LOOK = """
SELECT current_setting('server_version') AS server_version,
    current_setting('server_version_num')::int AS server_number,
    current_setting('fsync') AS fsync,
    current_setting('synchronous_commit') AS synchronous_commit,
    pg_is_in_recovery() AS in_recovery,
    extract(epoch FROM clock_timestamp())::float8 AS now,
    (SELECT max(version) FROM {s}.schema_version) AS schema_version
"""

# The first with gen_random_uuid() built in, which the schema uses; the rest is older.
_SERVER_OLDEST = 130_000

# Expiry is judged by the server alone, so a skew breaks nothing; it only makes times that people
# compare look wrong.
_SKEW_MAX_S = 2.0


async def look(
    connections: Connections,
    settings: PostgresSettings,
    context: DriverContext,
    *,
    deaf: bool | None,
) -> Sequence[Finding]:
    """The findings; ``deaf`` is ``None`` while nobody listens."""
    try:
        # Twice: the first opens and prepares, the second measures.
        await connections.fetch(settings.sql(_LOOK), write=False)
        start = context.clock.monotonic()
        (row,) = await connections.fetch(settings.sql(_LOOK), write=False)
        round_trip_s = context.clock.monotonic() - start
    except StoreError as error:
        return [Finding(level="error", what=str(error), advice="check that the server is running")]
    findings = [
        Finding(level="ok", what=f"PostgreSQL {row['server_version']} at {settings.shown}"),
        Finding(level="ok", what=f"schema {settings.schema}, version {row['schema_version']}"),
        Finding(level="ok", what=f"round trip {round_trip_s * 1000:.1f} ms"),
        _skew(row["now"] - context.clock.now().timestamp()),
    ]
    if row["server_number"] < _SERVER_OLDEST:
        findings.append(
            Finding(
                level="warning", what="this server is older than 13", advice="upgrade the server"
            )
        )
    if row["in_recovery"]:
        findings.append(
            Finding(
                level="error",
                what="the server is a standby and accepts no writes",
                advice="connect to the primary (target_session_attrs=read-write)",
            )
        )
    findings.extend(_durability(row["fsync"], row["synchronous_commit"]))
    findings.extend(_between(pooled=connections.pooled, deaf=deaf))
    return findings


def _skew(skew_s: float) -> Finding:
    what = f"the clock of the server differs by {skew_s:+.3f} s from the clock of this machine"
    if abs(skew_s) <= _SKEW_MAX_S:
        return Finding(level="ok", what=what)
    return Finding(
        level="warning",
        what=what,
        advice="run NTP on both; leases stay correct, but times in listings are wrong",
    )


def _durability(fsync: str, synchronous_commit: str) -> list[Finding]:
    findings: list[Finding] = []
    if fsync != "on":
        findings.append(
            Finding(
                level="warning",
                what="fsync is off: a crash of the server may repeat tokens or corrupt tables",
                advice="set fsync = on",
            )
        )
    if synchronous_commit == "off":
        findings.append(
            Finding(
                level="warning",
                what="synchronous_commit is off: a crash of the server may repeat tokens",
                advice="set synchronous_commit = on for this database or user",
            )
        )
    return findings or [Finding(level="ok", what="commits are durable")]


def _between(*, pooled: bool, deaf: bool | None) -> list[Finding]:
    findings: list[Finding] = []
    if pooled:
        findings.append(
            Finding(
                level="ok",
                what="the connection goes through a pooler: statements are not prepared",
                advice="a direct connection is about twice as fast",
            )
        )
    if deaf:
        findings.append(
            Finding(
                level="warning",
                what="notifications do not arrive: waiters poll instead",
                advice="set listen_url to a direct address of the server",
            )
        )
    return findings
