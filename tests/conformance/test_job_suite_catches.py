"""The suite of jobs finds planted defects: each one fails the sentences that forbid it."""

from __future__ import annotations

import itertools

import pytest

from holdfast.testing import ManualClock
from holdfast.testing.conformance import JobStoreSuite, Lab
from tests.conformance.planted_job_defects import DEFECTS, Defective, PlantedJobFactory

_numbers = itertools.count()
CASES = [(defect, sentence) for defect in DEFECTS for sentence in defect.caught_by]


def judge(defect: type[Defective], sentence: str) -> str:
    """Run one test of the suite against one store: ``passed``, ``failed`` or ``skipped``."""
    url = f"memory://planted-jobs-{next(_numbers)}"
    lab = Lab(factory=PlantedJobFactory(defect), url=url, clock=ManualClock())
    try:
        getattr(JobStoreSuite(), sentence)(lab)
    except pytest.skip.Exception:
        return "skipped"
    except (Exception, pytest.fail.Exception):
        return "failed"
    return "passed"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """What never comes need not be waited for as long as on a real store."""
    monkeypatch.setattr("holdfast.testing.conformance.wakeups.ARRIVES_WITHIN_S", 0.2)
    monkeypatch.setattr("holdfast.testing.conformance.job_waiting.CAUGHT_UP_WITHIN_S", 0.5)
    monkeypatch.setattr("holdfast.testing.conformance.lab.LIMIT_S", 5.0)


@pytest.mark.parametrize(("defect", "sentence"), CASES)
def test_a_planted_defect_is_caught(defect: type[Defective], sentence: str):
    assert judge(defect, sentence) == "failed"


@pytest.mark.parametrize("sentence", sorted({sentence for _, sentence in CASES}))
def test_the_sound_store_passes_the_same_sentence(sentence: str):
    assert judge(Defective, sentence) == "passed"


def test_every_defect_names_who_catches_it():
    assert len(DEFECTS) >= 30
    assert [defect.__name__ for defect in DEFECTS if not defect.caught_by] == []
