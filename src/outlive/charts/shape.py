"""The shape of a document: which keys may stand where, and what kind of thing each holds.

Finds everything that is out of shape and gives a copy without it, so that the rest can still be
compiled and judged in the same pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from outlive.charts.actions import Description
from outlive.charts.guards import And, Not, Or, StateIn
from outlive.charts.problems import Problems, at, did_you_mean

KINDS = ("atomic", "compound", "parallel", "final", "history")

# A message names what it found; it does not repeat the document.
SHOWN_MAX = 40

# Something to leave out: ``None`` is a value that documents use.
_NOTHING = object()

Checker = Callable[["Shape", Any, str], Any]


def checked(document: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """A copy of ``document`` that holds nothing out of shape."""
    return Shape(problems).state(document, "", _ROOT)


class Shape:
    """One pass over one document."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems

    def keys(self, given: Any, pointer: str, known: Mapping[str, Checker], what: str) -> Any:
        """A mapping whose keys are all in ``known``."""
        if not isinstance(given, Mapping):
            return self.wrong(pointer, what, "an object", given)
        found: dict[str, Any] = {}
        for key, value in cast("Mapping[Any, Any]", given).items():
            place = at(pointer, key)
            if key not in known:
                hint = did_you_mean(str(key), known)
                self.problems.add(place, f"{what} has no {key!r}{hint}")
                continue
            kept = known[key](self, value, place)
            if kept is not _NOTHING:
                found[key] = kept
        return found

    def wrong(self, pointer: str, what: str, wanted: str, given: Any) -> Any:
        """Note that something is of the wrong kind."""
        self.problems.add(pointer, f"{what} must be {wanted}, not {_shown(given)}")
        return _NOTHING

    def state(self, given: Any, pointer: str, known: Mapping[str, Checker]) -> dict[str, Any]:
        """A state, or an empty one where there is none."""
        found = self.keys(given, pointer, known, "a state")
        return {} if found is _NOTHING else found

    def named(self, given: Any, pointer: str, each: Checker, what: str) -> Any:
        """A mapping from names to things."""
        if not isinstance(given, Mapping):
            return self.wrong(pointer, what, "an object", given)
        found: dict[str, Any] = {}
        for key, value in cast("Mapping[Any, Any]", given).items():
            place = at(pointer, key)
            if not isinstance(key, str) or not key:
                self.problems.add(place, f"a name in {what} must be text that is not empty")
                continue
            kept = each(self, value, place)
            if kept is not _NOTHING:
                found[key] = kept
        return found

    def listed(self, given: Any, pointer: str, each: Checker) -> Any:
        """One thing, or a list of them."""
        if not isinstance(given, (list, tuple)):
            return each(self, given, pointer)
        kept = [each(self, one, at(pointer, n)) for n, one in enumerate(cast("list[Any]", given))]
        return [one for one in kept if one is not _NOTHING]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def _any(_shape: Shape, given: Any, _pointer: str) -> Any:
    return given


def _text(shape: Shape, given: Any, pointer: str) -> Any:
    if not isinstance(given, str) or not given:
        return shape.wrong(pointer, "this", "text that is not empty", given)
    return given


def _flag(shape: Shape, given: Any, pointer: str) -> Any:
    return (
        given if isinstance(given, bool) else shape.wrong(pointer, "this", "true or false", given)
    )


def _one_of(*choices: Any) -> Checker:
    def check(shape: Shape, given: Any, pointer: str) -> Any:
        if given in choices:
            return given
        hint = did_you_mean(str(given), [str(choice) for choice in choices])
        wanted = "one of " + ", ".join(str(choice) for choice in choices)
        shape.problems.add(pointer, f"this must be {wanted}, not {_shown(given)}{hint}")
        return _NOTHING

    return check


def _texts(shape: Shape, given: Any, pointer: str) -> Any:
    return shape.listed(given, pointer, _text)


def _target(shape: Shape, given: Any, pointer: str) -> Any:
    if given is None or given == "":
        return None
    return shape.listed(given, pointer, _text)


def _action(shape: Shape, given: Any, pointer: str) -> Any:
    if isinstance(given, Mapping):
        found = shape.keys(given, pointer, _ACTION, "an action")
        if "type" not in found:
            shape.problems.add(pointer, "an action needs a 'type'")
            return _NOTHING
        return found
    if (isinstance(given, str) and given) or callable(given) or isinstance(given, Description):
        return given
    return shape.wrong(pointer, "an action", "a name or an object with a 'type'", given)


def _actions(shape: Shape, given: Any, pointer: str) -> Any:
    return [] if given is None else shape.listed(given, pointer, _action)


def _guard(shape: Shape, given: Any, pointer: str) -> Any:
    if isinstance(given, Mapping):
        found = shape.keys(given, pointer, _GUARD, "a guard")
        if "type" not in found:
            shape.problems.add(pointer, "a guard needs a 'type'")
            return _NOTHING
        return found
    if (isinstance(given, str) and given) or callable(given):
        return given
    if isinstance(given, (And, Or, Not, StateIn)):
        return given
    return shape.wrong(pointer, "a guard", "a name or an object with a 'type'", given)


def _guards(shape: Shape, given: Any, pointer: str) -> Any:
    return shape.listed(given, pointer, _guard)


def _transition(shape: Shape, given: Any, pointer: str) -> Any:
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, Mapping):
        return shape.keys(given, pointer, _TRANSITION, "a transition")
    return shape.wrong(pointer, "a transition", "a target or an object", given)


def _transitions(shape: Shape, given: Any, pointer: str) -> Any:
    return shape.listed(given, pointer, _transition)


def _on(shape: Shape, given: Any, pointer: str) -> Any:
    found = shape.named(given, pointer, _transitions, "'on'")
    names = list(cast("dict[str, Any]", found)) if isinstance(found, dict) else []
    for name in names:
        if "*" in name and name != "*" and (not name.endswith(".*") or "*" in name[:-1]):
            shape.problems.warn(
                at(pointer, name), "a wildcard must be alone or at the end, as in 'order.*'"
            )
    return cast("Any", found)


def _after(shape: Shape, given: Any, pointer: str) -> Any:
    return shape.named(given, pointer, _transitions, "'after'")


def _invoke(shape: Shape, given: Any, pointer: str) -> Any:
    found = shape.keys(given, pointer, _INVOKE, "an invoke")
    if found is not _NOTHING and "src" not in found:
        shape.problems.add(pointer, "an invoke needs a 'src'")
        return _NOTHING
    return found


def _invokes(shape: Shape, given: Any, pointer: str) -> Any:
    return shape.listed(given, pointer, _invoke)


def _src(shape: Shape, given: Any, pointer: str) -> Any:
    # A chart stands here as itself; what it is good for is judged with the services.
    if given is None or isinstance(given, (list, bool, int, float)) or given == "":
        return shape.wrong(pointer, "a 'src'", "the name of a service", given)
    return given


def _initial(shape: Shape, given: Any, pointer: str) -> Any:
    if given is None:
        return _NOTHING
    if isinstance(given, Mapping):
        return shape.keys(given, pointer, _INITIAL, "an initial transition")
    return _text(shape, given, pointer)


def _states(shape: Shape, given: Any, pointer: str) -> Any:
    if given is None:
        return _NOTHING
    return shape.named(
        given, pointer, lambda inner, one, place: inner.state(one, place, _STATE), "'states'"
    )


def _context(shape: Shape, given: Any, pointer: str) -> Any:
    if not (given is None or callable(given) or isinstance(given, Mapping)):
        return shape.wrong(pointer, "the context", "an object", given)
    return cast("Any", given)


_ACTION: dict[str, Checker] = {"type": _text, "params": _any}
_GUARD: dict[str, Checker] = {
    "type": _text,
    "params": _any,
    "guards": _guards,
    "guard": _guard,
    "state": _any,
}
_TRANSITION: dict[str, Checker] = {
    "target": _target,
    "actions": _actions,
    "guard": _guard,
    "reenter": _flag,
    "description": _any,
    "meta": _any,
}
_INVOKE: dict[str, Checker] = {
    "id": _text,
    "src": _src,
    "input": _any,
    "systemId": _text,
    "onDone": _transitions,
    "onError": _transitions,
    "onSnapshot": _transitions,
    "description": _any,
    "meta": _any,
}
_INITIAL: dict[str, Checker] = {
    "target": _text,
    "actions": _actions,
    "description": _any,
    "meta": _any,
}
_STATE: dict[str, Checker] = {
    "id": _text,
    "type": _one_of(*KINDS),
    "initial": _initial,
    "states": _states,
    "on": _on,
    "always": _transitions,
    "after": _after,
    "entry": _actions,
    "exit": _actions,
    "invoke": _invokes,
    "onDone": _transitions,
    "tags": _texts,
    "meta": _any,
    "output": _any,
    "history": _one_of(False, True, "shallow", "deep"),
    "target": _target,
    "description": _any,
}
_ROOT: dict[str, Checker] = {
    **_STATE,
    "context": _context,
    "version": _any,
    "$schema": _any,
}
