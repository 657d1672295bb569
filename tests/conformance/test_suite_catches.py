"""The suite finds planted defects: each one fails the sentences that forbid it."""

from __future__ import annotations

import itertools

import pytest

from holdfast.testing import ManualClock
from holdfast.testing.conformance import Lab, LeaseStoreSuite
from tests.conformance.planted_defects import DEFECTS, Defective, PlantedFactory

_numbers = itertools.count()
CASES = [(defect, sentence) for defect in DEFECTS for sentence in defect.caught_by]


def judge(defect: type[Defective], sentence: str) -> str:
    """Run one test of the suite against one store: ``passed``, ``failed`` or ``skipped``."""
    url = f"memory://planted-{next(_numbers)}"
    lab = Lab(factory=PlantedFactory(defect), url=url, clock=ManualClock())
    try:
        getattr(LeaseStoreSuite(), sentence)(lab)
    except pytest.skip.Exception:
        return "skipped"
    except (Exception, pytest.fail.Exception):
        return "failed"
    return "passed"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """A hint that never comes need not be waited for as long as on a real store."""
    monkeypatch.setattr("holdfast.testing.conformance.wakeups.ARRIVES_WITHIN_S", 0.2)


@pytest.mark.parametrize(("defect", "sentence"), CASES)
def test_a_planted_defect_is_caught(defect: type[Defective], sentence: str):
    assert judge(defect, sentence) == "failed"


@pytest.mark.parametrize("sentence", sorted({sentence for _, sentence in CASES}))
def test_the_sound_store_passes_the_same_sentence(sentence: str):
    assert judge(Defective, sentence) == "passed"


def test_every_defect_names_who_catches_it():
    assert len(DEFECTS) >= 6
    assert [defect.__name__ for defect in DEFECTS if not defect.caught_by] == []
