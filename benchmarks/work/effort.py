"""How long the measurements of work take, and what they share."""

from __future__ import annotations

from dataclasses import dataclass

from outlive.model.job import ENQUEUE_MAX

FILL = ENQUEUE_MAX
"""Jobs of one call that fills a queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long to measure. A backend's quick run stays near a minute."""

    # Of handlers end to end: long enough that a start and a stop do not show.
    rounds: int
    round_s: float
    # Of single statements: many and short, so that others on the machine slow both sides alike.
    batch_rounds: int
    batch_s: float
    pickups: int
    backlog: int
    backlog_rounds: int
    # The peer is slow: this many jobs take it some seconds.
    peer_jobs: int
    idle_s: float


QUICK = Effort(
    rounds=3,
    round_s=1.0,
    batch_rounds=15,
    batch_s=0.05,
    pickups=60,
    backlog=100_000,
    backlog_rounds=15,
    peer_jobs=400,
    idle_s=12.0,
)
FULL = Effort(
    rounds=9,
    round_s=2.0,
    batch_rounds=61,
    batch_s=0.1,
    pickups=300,
    backlog=1_000_000,
    backlog_rounds=61,
    peer_jobs=1500,
    idle_s=60.0,
)
