"""Ticks: which one is due, and which were missed."""

from __future__ import annotations

from outlive.model.ticks import decide


def test_the_first_tick_of_all_is_the_next_one():
    decision = decide(1005.0, 10.0, None)
    assert decision.run is None
    assert decision.wait_s == 5.0
    assert decision.last == 100


def test_a_due_tick_runs_late_rather_than_never():
    decision = decide(1019.0, 10.0, 100)
    assert decision.run is not None
    assert (decision.run.number, decision.run.missed) == (101, 0)


def test_missed_ticks_are_counted_and_not_run():
    decision = decide(1055.0, 10.0, 100)
    assert decision.run is not None
    assert (decision.run.number, decision.run.missed) == (105, 4)


def test_a_tick_that_ran_does_not_run_again_when_the_clock_goes_back():
    decision = decide(1009.0, 10.0, 101)
    assert decision.run is None
    assert decision.wait_s == 11.0


def test_a_host_whose_clock_is_behind_waits_for_what_its_peers_have_run():
    decision = decide(1000.0, 0.5, 2003)
    assert decision.run is None
    assert decision.last == 2003


def test_a_clock_that_was_far_ahead_does_not_stop_the_schedule():
    decision = decide(1005.0, 10.0, 9000)
    assert decision.run is None
    assert decision.last == 100
