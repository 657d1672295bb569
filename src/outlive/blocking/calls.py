"""How the façade calls its twin: on the portal, or in a transaction of its caller."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from outlive.errors import UsageError
from outlive.runtime.portal import Portal

P = ParamSpec("P")
T = TypeVar("T")


def awaited(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """``method`` of the twin for callers that do not await: the same parameters and promises."""

    @functools.wraps(method)
    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.run(method(self._twin, *args, **kwargs))

    return run


def parameters_of(
    twin: Callable[P, object],
) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Give a function of the façade the parameters of its twin, which it passes on."""

    def dressed(function: Callable[..., T]) -> Callable[P, T]:
        return functools.update_wrapper(function, twin, assigned=(), updated=())

    return dressed


def run_with(portal: Portal, coroutine: Coroutine[Any, Any, T], tx: object) -> T:
    """Run on the portal; with a transaction on the caller's thread, as most of them demand.

    Raises:
        UsageError: The transaction is an asynchronous one.
    """
    if tx is None:
        return portal.run(coroutine)
    try:
        # With a synchronous connection nothing in there waits, so one step is the whole of it.
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise UsageError("an asynchronous transaction needs outlive.connect, not outlive.blocking")
