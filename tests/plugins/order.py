"""Gives the longest tests to workers of pytest-xdist first.

A worker gets an equal part of the list, works on it from its beginning, and takes half of what
another still has, from its end, when it has none left. What stands at the end of a part may begin
when all others are done. At the beginning, the simulations keep one worker and one processor busy
while tests of the other workers wait for clocks and servers.
"""

from __future__ import annotations

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Who runs them in one process reads them in the order of the files.
    if hasattr(config, "workerinput"):
        items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    """Simulations, then what has a time limit of its own because it takes long, then the rest."""
    if item.path.parent.name == "simulation":
        return 0
    return 1 if item.get_closest_marker("timeout") else 2
