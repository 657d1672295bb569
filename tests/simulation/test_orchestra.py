"""The real orchestrator under many seeds: every rule, and floors for what must have happened.

``OUTLIVE_SEED=n`` runs one seed alone; ``OUTLIVE_SOAK=1`` adds the long form.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from outlive.charts import Event
from outlive.charts.interpreter import IDLE
from outlive.charts.orchestrator.group import Group
from outlive.charts.orchestrator.lanes import Lanes
from outlive.charts.orchestrator.machine import Machine
from outlive.charts.orchestrator.requests import Request
from outlive.charts.orchestrator.worker import Worker
from tests.simulation.orchestra import Orchestra
from tests.simulation.orchestra_rules import broken

SEEDS = 300
SOAK_SEEDS = range(10_000, 15_000)

# What must have happened over all seeds, so that silence means something.
FLOORS = {
    "handled": 50_000,
    "accepted": 40_000,
    "accepted late": 1_000,
    "refused": 10_000,
    "begin": 10_000,
    "answer": 10_000,
    "error": 2_000,
    "timeout": 1_000,
    "released": 500,
    "drained": 100,
    "halted": 100,
    "gave up": 50,
    "grown": 200,
    "shrunk": 200,
}

ONLY = os.environ.get("OUTLIVE_SEED")


class Run:
    """What many seeds did together."""

    def __init__(self, seeds: Iterable[int]) -> None:
        self.seen: Counter[str] = Counter()
        self.broken: list[str] = []
        for number in seeds:
            seed = Orchestra(number).run()
            assert seed.metrics is not None
            self.seen += seed.seen
            self.seen["grown"] += seed.metrics.grown
            self.seen["shrunk"] += seed.metrics.shrunk
            self.broken += [f"OUTLIVE_SEED={number}: {found}" for found in broken(seed)[:3]]


# One test, because workers of a test run would each run all seeds for a part of the verdict.
@pytest.mark.timeout(600)
def test_no_rule_is_broken_and_enough_happened_to_mean_something():
    run = Run(range(SEEDS) if ONLY is None else [int(ONLY)])
    assert run.broken == []
    # One seed alone reaches no floor.
    below = {what: run.seen[what] for what, low in FLOORS.items() if run.seen[what] < low}
    assert ONLY is not None or below == {}


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_no_rule_is_broken_in_a_long_run():
    assert Run(SOAK_SEEDS).broken == []


def test_one_seed_is_one_run():
    first, second = (Orchestra(7).run() for _ in range(2))
    assert first.history == second.history
    assert len(first.history) > 100


# -- the suite must be able to fail ---------------------------------------------------------------


def newest_first(patch: pytest.MonkeyPatch) -> None:
    """The newest mail is handled first."""
    accept = Worker._accept

    def wrong(self: Worker, item: Any) -> Any:
        outcome = accept(self, item)
        if self._mailbox and self._mailbox[-1] is item:
            self._mailbox.rotate(1)
        return outcome

    patch.setattr(Worker, "_accept", wrong)


def do_not_wait(patch: pytest.MonkeyPatch) -> None:
    """A machine handles its mail although an action awaits something."""
    wait = Worker._wait

    def wrong(self: Worker, *given: Any) -> None:
        wait(self, *given)
        self._phase = IDLE

    patch.setattr(Worker, "_wait", wrong)


def lose_on_growth(patch: pytest.MonkeyPatch) -> None:
    """Who waits in a lane is forgotten when the pool changes."""
    resize = Lanes._resize

    def wrong(self: Lanes, size: int) -> None:
        for lane in self._lanes:
            lane.ready.clear()
        resize(self, size)

    patch.setattr(Lanes, "_resize", wrong)


def run_late_always(patch: pytest.MonkeyPatch) -> None:
    """An event is handled although its sender gave it up."""
    patch.setattr(Request, "claim", lambda self: self._take() or True)


def keep_silent_on_release(patch: pytest.MonkeyPatch) -> None:
    """A release does not answer the requests that wait."""
    patch.setattr(Worker, "_discard", lambda self, item, error: None)  # noqa: ARG005


def look_everywhere(patch: pytest.MonkeyPatch) -> None:
    """A name that is unknown in the own group is looked up in all the others."""
    find = Group._find

    def wrong(self: Group, name: str) -> Machine | None:
        own = find(self, name)
        return own or next(filter(None, (find(g, name) for g in self.orchestrator.groups)), None)

    patch.setattr(Group, "_find", wrong)


def stop_at_once(patch: pytest.MonkeyPatch) -> None:
    """A stop does not handle what was accepted."""
    stop = Machine._stop
    patch.setattr(Machine, "_stop", lambda self, **_: stop(self, drain=False, timeout_s=None))


def handle_twice(patch: pytest.MonkeyPatch) -> None:
    """Mail for a busy machine is taken twice."""
    accept = Worker._accept

    def wrong(self: Worker, item: Any) -> Any:
        outcome = accept(self, item)
        if self._mailbox and self._mailbox[-1] is item and isinstance(item, Event):
            self._mailbox.append(item)
        return outcome

    patch.setattr(Worker, "_accept", wrong)


def last_in_line_first(patch: pytest.MonkeyPatch) -> None:
    """Senders in line are let in from the wrong end."""
    admit = Worker._admit

    def wrong(self: Worker, mailbox: Any, line: Any) -> None:
        line.reverse()
        admit(self, mailbox, line)
        line.reverse()

    patch.setattr(Worker, "_admit", wrong)


@pytest.mark.parametrize(
    ("plant", "rules"),
    [
        (newest_first, {"C2"}),
        (do_not_wait, {"C5"}),
        (lose_on_growth, {"C4", "C8"}),
        (run_late_always, {"C6"}),
        (keep_silent_on_release, {"C7"}),
        (look_everywhere, {"C1"}),
        (stop_at_once, {"C4"}),
        (handle_twice, {"C3"}),
        (last_in_line_first, {"C2"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_defect_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], rules: set[str]
):
    plant(monkeypatch)
    reported: set[str] = set()
    for number in range(40):
        reported |= {found[:2] for found in broken(Orchestra(number).run())}
        if reported & rules:
            return
    pytest.fail(f"40 seeds did not find {sorted(rules)}; reported: {sorted(reported)}")
