"""How long the measurements of flows take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long to measure. A backend's quick run stays near a minute."""

    # Many and short, so that others on the machine slow both sides alike; a host in full swing
    # needs some tenths of a second to be there.
    rounds: int
    round_s: float
    # Of flows one after the other.
    latencies: int
    # A process of its own for each host: long enough that their starts do not show.
    process_rounds: int
    process_s: float
    # The peer is slow: so many flows take it some seconds.
    peer_flows: int
    sleeping: int
    # A minute has each duty of an idle host in it: the longest comes round once.
    idle_s: float
    long_steps: int


QUICK = Effort(
    rounds=5,
    round_s=0.5,
    latencies=200,
    process_rounds=3,
    process_s=1.0,
    peer_flows=100,
    sleeping=5_000,
    idle_s=60.0,
    long_steps=2_000,
)
FULL = Effort(
    rounds=21,
    round_s=1.0,
    latencies=2_000,
    process_rounds=9,
    process_s=2.0,
    peer_flows=500,
    sleeping=100_000,
    idle_s=60.0,
    long_steps=10_000,
)
