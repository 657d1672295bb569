"""Simulations make thousands of leases fail on purpose: their log lines would say nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def quiet_log() -> Iterator[None]:
    logger = logging.getLogger("outlive")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)
