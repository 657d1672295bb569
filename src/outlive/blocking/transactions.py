"""How the façade joins a transaction of its caller: on the caller's thread, not on the portal's."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from outlive.errors import UsageError
from outlive.runtime.portal import Portal

T = TypeVar("T")


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
