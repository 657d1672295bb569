"""The experiment that tests a suite: stores with planted defects, and the sentences that find them.

Each defect is a class named for what is wrong with it; its ``caught_by`` names the tests of the
suite that must fail on it, and that a sound store must pass.
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import pytest

from outlive.testing import ManualClock
from outlive.testing.conformance import Lab

_numbers = itertools.count()


class CatchingCases:
    """What is required of every suite. A subclass names the suite and its defects.

    ``factory`` is called with a class of stores, and opens memory drivers that have such a store;
    ``sound`` is the control of the experiment.
    """

    suite: ClassVar[type]
    factory: ClassVar[type]
    sound: ClassVar[type]
    defects: ClassVar[tuple[type, ...]]
    at_least: ClassVar[int]

    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch):
        """What never comes need not be waited for as long as on a real store."""
        conformance = "outlive.testing.conformance"
        monkeypatch.setattr(f"{conformance}.wakeups.ARRIVES_WITHIN_S", 0.2)
        monkeypatch.setattr(f"{conformance}.wakeups.CAUGHT_UP_WITHIN_S", 0.5)
        monkeypatch.setattr(f"{conformance}.lab.LIMIT_S", 5.0)

    def pytest_generate_tests(self, metafunc: Any) -> None:
        pairs = [(defect, name) for defect in self.defects for name in defect.caught_by]
        if "defect" in metafunc.fixturenames:
            metafunc.parametrize(("defect", "sentence"), pairs)
        elif "sentence" in metafunc.fixturenames:
            metafunc.parametrize("sentence", sorted({name for _, name in pairs}))

    def judge(self, store: type, sentence: str) -> str:
        """Run one test of the suite against one store: ``passed``, ``failed`` or ``skipped``."""
        url = f"memory://planted-{next(_numbers)}"
        lab = Lab(factory=self.factory(store), url=url, clock=ManualClock())
        try:
            getattr(self.suite(), sentence)(lab)
        except pytest.skip.Exception:
            return "skipped"
        except (Exception, pytest.fail.Exception):
            return "failed"
        return "passed"

    def test_a_planted_defect_is_caught(self, defect: type, sentence: str):
        assert self.judge(defect, sentence) == "failed"

    def test_the_sound_store_passes_the_same_sentence(self, sentence: str):
        assert self.judge(self.sound, sentence) == "passed"

    def test_every_defect_names_who_catches_it(self):
        assert len(self.defects) >= self.at_least
        assert [defect.__name__ for defect in self.defects if not defect.caught_by] == []
