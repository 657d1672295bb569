"""Fixtures for tests of flows: a store for each test, and a world whose time skips by itself.

A pytest plugin, which ``conftest.py`` names:

    pytest_plugins = ["outlive.testing.flows"]
"""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.testing.world import World


@pytest.fixture
def outlive_url(tmp_path: Path) -> str:
    """The URL of an empty store of this test alone: a file, gone with the test's folder."""
    return f"sqlite:///{tmp_path / 'outlive.db'}"


@pytest.fixture
def outlive_world() -> World:
    """A store in memory, hosts that can be crashed, and time that skips: see ``World``."""
    return World()
