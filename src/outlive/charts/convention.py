"""The one calling convention of users' functions, inspected once, when a chart is loaded.

A function is given what its parameters name: ``context``, ``event``, ``params`` and so on, in any
order. A function none of whose parameters has such a name is called by position instead, in the
order of the names. Nothing is inspected while a chart runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from outlive.errors import UsageError

PURE = ("context", "event", "params")
ACTION = ("context", "event", "params", "actor", "enqueue", "check")
SERVICE = ("input", "send", "receive", "id", "actor")

Adapted = Callable[..., Any]


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the parameters that a caller has to give, or may by name."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # A function written in C that says nothing about itself.
        return ()
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return tuple(
        parameter.name for parameter in signature.parameters.values() if parameter.kind not in kinds
    )


def picks(function: Callable[..., Any], names: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Which of ``names`` the function is to be given, in the order of its parameters.

    Raises:
        UsageError: It asks for something that is not to be had.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    own = [item for item in signature.parameters.values() if item.kind not in kinds]
    needed = [item for item in own if item.default is inspect.Parameter.empty]
    known = [item.name for item in own if item.name in names]
    strange = [item.name for item in needed if item.name not in names]
    if not strange:
        return tuple(known)
    if known or len(strange) > len(names) or any(_by_name_only(item) for item in needed):
        raise UsageError(
            f"{what} has unknown parameters {', '.join(map(repr, strange))}; it can take "
            f"{', '.join(names)} by name, or all parameters by position in that order"
        )
    return names[: len(strange)]


def _by_name_only(parameter: inspect.Parameter) -> bool:
    return parameter.kind is inspect.Parameter.KEYWORD_ONLY


def adapt(function: Callable[..., Any], names: tuple[str, ...], what: str) -> Adapted:
    """A function of all ``names``, by position, that passes on what ``function`` asks for.

    Raises:
        UsageError: It asks for something that is not to be had.
    """
    chosen = picks(function, names, what)
    if _takes_by_name_only(function):
        return _by_name(function, names, chosen)
    places = tuple(names.index(name) for name in chosen)
    if names == PURE:
        return _pure(function, places)
    return lambda *given: function(*[given[place] for place in places])


def _takes_by_name_only(function: Callable[..., Any]) -> bool:
    try:
        own = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(_by_name_only(item) for item in own)


def _by_name(
    function: Callable[..., Any], names: tuple[str, ...], chosen: tuple[str, ...]
) -> Adapted:
    places = {name: names.index(name) for name in chosen}
    return lambda *given: function(**{name: given[place] for name, place in places.items()})


def _pure(function: Callable[..., Any], places: tuple[int, ...]) -> Adapted:
    # Guards and assigns run several times in every step: each common shape has its own call.
    def nothing(_context: Any, _event: Any, _params: Any) -> Any:
        return function()

    def context_only(context: Any, _event: Any, _params: Any) -> Any:
        return function(context)

    def event_only(_context: Any, event: Any, _params: Any) -> Any:
        return function(event)

    def context_and_event(context: Any, event: Any, _params: Any) -> Any:
        return function(context, event)

    def some(*given: Any) -> Any:
        return function(*[given[place] for place in places])

    shapes: dict[tuple[int, ...], Adapted] = {
        (0, 1, 2): function,
        (): nothing,
        (0,): context_only,
        (1,): event_only,
        (0, 1): context_and_event,
    }
    return shapes.get(places, some)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await: a coroutine function, or an object with one."""
    # Its own method is wanted, not whether it can be called.
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def refuse_async(function: Callable[..., Any], what: str) -> None:
    """Insist that ``function`` is a plain one.

    Raises:
        UsageError: It is a coroutine function; a decision cannot wait.
    """
    if is_async(function) or inspect.isasyncgenfunction(function):
        raise UsageError(
            f"{what} is async; guards, assigns, delays and other decisions must be plain "
            "functions: await in an action or a service"
        )
