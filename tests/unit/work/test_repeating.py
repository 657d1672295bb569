"""What is asked of a store again, and what is told when it never answers."""

from __future__ import annotations

import pytest

from outlive.errors import OutcomeUnknown, StoreUnavailable
from outlive.runtime.runtime import Runtime
from outlive.testing import Simulation
from outlive.work.repeating import until_known

pytestmark = pytest.mark.whitebox


def test_a_store_that_never_answers_is_told_of_once():
    asked: list[int] = []

    async def call(number: int) -> None:
        asked.append(number)
        if number == 0:
            raise OutcomeUnknown("the reply was lost")
        raise StoreUnavailable(f"cannot connect, {number}")

    async def story(simulation: Simulation) -> None:
        await until_known(Runtime(clock=simulation.clock), call)

    with pytest.raises(OutcomeUnknown) as caught:
        Simulation(0).run(story)
    assert len(asked) > 3
    last = f"cannot connect, {asked[-1]}"
    assert str(caught.value) == f"the reply was lost; repeated: {last}"
