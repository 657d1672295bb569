"""Which durations a blob can be leased for. Pure."""

from __future__ import annotations

import math

from outlive.errors import UsageError

# Azure's own limits. It also leases without end, which is not offered: such a lease would outlive
# its owner for ever, and renewal keeps one of a minute for as long as its owner lives.
TTL_MIN_S = 15.0
TTL_MAX_S = 60.0


def check_ttl(ttl_us: int) -> None:
    """Refuse what Azure would refuse.

    Raises:
        UsageError: Outside the range, which it names.
    """
    if not TTL_MIN_S <= ttl_us / 1e6 <= TTL_MAX_S:
        raise UsageError(
            f"ttl {ttl_us / 1e6:g} s is outside the limits of Azure Blob Storage: "
            f"{TTL_MIN_S:g} to {TTL_MAX_S:g} s"
        )


def lease_seconds(ttl_us: int) -> int:
    """The duration of a lease in Azure, in whole seconds: never shorter than what was asked."""
    return math.ceil(ttl_us / 1e6)
