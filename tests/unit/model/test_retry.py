"""The retry policy: how long, how often, for which errors, and as JSON."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive import LeaseExpired, Retry, UsageError
from outlive.serialization.failures import name_of


class CardDeclined(ValueError):
    """What a shop might raise."""


def test_pauses_grow_and_stop_growing():
    policy = Retry(first=2, factor=3, longest=50, jitter=0)
    assert [policy.delay_s(n, ValueError(), 0.5) for n in range(1, 6)] == [2, 6, 18, 50, 50]


def test_jitter_varies_a_pause_both_ways():
    policy = Retry(first=10, jitter=0.2)
    assert [policy.delay_s(1, ValueError(), chance) for chance in (0, 0.5, 1)] == [8, 10, 12]


def test_attempts_end():
    policy = Retry(max_attempts=3)
    assert policy.delay_s(2, ValueError(), 0.5) is not None
    assert policy.delay_s(3, ValueError(), 0.5) is None
    assert Retry(max_attempts=1).delay_s(1, ValueError(), 0.5) is None


def test_errors_are_known_by_class_and_by_name():
    for kind in (ValueError, "ValueError", name_of(CardDeclined), CardDeclined):
        assert Retry(on=(kind,)).covers(CardDeclined())
        assert not Retry(never=(kind,)).covers(CardDeclined())
        assert not Retry(on=(kind,)).covers(OSError())
    assert Retry(on=("outlive.errors.LeaseLost",)).covers(LeaseExpired("k"))
    assert not Retry().covers(SystemExit())


def test_errors_that_were_only_named_are_known_by_that_name():
    assert Retry().covers("java.io.IOException")
    assert Retry().covers(None)
    assert not Retry(never=("Busy",)).covers("Busy")
    assert not Retry(on=(KeyError,)).covers("Busy")
    assert Retry(on=("Busy",)).covers("Busy")


@given(
    st.builds(
        Retry,
        max_attempts=st.integers(1, 1000),
        first=st.floats(0, 1e4),
        factor=st.floats(1, 1000),
        longest=st.floats(0, 1e6),
        jitter=st.floats(0, 1),
        on=st.lists(st.sampled_from([Exception, "a.B", KeyError]), max_size=3).map(tuple),
        never=st.lists(st.sampled_from([OSError, "c.D"]), max_size=3).map(tuple),
    ),
    st.integers(1, 10_000),
    st.floats(0, 1),
)
def test_json_says_everything(policy, failures, chance):
    again = Retry().overridden(policy.to_json())
    assert again.to_json() == policy.to_json()
    for error in (ValueError(), KeyError(), OSError(), "a.B", "c.D", None):
        assert again.covers(error) == policy.covers(error)
        delay_s = policy.delay_s(failures, error, chance)
        assert again.delay_s(failures, error, chance) == delay_s
        assert delay_s is None or 0 <= delay_s <= 2e6


def test_json_may_say_a_part():
    policy = Retry(first=timedelta(minutes=1), never=(KeyError,))
    changed = policy.overridden('{"max_attempts": 3}')
    assert (changed.max_attempts, changed.first, changed.never) == (3, policy.first, (KeyError,))
    assert policy.overridden("{}") is policy


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        '{"max_attempts": "3"}',
        '{"max_attempts": 0}',
        '{"colour": "red"}',
        '{"first": -1}',
        '{"factor": 0.5}',
        '{"factor": true}',
        '{"jitter": 2}',
        '{"on": [3]}',
        '{"never": {"a": 1}}',
        '{"on": [""]}',
        "[" * 2000,
    ],
)
def test_json_is_read_strictly(text):
    with pytest.raises(UsageError):
        Retry().overridden(text)


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": 0},
        {"max_attempts": 1.5},
        {"first": -1},
        {"longest": float("inf")},
        {"factor": "2"},
        {"jitter": -0.1},
        {"on": 3},
        {"on": (int,)},
        {"never": ("x" * 300,)},
        {"on": (ValueError,) * 51},
        {"first": 1e13},
        {"longest": 1e13},
    ],
)
def test_wrong_policies_are_refused(options):
    with pytest.raises(UsageError):
        Retry(**options)


def test_one_kind_needs_no_tuple():
    assert Retry(on=ValueError, never="a.B").on == (ValueError,)
