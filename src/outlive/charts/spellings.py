"""Spellings of XState 4, rewritten to those of XState 5, each with a warning.

Only words change here, never meanings: a document that uses none of them comes out as it went in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from outlive.charts.problems import Problems, at

# How each of these warnings begins, so that they can be told from other warnings.
MARK = "XState 4 spelling"

# Words about the program that read a document, not about the chart.
_IGNORED = ("predictableActionArguments", "preserveActionOrder", "schema", "strict", "tsTypes")

_EVENTS = {
    "done.state.": "xstate.done.state.",
    "done.invoke.": "xstate.done.actor.",
    "error.platform.": "xstate.error.actor.",
}


def modernised(document: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """A copy of ``document`` in the words of XState 5."""
    found = dict(document)
    for key in _IGNORED:
        if key in found:
            del found[key]
            _warn(problems, at("", key), f"{key!r} has no effect; remove it")
    return _state(found, "", problems)


def _warn(problems: Problems, pointer: str, advice: str) -> None:
    problems.warn(pointer, f"{MARK}: {advice}")


def _renamed(config: dict[str, Any], names: Mapping[str, str], place: str, found: Problems) -> None:
    for old, new in names.items():
        if old in config:
            _warn(found, at(place, old), f"write {new!r} instead of {old!r}")
            config.setdefault(new, config[old])
            del config[old]


def _state(given: Any, pointer: str, problems: Problems) -> Any:
    if not isinstance(given, Mapping):
        return given
    config = dict(cast("Mapping[str, Any]", given))
    _renamed(config, {"onEntry": "entry", "onExit": "exit"}, pointer, problems)
    if config.get("type") == "final":
        _renamed(config, {"data": "output"}, pointer, problems)
    _invocations(config, pointer, problems)
    if isinstance(config.get("on"), Mapping):
        _events(config, pointer, problems)
    if isinstance(config.get("after"), list):
        _delays(config, pointer, problems)
    for key in ("always", "onDone"):
        if key in config:
            config[key] = _transitions(config[key], at(pointer, key), problems)
    if isinstance(config.get("after"), Mapping):
        config["after"] = {
            key: _transitions(value, at(pointer, "after", key), problems)
            for key, value in config["after"].items()
        }
    if isinstance(config.get("states"), Mapping):
        config["states"] = {
            key: _state(value, at(pointer, "states", key), problems)
            for key, value in config["states"].items()
        }
    return config


def _events(config: dict[str, Any], pointer: str, problems: Problems) -> None:
    on: dict[str, Any] = {}
    for key, value in config["on"].items():
        place = at(pointer, "on", key)
        transitions = _transitions(value, place, problems)
        if key == "":
            _warn(problems, place, "write 'always' instead of the event ''")
            config.setdefault("always", transitions)
            continue
        name = key
        for old, new in _EVENTS.items():
            if isinstance(key, str) and key.startswith(old):
                name = new + key.removeprefix(old)
                _warn(problems, place, f"write {name!r} instead of {key!r}")
        on[name] = transitions
    config["on"] = on


def _delays(config: dict[str, Any], pointer: str, problems: Problems) -> None:
    place = at(pointer, "after")
    _warn(problems, place, "write 'after' as an object with the delays as keys")
    after: dict[str, Any] = {}
    for given in config["after"]:
        one: Mapping[str, Any] = cast("Any", given) if isinstance(given, Mapping) else {}
        if "delay" not in one:
            problems.add(place, "each transition in a list of 'after' needs a 'delay'")
            continue
        rest = {key: value for key, value in one.items() if key != "delay"}
        after.setdefault(str(one["delay"]), []).append(rest)
    config["after"] = after


def _invocations(config: dict[str, Any], pointer: str, problems: Problems) -> None:
    if "invoke" in config:
        given = config["invoke"]
        many = isinstance(given, (list, tuple))
        listed = list(cast("list[Any]", given)) if many else [given]
        made = [
            _invoke(one, at(pointer, "invoke", index) if many else at(pointer, "invoke"), problems)
            for index, one in enumerate(listed)
        ]
        config["invoke"] = made if many else made[0]
    if "activities" in config:
        place = at(pointer, "activities")
        _warn(problems, place, "write 'invoke' instead of 'activities'")
        given = config.pop("activities")
        names = list(cast("list[Any]", given)) if isinstance(given, (list, tuple)) else [given]
        before = config.get("invoke", [])
        config["invoke"] = [
            *(cast("list[Any]", before) if isinstance(before, list) else [before]),
            *({"src": _name_of(name)} for name in names),
        ]


def _name_of(given: Any) -> Any:
    return cast("Mapping[str, Any]", given).get("type") if isinstance(given, Mapping) else given


def _invoke(given: Any, pointer: str, problems: Problems) -> Any:
    if not isinstance(given, Mapping):
        return given
    invoke = dict(cast("Mapping[str, Any]", given))
    _renamed(invoke, {"data": "input"}, pointer, problems)
    if isinstance(invoke.get("src"), Mapping):
        _warn(problems, at(pointer, "src"), "write only the name of the service")
        invoke["src"] = _name_of(invoke["src"])
    for key in ("onDone", "onError", "onSnapshot"):
        if key in invoke:
            invoke[key] = _transitions(invoke[key], at(pointer, key), problems)
    return invoke


def _transitions(given: Any, pointer: str, problems: Problems) -> Any:
    if isinstance(given, (list, tuple)):
        return [
            _transition(one, at(pointer, index), problems)
            for index, one in enumerate(cast("list[Any]", given))
        ]
    return _transition(given, pointer, problems)


def _transition(given: Any, pointer: str, problems: Problems) -> Any:
    if not isinstance(given, Mapping):
        return given
    config = dict(cast("Mapping[str, Any]", given))
    _renamed(config, {"cond": "guard"}, pointer, problems)
    if "internal" in config:
        _warn(problems, at(pointer, "internal"), "write 'reenter', its opposite")
        config.setdefault("reenter", config.pop("internal") is False)
    if "in" in config:
        _warn(problems, at(pointer, "in"), "write a guard of type 'stateIn'")
        inside = {"type": "stateIn", "state": config.pop("in")}
        other = config.get("guard")
        config["guard"] = inside if other is None else {"type": "and", "guards": [inside, other]}
    return config
