"""Lines give the smallest first, rolls keep the order of arrival, and both forget what left."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from outlive.drivers.memory.lines import Line, Roll

pytestmark = pytest.mark.whitebox


@dataclass
class Row:
    name: str
    number: int = 0


def drain(line: Line[str]) -> list[str]:
    taken = []
    while (first := line.first()) is not None:
        taken.append(first[1])
        line.remove(first[1])
    return taken


def test_a_line_gives_the_smallest_key_first():
    line = Line[str]()
    line.add("late", 3, 0)
    line.add("early", 1, 0)
    line.add("second", 1, 1)
    assert line.first() == ((1, 0), "early")
    assert drain(line) == ["early", "second", "late"]
    assert line.first() is None


def test_who_is_added_again_moves():
    line = Line[str]()
    line.add("x", 1)
    line.add("y", 2)
    line.add("x", 3)
    assert len(line) == 2
    assert drain(line) == ["y", "x"]


def test_who_left_is_not_found_however_often_the_line_was_changed():
    line = Line[str]()
    for turn in range(1000):
        line.add(f"i{turn % 10}", turn)
    line.remove("i3")
    line.remove("i3")
    assert "i3" not in list(line)
    assert drain(line) == ["i0", "i1", "i2", "i4", "i5", "i6", "i7", "i8", "i9"]


def test_a_roll_is_in_order_of_arrival():
    roll = Roll[Row]()
    rows = [Row(name) for name in "abcd"]
    for row in rows:
        roll.append(row)
    assert [row.number for row in rows] == [1, 2, 3, 4]
    assert [row.name for row in roll.after(0)] == list("abcd")
    assert [row.name for row in roll.after(2)] == list("cd")
    assert list(roll.after(4)) == []


def test_struck_rows_are_gone_and_their_numbers_stay_places():
    roll = Roll[Row]()
    rows = [Row(str(number)) for number in range(1, 101)]
    for row in rows:
        roll.append(row)
    for row in rows[:90]:
        roll.strike(row)
    assert [row.number for row in roll.after(0)] == list(range(91, 101))
    assert [row.number for row in roll.after(50)] == list(range(91, 101))
    assert [row.number for row in roll.after(95)] == [96, 97, 98, 99, 100]
    newest = Row("new")
    roll.append(newest)
    assert newest.number == 101
