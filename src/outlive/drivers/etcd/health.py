"""What ``check`` looks at: the members, their alarms, and what stands in between.

Only reads. Every line says what was found, and what to do where something is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlive.drivers.etcd.connections import Connections
from outlive.drivers.etcd.settings import EtcdSettings
from outlive.drivers.etcd.wire import Status
from outlive.errors import OutliveError
from outlive.ports.driver import DriverContext, Finding

# Comparisons over a range of keys, on which every write rests, came with 3.3.
_SERVER_OLDEST = (3, 3)

# Before these, a member that is alone answers a write before it is in its log, and may forget it in
# a crash: the same token could be given out again (etcd's issue 14370).
_SURE_ALONE: dict[tuple[int, ...], int] = {(3, 4): 21, (3, 5): 5}

_ALARMS = {
    "NOSPACE": "compact and defragment it, then run `etcdctl alarm disarm`",
    "CORRUPT": "replace the corrupt member; nothing it says can be trusted",
}


async def look(
    connections: Connections,
    settings: EtcdSettings,
    context: DriverContext,
    *,
    deaf: bool | None,
) -> Sequence[Finding]:
    """The findings; ``deaf`` is ``None`` while nobody listens."""
    try:
        # Twice: the first connects, the second measures.
        await connections.status()
        start = context.clock.monotonic()
        status = await connections.status()
        round_trip_s = (context.clock.monotonic() - start) / 2
    except OutliveError as error:
        return [Finding(level="error", what=str(error), advice="is etcd running?")]
    findings = [
        Finding(level="ok", what=f"etcd {status.version} at {settings.shown}"),
        Finding(level="ok", what=f"round trip {round_trip_s * 1000:.1f} ms"),
        Finding(level="ok", what=f"its data takes {status.bytes / 2**20:.1f} MiB"),
        *_server(status),
    ]
    if settings.password is not None and settings.tls is None:
        findings.append(
            Finding(
                level="warning",
                what="the password travels in clear text",
                advice="use etcds:// where the network is not your own",
            )
        )
    if len(settings.endpoints) == 1:
        findings.append(
            Finding(
                level="ok",
                what="one member is named",
                advice="name all members of a cluster, so that one may fail",
            )
        )
    if deaf:
        findings.append(
            Finding(
                level="warning",
                what="wake-ups do not arrive, so waiters poll",
                advice="a proxy that cuts long streams? it must allow gRPC watches",
            )
        )
    return findings


def _server(status: Status) -> list[Finding]:
    findings = [
        Finding(level="error", what=f"alarm {alarm}", advice=_ALARMS.get(alarm, "look at etcd"))
        for alarm in status.alarms
    ]
    if not status.has_leader:
        findings.append(
            Finding(
                level="error",
                what="the member knows no leader",
                advice="most of the cluster's members must be up",
            )
        )
    if _version(status.version) < _SERVER_OLDEST:
        findings.append(
            Finding(level="error", what="this etcd is older than 3.3", advice="upgrade it")
        )
    if _may_forget(status.version):
        findings.append(
            Finding(
                level="warning",
                what=f"a cluster of one member may forget grants in a crash, with {status.version}",
                advice="upgrade to 3.4.21, 3.5.5 or newer, or run three members",
            )
        )
    return findings


def _may_forget(version: str) -> bool:
    line = _version(version)
    patch = version.rpartition(".")[2]
    sure = _SURE_ALONE.get(line)
    if sure is None:
        return line < min(_SURE_ALONE)
    return patch.isdigit() and int(patch) < sure


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
