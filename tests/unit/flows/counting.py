"""How much our own code does, counted in lines that are run: the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(act: Callable[[], object]) -> int:
    """How many lines of ``outlive.flows`` are run by ``act``, each turn of a loop anew."""
    count = 0

    def line(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return line

    def call(frame: FrameType, _event: str, _arg: Any) -> Any:
        return line if "/outlive/flows/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def grows_as_its_input(act: Callable[[int], Callable[[], object]], size: int = 100) -> bool:
    """Whether what ``act`` makes for a size takes about twice as much for twice of it.

    Four times as much, if each were held against all others.
    """
    once, twice = lines_run(act(size)), lines_run(act(2 * size))
    return twice < 2.2 * once
