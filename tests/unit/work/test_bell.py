"""The bell of work: rings reach whom they concern, and those who may have missed one look."""

from __future__ import annotations

import logging

import pytest

from outlive.ports.hearing import Listeners, NoWakeups
from outlive.ports.wakeups import MISSED, Wakeup
from outlive.work.bell import Bell

pytestmark = pytest.mark.whitebox

LOG = logging.getLogger(__name__)


class Hints(NoWakeups):
    """Hints that a test gives."""

    def __init__(self) -> None:
        self._listeners = Listeners(LOG)
        self.subscribe = self._listeners.add
        self.give = self._listeners.tell


def test_who_may_have_missed_a_ring_looks_at_all_that_it_waits_for():
    hints, rung = Hints(), []
    bell = Bell(hints, LOG)
    end = bell.listen(("a", "b"), rung.append)
    hints.give(Wakeup("work/a"))
    hints.give(Wakeup("work/c"))
    assert rung == ["a"]
    hints.give(MISSED)
    assert rung == ["a", "a", "b"]
    end()
    hints.give(MISSED)
    assert rung == ["a", "a", "b"]
