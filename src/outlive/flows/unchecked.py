"""``unchecked``: the mark on a function whose code is no matter for the scan of flows.

Owns the mark. It must never change what the function does, or what is refused while it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from outlive.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__outlive_unchecked__"


def unchecked(function: F) -> F:
    """Let ``@app.flow`` not read the code of this function, for a use of a clock that is no harm.

    Such as ``today = today or date.today()`` where flows always say which day it is. The function
    is returned as it is. Functions that it calls are not looked at on its account, and files,
    sockets, processes and threads are still refused while it runs in flow code.

    Raises:
        UsageError: It is no plain function. Put the mark next to ``def``, below other decorators.
    """
    if type(function) is not FunctionType:
        raise UsageError(
            f"unchecked marks a plain function, not {function!r}: put it right above the def, "
            "below other decorators"
        )
    # With the code that is meant: ``functools.wraps`` copies marks to wrappers, which are not.
    vars(function)[_MARK] = function.__code__
    return function


def is_unchecked(function: FunctionType) -> bool:
    """Whether this very function was marked."""
    return vars(function).get(_MARK) is function.__code__
