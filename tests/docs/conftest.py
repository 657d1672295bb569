"""Pages are run by forks of one process, which has imported what their examples import."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process.nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    found = Nursery()
    yield found
    found.close()
