"""Two decorators of an app on one function: those pairs are refused that cannot do what they say.

Called outside of flow code, a flow or a step is its plain function, of which nothing is recorded.
So a schedule or a queue that ran a flow would silently do without all that a flow is for.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MethodType
from typing import Any, cast

from outlive.errors import UsageError
from outlive.flows.flow import Flow, called_as
from outlive.flows.step import Step
from outlive.work.handler import Handler


def refuse_made(function: object, decorator: str) -> None:
    """Refuse what another decorator made, if ``decorator`` above it would not do what it says.

    Raises:
        UsageError: It is a flow, or a step or a handler of which this cannot be made; it says what
            to do instead.
    """
    if isinstance(function, Flow):
        flow = cast("Flow[..., Any]", function)
        kind, name = "flow", flow.name
        called = called_as(flow.function, name)
        fix = (
            "remove one of the two decorators"
            if decorator == "flow"
            else _instead(name, called, decorator)
        )
    elif isinstance(function, (Step, Handler)):
        made = cast("Step[..., Any] | Handler[Any, Any]", function)
        if _runs_plainly(decorator, is_async=made.is_async):
            return
        kind, name = "step" if isinstance(function, Step) else "handler", made.name
        fix = "call it from another function"
        if decorator == kind:
            called = called_as(made.function, name)
            fix = f"pass the function itself, `app.{kind}(…)({called}.function)`"
        elif (decorator, kind) == ("flow", "handler"):
            fix = "call `await host.flows.start(…)` in the handler to start a flow"
    else:
        return
    verb = "takes" if decorator in ("flow", "step") else "runs"
    raise UsageError(f"@app.{decorator} {verb} plain functions, but {name!r} is a {kind}: {fix}")


def _runs_plainly(decorator: str, *, is_async: bool) -> bool:
    """Whether a step or a handler does below ``decorator`` what its function would do there."""
    match decorator:
        case "every":
            return True
        case "leader":
            # What it returns is awaited.
            return is_async
        case "cron":
            # A coroutine would be taken for the result.
            return not is_async
        case _:
            # The others ask for its types and its name, and would hear of those of the wrapper.
            return False


def refuse_run_plainly(function: object, name: str, run_by: Iterable[tuple[str, object]]) -> None:
    """Refuse to make a flow of what is run as a plain function already.

    ``run_by`` are the functions that an app runs, each with the decorator that says so.

    Raises:
        UsageError: One of them is this.
    """
    for decorator, known in run_by:
        if _is_same(known, function):
            called = called_as(function, name)
            raise UsageError(
                f"@app.{decorator} below @app.flow runs {called!r} as a plain function and "
                f"starts no flow: remove it, and {_instead(name, called, decorator)}"
            )


def _is_same(known: object, function: object) -> bool:
    """Whether these are one function; each look at a method makes another object."""
    if isinstance(known, MethodType) and isinstance(function, MethodType):
        return known.__func__ is function.__func__ and known.__self__ is function.__self__
    return known is function


def _instead(name: str, called: str, decorator: str) -> str:
    """What does for the flow ``name`` what the decorator does for a function.

    Code calls it ``called``, which is another name where the decorator gave it one.
    """
    if decorator in ("cron", "every"):
        return f"call `await host.flows.schedule({name!r}, {called}, {decorator}=…)`"
    if decorator == "step":
        return "call the flow directly in flow code, which starts a child flow; remove @app.step"
    return f"call `await host.flows.start({called}, …)` in a separate function"
