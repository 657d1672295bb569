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
from outlive.flows.scanning import scan
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
        checked: bool = True,
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
        self.checked = checked
        """Whether it is refused to reach out of itself, here and while it runs."""
        self._unseen = checked
        self.check()
        self.retention_s = seconds(retention, "retention", zero=False)
        self.arguments = Arguments(function, f"flow {self.name}")
        update_wrapper(self, function)

    def check(self) -> None:
        """Look for the outside world in what was not looked at yet: all, then names of later.

        A function that is defined below the flow is unknown while this is made, and looked at when
        a host begins to run it.

        Raises:
            UsageError: Its code names a clock, dice, a thread or I/O; it says where, and the fix.
        """
        if not self._unseen:
            return
        found = scan(self.function)
        if found.finding is not None:
            source = found.finding.source
            raise UsageError(
                f"flow {self.name!r} would {source.deed.deed}: {found.finding}. Its code is run "
                f"again from its history after a crash: {source.deed.instead}. Who knows better "
                "marks that function with @outlive.unchecked, or defines the flow with "
                "checked=False"
            )
        self._unseen = found.unresolved

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
