"""Random flows whose children are all called alike, retried again and again: each call has its own.

Nothing but the order tells such calls apart, and behind a retry they come in another one.
"""

from __future__ import annotations

from typing import Any

import pytest

import outlive
from outlive import App
from tests.unit.flows.driving import Driven
from tests.unit.flows.test_random_flows import KINDS, child, perform
from tests.unit.flows.test_random_retries import Fragile, World, lead

SEEDS = 300

given: list[str] = []


def _twin(**how: Any) -> Any:
    async def call(path: str, number: int, inner: list[Any]) -> str:
        called = outlive.start_child(child, "same", **how)
        given.append(called.id)
        return await called

    return call


KINDS.update(twin=_twin(), twin_lasting=_twin(on_parent_end="abandon"))


class Alike(Fragile):
    """Programs whose children have nothing of their own."""

    plain = ("act", "act", "twin", "twin_lasting", "twin_lasting", "sleep")


class Crowd(World):
    """Knows what there is by its id alone."""

    def look(self, driven: Driven) -> None:
        for decision in driven.decisions[self.seen :]:
            self.ids.update({start.id: start.input for start in decision.starts})
        self.seen = len(driven.decisions)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_two_calls_are_given_one_child(seed):
    block = Alike(seed).block(3)

    async def code() -> str:
        return await perform(block, "r")

    driven, crowd = Driven(App("a").flow(name="f")(code)), Crowd(seed)
    lead(driven, crowd)
    given.clear()
    assert Driven(driven.flow, rows=list(driven.rows)).run.ended
    assert len(set(given)) == len(given)
