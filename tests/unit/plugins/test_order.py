"""A run on several workers begins with its longest tests."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.plugins import order


def item(path: str, *marks: str) -> Any:
    return SimpleNamespace(path=Path(path), get_closest_marker=lambda name: name in marks or None)


QUICK = item("tests/cli/test_output.py")
LONG = item("tests/process/test_fleet.py", "process", "timeout")
SEEDS = item("tests/simulation/test_seeds.py", "timeout")
FOUND = item("tests/simulation/test_defects.py")
LAST = item("tests/unit/test_turns.py")


def test_workers_begin_with_simulations_and_then_with_what_takes_long():
    items = [QUICK, LONG, SEEDS, FOUND, LAST]
    order.pytest_collection_modifyitems(SimpleNamespace(workerinput={}), items)
    assert items == [SEEDS, FOUND, LONG, QUICK, LAST]


def test_without_workers_tests_stay_in_the_order_of_their_files():
    items = [QUICK, LONG, SEEDS, FOUND, LAST]
    order.pytest_collection_modifyitems(SimpleNamespace(), items)
    assert items == [QUICK, LONG, SEEDS, FOUND, LAST]
