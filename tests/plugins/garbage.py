"""Spares what collecting the tests made from every collection of garbage after it.

Thousands of tests are hundreds of thousands of objects, and all of them stay until the run ends.
Looking through them took a fifth of a second each time, many times in each worker; nobody looks
before all of them are there.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, Any, Any]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
