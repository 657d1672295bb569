"""Reads all files at once, and forgets them afterwards.

Their syntax trees are a million objects, none of them garbage. A collector that looked at them
would take longer than the tests, and go on looking in every later test of the run.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.architecture import sources


@pytest.fixture(scope="package", autouse=True)
def trees_without_collections() -> Iterator[None]:
    gc.disable()
    yield
    sources.forget()
    gc.enable()
