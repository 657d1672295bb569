"""A note that is new is doubted twice; who is on his way is waited for, with patience."""

from __future__ import annotations

import pytest

from outlive.drivers.postgres import doubts
from outlive.drivers.postgres.doubts import Doubts

pytestmark = pytest.mark.whitebox

LONG_US = 60_000_000


def test_a_new_note_is_doubted_twice():
    found = Doubts()
    found.noted(["a"], 100.0)
    pauses = [found.pause_s(["a"], now, wait_us=LONG_US) for now in (100.0, 100.25, 102.75, 103.0)]
    assert pauses == [0.25, pytest.approx(2.5), None, None]


def test_looks_that_come_for_other_reasons_end_no_doubt():
    found = Doubts()
    found.noted(["a"], 100.0)
    for number in range(20):
        assert found.pause_s(["a"], 100.0 + number / 100, wait_us=LONG_US) <= 0.25
    assert found.pause_s(["a"], 100.3, wait_us=LONG_US) == pytest.approx(2.45)


def test_the_newest_of_several_notes_decides():
    found = Doubts()
    found.noted(["a"], 100.0)
    found.noted(["b"], 101.0)
    assert found.pause_s(["a", "b"], 101.0, wait_us=LONG_US) == pytest.approx(0.25)
    assert found.pause_s(["a"], 101.0, wait_us=LONG_US) == pytest.approx(1.75)


def test_who_waits_a_moment_only_looks_again_by_himself():
    found = Doubts()
    found.noted(["a"], 100.0)
    assert found.pause_s(["a"], 100.0, wait_us=1_000_000) is None
    assert found.pause_s(["a"], 100.0, wait_us=LONG_US) == 0.25


def test_what_was_never_noted_here_is_not_doubted():
    assert Doubts().pause_s(["a"], 1.0, wait_us=LONG_US) is None
    assert Doubts().pause_s([], 1.0, wait_us=LONG_US) is None


def test_who_stays_on_his_way_is_asked_for_less_and_less():
    found = Doubts()
    assert not found.unseen(["a", "b"])
    pauses = [found.busy(["a"]) for _ in range(8)]
    assert pauses == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0])
    assert found.unseen(["a", "b"])
    assert not found.unseen(["b"])
    found.calm(["a"])
    assert not found.unseen(["a"])
    assert found.busy(["a"]) == pytest.approx(0.02)


def test_who_is_outrun_again_and_again_looks_less_and_less():
    found = Doubts()
    assert not found.behind(["a"])
    assert [found.outrun(["a"]) for _ in range(3)] == pytest.approx([0.02, 0.04, 0.08])
    assert not found.unseen(["a"])
    assert (found.behind(["a", "b"]), found.behind(["b"])) == (True, False)
    found.served(["a", "b"])
    assert not found.behind(["a", "b"])
    assert found.outrun(["a"]) == pytest.approx(0.02)


def test_what_somebody_keeps_locked_is_looked_at_every_ten_seconds():
    found = Doubts()
    assert [found.outrun(["a"]) for _ in range(11)][-3:] == pytest.approx([5.12, 10.0, 10.0])


def test_topics_without_end_are_forgotten(monkeypatch):
    monkeypatch.setattr(doubts, "_TOPICS_MAX", 3)
    found = Doubts()
    for number in range(20):
        found.noted([f"q{number}"], float(number))
        found.busy([f"q{number}"])
    assert len(found._noted) <= 5
    assert len(found._busy) <= 5
