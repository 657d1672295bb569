"""The memory store under chaos, driven by a client that is the specification itself."""

from __future__ import annotations

from outlive.testing.faults import Fault
from tests.simulation.course import ONLY, Run
from tests.simulation.model_client import StoreFleet
from tests.simulation.worker import LOCKS

SEEDS = 100
FLOORS = {
    **{f"fault {kind}": 5 for kind in Fault if kind is not Fault.WAKEUP_LOST},
    "takeover": 50,
    "write fenced": 5,
    "expired by its own clock": 20,
    "store.acquire None": 20,
    "renew True": 500,
    "release True": 500,
    "probe": SEEDS * len(LOCKS),
}


def test_no_invariant_is_broken_at_the_port():
    run = Run(StoreFleet, range(SEEDS))
    assert not run.broken, run.explain()
    assert ONLY is not None or run.below(FLOORS) == {}
