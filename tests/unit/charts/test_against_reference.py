"""Random charts behave in the compiled engine as in a naive reading of the algorithm."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlive.charts import Actor, ChartWarning, Environment
from outlive.errors import MicrostepLimit
from tests.conformance.chart_language import Meanings, Recorder
from tests.unit.charts.random_charts import scenario
from tests.unit.charts.reference import Endless, Reference

# A chart costs a few milliseconds; the soak run takes its time.
CHARTS = 20_000 if os.environ.get("OUTLIVE_SOAK") else 150

# Enough for every chart that comes to rest; the others are found out sooner.
LIMIT = 200


class Drawn:
    """Choices of Hypothesis, which can be shrunk."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def number(self, least: int, most: int) -> int:
        return self._draw(st.integers(least, most))

    def choice(self, options: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(list(options)))

    def chance(self, percent: int) -> bool:
        return self._draw(st.integers(0, 99)) < percent


class Thrown:
    """Choices of a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def number(self, least: int, most: int) -> int:
        return self._random.randint(least, most)

    def choice(self, options: Sequence[Any]) -> Any:
        return self._random.choice(list(options))

    def chance(self, percent: int) -> bool:
        return self._random.randrange(100) < percent


@st.composite
def scenarios(draw: Any) -> dict[str, Any]:
    return scenario(Drawn(draw))


def compare(drawn: dict[str, Any]) -> None:
    recorder = Recorder()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChartWarning)
        chart = Meanings(drawn["impl"], recorder, "").chart(drawn["machine"], LIMIT)
    actor = Actor(chart, environment=Environment(faults="keep"))
    reference = Reference(drawn, LIMIT)
    if not both(actor.start, reference.start):
        return
    assert seen(actor, recorder) == reference.entry()
    for step in drawn["steps"]:
        recorder.reset()
        event = step["send"]["type"]
        if not both(partial(actor.send, event), partial(reference.send, event)):
            return
        assert seen(actor, recorder) == reference.entry()
        assert_legal(actor)
        assert chart.from_json(chart.to_json(actor.snapshot)) == actor.snapshot


def both(engine: Any, naive: Any) -> bool:
    """Whether both come to rest; neither does if one does not."""
    try:
        engine()
    except MicrostepLimit:
        with pytest.raises(Endless):
            naive()
        return False
    naive()
    return True


def assert_legal(actor: Actor) -> None:
    """One child of each active compound state, all regions of a parallel one, no gap above."""
    configuration = actor.snapshot.configuration
    for node in configuration.nodes:
        assert node.parent is None or node.parent.order in configuration.active
        inside = [child for child in node.children if child.order in configuration.active]
        wanted = len(node.children) if node.kind == "parallel" else int(node.kind == "compound")
        assert len(inside) == wanted


def seen(actor: Actor, recorder: Recorder) -> dict[str, Any]:
    snapshot = actor.snapshot
    return {
        "configuration": sorted(snapshot.active_ids),
        "status": snapshot.status,
        "context": dict(snapshot.context),
        "log": [entry[:2] for entry in recorder.log],
    }


@settings(
    max_examples=CHARTS // 3,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(scenarios())
def test_random_charts_agree_with_the_reference(drawn: dict[str, Any]):
    compare(drawn)


@pytest.mark.parametrize("seed", [15097, 15110, 15879])
def test_states_entered_again_keep_their_place_in_line(seed: int):
    compare(scenario(Thrown(seed)))


@pytest.mark.parametrize("batch", range(10))
def test_seeded_charts_agree_with_the_reference(batch: int):
    for seed in range(batch * (CHARTS // 5), (batch + 1) * (CHARTS // 5)):
        try:
            compare(scenario(Thrown(seed)))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
