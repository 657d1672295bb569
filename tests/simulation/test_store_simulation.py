"""The memory store under chaos, driven by a client that is the specification itself."""

from __future__ import annotations

import os
from collections import Counter

from outlive.testing.faults import Fault
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
    only = os.environ.get("OUTLIVE_SEED")
    seen: Counter[str] = Counter()
    for seed in range(SEEDS) if only is None else [int(only)]:
        outcome = StoreFleet(seed).run()
        assert not outcome.violations, outcome.explain()
        seen += outcome.seen
    if only is None:
        assert {what: seen[what] for what, floor in FLOORS.items() if seen[what] < floor} == {}
