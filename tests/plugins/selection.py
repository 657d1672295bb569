"""Keeps tests marked ``soak`` out of a run unless ``OUTLIVE_SOAK=1``, as ``make soak`` sets it."""

from __future__ import annotations

import os

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("OUTLIVE_SOAK") == "1":
        return
    long_forms = [item for item in items if item.get_closest_marker("soak")]
    if long_forms:
        config.hook.pytest_deselected(items=long_forms)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]
