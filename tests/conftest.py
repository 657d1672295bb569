"""What every test shares.

Owns nothing but the list of plugins: ``asyncio_tests`` runs coroutines, ``service_tests`` gives the
fixtures for real servers and reports those that could not be had, ``backends`` names those that
took part, ``garbage`` spares the tests themselves from collections, ``lateness`` says how late the
machine was, ``order`` begins with the longest, ``scratch`` keeps files in memory, ``seeds`` fixes
what is left to chance, ``selection`` keeps the long forms for ``make soak``, ``signals`` lets tests
interrupt what they start.
"""

from __future__ import annotations

import pytest

# Before the first import of the suites, or their asserts would say nothing but "AssertionError".
pytest.register_assert_rewrite("outlive.testing.conformance")

pytest_plugins = (
    "tests.plugins.asyncio_tests",
    "tests.plugins.backends",
    "tests.plugins.garbage",
    "tests.plugins.lateness",
    "tests.plugins.order",
    "tests.plugins.scratch",
    "tests.plugins.seeds",
    "tests.plugins.selection",
    "tests.plugins.service_tests",
    "tests.plugins.signals",
)
