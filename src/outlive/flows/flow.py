"""``Flow``: a durable orchestration in plain ``async def``.

A value of the ``App``'s registry; needs no connection. Called by flow code it starts a child flow,
and what it returns is awaited; called by anything else it is the plain function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, cast

from outlive.errors import UsageError
from outlive.flows.arguments import Arguments
from outlive.flows.calls import ChildCall
from outlive.flows.running import running_flow
from outlive.flows.step import check_definition
from outlive.model.options import Duration, seconds

P = ParamSpec("P")
R = TypeVar("R")

# How long an ended flow can be asked for its result, unless it says otherwise.
RETENTION_S = 7 * 86_400.0


class Flow(Generic[P, R]):
    """A flow. Made by ``App.flow``."""

    def __init__(
        self,
        function: Callable[P, Coroutine[Any, Any, R]],
        *,
        name: str | None = None,
        retention: Duration = RETENTION_S,
    ) -> None:
        if not callable(function):
            raise UsageError(
                "app.flow must decorate an `async def` or be given options such as name=…, not "
                f"{cast('object', function)!r}"
            )
        self.name = check_definition(name or getattr(function, "__name__", ""), "flow")
        call = cast("Any", getattr(type(function), "__call__", None))  # noqa: B004
        if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)):
            called = called_as(function, self.name)
            raise UsageError(f"flow {self.name!r}: write it as `async def {called}(…)`")
        self.function = function
        self.retention_s = seconds(retention, "retention", zero=False)
        self.arguments = Arguments(function, f"flow {self.name}")
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> ChildCall[R]:
        """In flow code: start a child, and return what to await. Elsewhere: call the function.

        Raises:
            UsageError: In flow code, the arguments cannot be stored as JSON.
        """
        run = running_flow()
        if run is None:
            return cast("Any", self.function(*args, **kwargs))
        return run.asking.child(self, args, kwargs)

    def __repr__(self) -> str:
        return f"<Flow {self.name!r}>"


def called_as(function: object, name: str) -> str:
    """What code calls a function that is registered as ``name``, where it has a name of its own."""
    called = getattr(function, "__name__", "")
    return called if called.isidentifier() else name
