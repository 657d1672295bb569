"""Whether an orchestrator keeps up: three levels, and the reasons in words. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outlive.charts.orchestrator.metrics import Metrics

Level = Literal["healthy", "degraded", "unhealthy"]

# People notice a quarter of a second; after five they try again, and make it worse.
DEGRADED_AGE_S = 0.25
UNHEALTHY_AGE_S = 5.0

# Below this share, failures are the users' own; above the second, nothing works.
DEGRADED_FAILURES = 0.05
UNHEALTHY_FAILURES = 0.5

# A share of fewer events than this says nothing.
EVENTS_MIN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """``level`` and the ``reasons`` for it; a healthy one has none."""

    level: Level
    reasons: tuple[str, ...] = ()


def judge(now: Metrics, before: Metrics | None = None) -> Health:
    """How an orchestrator does between two looks; without ``before``, since it was made."""
    bad: list[str] = []
    worse: list[str] = []
    processed = now.processed - (before.processed if before else 0)
    failed = now.failed - (before.failed if before else 0)
    throttled = now.throttled - (before.throttled if before else 0)
    if processed >= EVENTS_MIN and failed > processed * DEGRADED_FAILURES:
        share = failed / processed
        target = worse if share > UNHEALTHY_FAILURES else bad
        target.append(f"{share:.0%} of the events failed")
    if now.queue_age_s > DEGRADED_AGE_S:
        target = worse if now.queue_age_s > UNHEALTHY_AGE_S else bad
        target.append(f"the longest waiting machine has waited {now.queue_age_s:.2g} s")
    if throttled:
        bad.append(f"{throttled} events were sent to a full mailbox")
    if worse:
        return Health(level="unhealthy", reasons=(*worse, *bad))
    return Health(level="degraded" if bad else "healthy", reasons=tuple(bad))
