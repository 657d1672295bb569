"""Jobs under chaos at the port: many seeds, every invariant, floors for what must happen.

``OUTLIVE_SEED=n`` runs one seed alone; ``OUTLIVE_SOAK=1`` adds the long form.
"""

from __future__ import annotations

import pytest

from outlive.testing.faults import Fault
from tests.simulation.course import ONLY, Run, outputs_in_other_processes
from tests.simulation.job_fleet import JobFleet

SEEDS = 300
SOAK_SEEDS = range(10_000, 15_000)

# Things that must have happened often enough for silence to mean something, over all seeds.
# Wake-ups are not listened to here: a host that hears nothing must lose nothing either.
FLOORS = {
    **{f"fault {kind}": 50 for kind in Fault if kind is not Fault.WAKEUP_LOST},
    "takeover": 1_000,
    "reaped": 500,
    "session lost": 300,
    "claim refused": 30,
    "gave up": 400,
    "settled lost": 60,
    "unknown": 300,
    "unknown claim": 500,
    "strange claim": 100,
    "complete ok": 8_000,
    "complete lost": 50,
    "fail ok": 500,
    "release ok": 500,
    "enqueue created": 8_000,
    "enqueue existing": 200,
    "enqueue rejected": 300,
    "enqueue replaced": 80,
    "cancel requested": 80,
    "retry changed": 300,
}


# One test, because workers of a test run would each run all seeds for a part of the verdict.
@pytest.mark.timeout(600)
def test_no_invariant_is_broken_and_enough_went_wrong_to_mean_something():
    run = Run(JobFleet, range(SEEDS))
    assert not run.broken, run.explain()
    # One seed alone reaches no floor.
    assert ONLY is not None or run.below(FLOORS) == {}


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_no_invariant_is_broken_in_a_long_run():
    run = Run(JobFleet, SOAK_SEEDS)
    assert not run.broken, run.explain()


def test_one_seed_is_one_run_in_any_process():
    """Sets and dictionaries are ordered by hashes, and hashes differ between processes."""
    program = (
        "from tests.simulation.job_fleet import JobFleet\n"
        "fleet = JobFleet(7)\n"
        "fleet.run()\n"
        "print(fleet.simulation.loop.steps, len(fleet.history.jobs.served), fleet.simulation.now)\n"
    )
    printed = outputs_in_other_processes(program)
    assert len(printed) == 1
    assert printed != {""}
