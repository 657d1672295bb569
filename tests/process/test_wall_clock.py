"""What a step of the machine's wall clock excuses, and what it does not."""

from __future__ import annotations

from types import SimpleNamespace

from tests.process.histories import violations_of
from tests.process.wall_clock import STEP_S, backward_steps, forward_steps, read_offset

STEADY = [(at / 10, 1000.0 + 0.0001 * at) for at in range(20)]
STEPPED = [(at, offset + (0.3 if at >= 1.0 else 0.0)) for at, offset in STEADY]


def owner(name: str, token: int, at: float, deadline: float, readings) -> SimpleNamespace:
    """An actor that was granted a key once, and never released it."""
    said = {"event": "granted", "key": "k", "grant": name, "token": token}
    return SimpleNamespace(
        name=name,
        heard=[{**said, "asked": at, "at": at, "deadline": deadline}],
        readings=readings,
        process=SimpleNamespace(returncode=0),
    )


def overlapping(readings, tokens=(1, 2)):
    first, second = tokens
    return [owner("a", first, 0.5, 1.3, readings), owner("b", second, 1.1, 1.9, readings)]


def rules(actors, store):
    return {violation.rule for violation in violations_of(actors, store)}


def test_a_step_forward_is_found_with_its_time():
    ((before, after, ahead),) = forward_steps(reversed(STEPPED))
    assert before < 1.0 <= after
    assert abs(ahead - 0.3) < STEP_S


def test_drift_and_steps_back_are_no_steps_forward():
    assert forward_steps(STEADY) == []
    assert forward_steps((at, -offset) for at, offset in STEPPED) == []


def test_a_step_back_is_found_and_is_none_forward():
    back = [(at, -offset) for at, offset in STEPPED]
    ((before, after, behind),) = backward_steps(back)
    assert before < 1.0 <= after
    assert abs(behind - 0.3) < STEP_S
    assert backward_steps(STEPPED) == []
    assert backward_steps(STEADY) == []


def test_two_owners_are_reported_while_the_clock_is_steady():
    assert rules(overlapping(STEADY), "postgres") == {"L3"}


def test_a_step_excuses_two_owners_only_on_stores_that_follow_the_wall_clock(capsys):
    assert rules(overlapping(STEPPED), "postgres") == set()
    assert "was set forward" in capsys.readouterr().out
    assert rules(overlapping(STEPPED), "redis") == set()
    assert rules(overlapping(STEPPED), "sqlite") == {"L3"}


def test_a_step_excuses_no_token_that_was_granted_twice():
    assert "L1" in rules(overlapping(STEPPED, tokens=(7, 7)), "postgres")


def test_the_clocks_of_this_machine_can_be_read():
    readings = [reading for reading in (read_offset() for _ in range(100)) if reading is not None]
    assert readings
