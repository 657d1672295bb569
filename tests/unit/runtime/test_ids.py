"""Ids: never used before, and in the order in which they were made where that is asked for."""

from __future__ import annotations

import random
import re
from datetime import timedelta

from outlive.runtime.runtime import Runtime
from outlive.testing import ManualClock


def test_ordered_ids_are_a_millisecond_and_chance() -> None:
    clock = ManualClock()
    runtime = Runtime(clock=clock)
    made = [runtime.ordered_id(), *runtime.ordered_ids(3)]
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in made)
    assert len(set(made)) == 4
    milliseconds = int(clock.now().timestamp() * 1000)
    assert {int(each[:12], 16) for each in made} == {milliseconds}


def test_a_later_one_sorts_behind_all_that_were_made_before() -> None:
    clock = ManualClock()
    runtime = Runtime(clock=clock)
    before = runtime.ordered_ids(50)
    clock.advance(timedelta(milliseconds=1).total_seconds())
    assert max(before) < runtime.ordered_id()


def test_a_simulation_draws_them_from_its_seed() -> None:
    def drawn() -> list[str]:
        runtime = Runtime(clock=ManualClock(), rng=random.Random(7))
        return [runtime.ordered_id(), *runtime.ordered_ids(2), runtime.new_id()]

    assert drawn() == drawn()
