"""Notes: always one while a host waits, asked for anew only when it would not last."""

from __future__ import annotations

import pytest

from outlive.work.noting import Noting

pytestmark = pytest.mark.whitebox


def test_a_note_is_asked_for_as_long_as_three_looks_and_always_outlives_the_next():
    noting, until, long_ones = Noting(), 0.0, 0
    for look in range(30):
        now = look * 30.0 + look * 0.05
        wait_s = noting.wait_s(now, 30.0)
        long_ones += wait_s > 31.0
        until = max(until, now + wait_s)
        # The next look, and one that comes a little late, find it standing.
        assert until >= now + 31.0
    assert long_ones == 10


def test_a_note_that_was_used_up_is_asked_for_anew():
    noting = Noting()
    assert noting.wait_s(0.0, 5.0) > 6.0
    assert noting.wait_s(0.1, 5.0) == 6.0
    noting.gone()
    assert noting.wait_s(0.2, 5.0) > 6.0
