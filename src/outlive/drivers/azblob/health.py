"""What ``check`` looks at: the container, who asks, the way there, and the clocks.

Only reads. Every line says what was found, and what to do where something is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.drivers.azblob.blobs import Blobs
from outlive.drivers.azblob.service_clock import ServiceClock
from outlive.drivers.azblob.settings import AzureBlobSettings
from outlive.errors import ConfigurationError, StoreError
from outlive.ports.driver import DriverContext, Finding

# A blob that is never made: asking for it is a round trip that any identity may make.
_NOBODY = "outlive-probe"

# Expiry is judged by the service alone, so a skew breaks nothing; it only makes times that people
# compare look wrong, until at a quarter of an hour the service refuses what we sign.
_SKEW_MAX_S = 5.0


async def look(
    blobs: Blobs, settings: AzureBlobSettings, context: DriverContext, clock: ServiceClock
) -> Sequence[Finding]:
    """The findings."""
    try:
        start = context.clock.monotonic()
        await blobs.read(_NOBODY)
        round_trip_s = context.clock.monotonic() - start
    except (StoreError, ConfigurationError) as error:
        return [Finding(level="error", what=str(error), advice="see the driver's page")]
    findings = [
        Finding(level="ok", what=f"container {settings.shown}"),
        Finding(level="ok", what=f"authentication by {settings.access.method}"),
        Finding(level="ok", what=f"round trip {round_trip_s * 1000:.1f} ms"),
        _skew(clock.skew_s()),
    ]
    if not settings.access.endpoint.startswith("https:"):
        findings.append(
            Finding(
                level="warning",
                what="the endpoint is not encrypted",
                advice="use https outside of an emulator",
            )
        )
    findings.extend(await _container(blobs))
    return findings


async def _container(blobs: Blobs) -> list[Finding]:
    try:
        properties: Any = await blobs.container_properties()
    except (StoreError, ConfigurationError):
        # A signature for blobs alone may not ask; nothing of what follows is then known.
        return []
    findings: list[Finding] = []
    if properties.has_immutability_policy or properties.has_legal_hold:
        findings.append(
            Finding(
                level="error",
                what="an immutability policy or legal hold forbids changing blobs",
                advice="use a container without one",
            )
        )
    if properties.public_access:
        findings.append(
            Finding(
                level="warning",
                what="the container is public: anyone can read which host owns which lease",
                advice="disable public access",
            )
        )
    return findings


def _skew(skew_s: float) -> Finding:
    what = f"the clock of the service differs by {skew_s:+.1f} s from the clock of this machine"
    if abs(skew_s) <= _SKEW_MAX_S:
        return Finding(level="ok", what=what)
    return Finding(
        level="warning",
        what=what,
        advice="run NTP on this machine; leases stay correct, but requests may be refused",
    )
