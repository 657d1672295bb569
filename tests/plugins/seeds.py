"""Fixed seeds in a test run, random ones in the long forms, so that a run can be repeated.

Owns the ``seed`` of tests that leave something to chance (``OUTLIVE_SEED=n`` sets it, the output of
a failure names it) and the profile of hypothesis. A test whose seed is drawn anew finds its
failures on a machine where nobody looks for them; that is what ``make soak`` is for.
"""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import settings

SOAK = os.environ.get("OUTLIVE_SOAK") == "1"
_FIXED_SEED = 782592


@pytest.fixture
def seed() -> int:
    """What the random choices of a test begin with."""
    drawn = random.randrange(10**6) if SOAK else _FIXED_SEED
    chosen = int(os.environ.get("OUTLIVE_SEED", drawn))
    print(f"OUTLIVE_SEED={chosen}")
    return chosen


def pytest_configure() -> None:
    # No deadline: how long an example takes is the machine's business.
    settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
    settings.register_profile("soak", deadline=None, max_examples=1000)
    settings.load_profile("soak" if SOAK else "fixed")
