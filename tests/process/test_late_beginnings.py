"""A host that is paused between a claim and its body begins nothing when it wakes.

Others run by then what it had claimed, and a body that began under the old token would act beside
them until its first fenced write.
"""

from __future__ import annotations

import pytest

from tests.process.test_flow_processes import freeze

pytestmark = pytest.mark.process

# Renewed every third of it, also on a machine that is busy; short enough to be waited out.
TTL_S = 2.0

JOBS = ["plain", "threaded", "timed"]
STEPS = ["work", "grind", "remote"]


@pytest.mark.parametrize("kind", [*JOBS, *STEPS, "leader", "tick"])
def test_a_body_begins_under_a_live_claim_or_not_at_all(store, cast, tmp_path, kind):
    gate = tmp_path / "gate"
    victim = cast.start("pauser", store.url, "victim", TTL_S, kind, gate)
    victim.wait("ready", limit_s=60)
    victim.tell("begin", kind=kind)
    victim.wait("between", limit_s=60)
    # Ticks before the one in question.
    before = victim.all("ran")
    freeze(victim, store)
    other = cast.start("pauser", store.url, "other", TTL_S, kind)
    other.wait("ran", limit_s=60)
    victim.thaw()
    gate.touch()
    assert victim.join() == 0
    assert victim.all("ran") == before
