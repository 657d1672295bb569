"""From names to what they mean: actions, guards, delays and computed values of one chart.

Owns the implementations that the user gave. Each function is inspected here, once. Must never
evaluate text: a document can only name what the program registered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, cast

from outlive.charts import actions as described
from outlive.charts import guards as composed
from outlive.charts.actions import (
    Assign,
    Cancel,
    Description,
    EmitEvent,
    LogValue,
    Raise,
    SendTo,
    Spawn,
    StopChildNamed,
)
from outlive.charts.convention import ACTION, PURE, adapt, is_async, parameters_of, refuse_async
from outlive.charts.events import as_event
from outlive.charts.guards import Guard
from outlive.charts.operations import (
    AssignAll,
    AssignParts,
    Branch,
    CancelTimer,
    Decide,
    Operation,
    RaiseEvent,
    Run,
    SendEvent,
    Start,
    Stop,
    Tell,
    Value,
    Write,
)
from outlive.errors import ChartError, UsageError

# Names may stand for combinations of names; a chain longer than this goes in a circle.
INDIRECTIONS_MAX = 32

_COMBINATIONS = frozenset({"and", "or", "not", "stateIn"})

Params = Mapping[str, Any]

_KNOWN: dict[str, Callable[[Params], Description]] = {
    "xstate.assign": lambda given: Assign(given.get("assignment", given)),
    "xstate.raise": lambda given: Raise(given["event"], given.get("delay"), given.get("id")),
    "xstate.sendTo": lambda given: SendTo(
        given["to"], given["event"], given.get("delay"), given.get("id")
    ),
    "xstate.sendParent": lambda given: SendTo(
        None, given["event"], given.get("delay"), given.get("id"), "parent"
    ),
    "xstate.cancel": lambda given: Cancel(given["id"] if "id" in given else given["sendId"]),
    "xstate.emit": lambda given: EmitEvent(given["event"]),
    "xstate.log": lambda given: LogValue(given.get("value"), given.get("label")),
    "xstate.spawnChild": lambda given: Spawn(
        given["src"],
        given.get("id"),
        given.get("systemId"),
        given.get("input"),
        bool(given.get("syncSnapshot")),
    ),
    "xstate.stopChild": lambda given: StopChildNamed(given["id"]),
}

_TEXTS = frozenset({"id", "sendId", "src", "systemId", "to"})


class Binder:
    """Resolves what a document or an implementation says about actions and guards.

    A name without an implementation is noted in ``missing``; it stands for nothing as an action
    and for an error as a guard or a delay.
    """

    def __init__(
        self,
        *,
        actions: Mapping[str, Any],
        guards: Mapping[str, Any],
        delays: Mapping[str, Any],
        find_node: Callable[[str], int | None],
    ) -> None:
        self._actions = actions
        self._guards = guards
        self._delays = delays
        self._find_node = find_node
        self.missing: list[tuple[str, str, str]] = []
        self.spawns = False
        self._used: set[tuple[str, str]] = set()

    def unused(self) -> Iterator[tuple[str, str]]:
        """The kinds and names of implementations that nothing has asked for."""
        given = {"action": self._actions, "guard": self._guards, "delay": self._delays}
        for kind, implementations in given.items():
            for name in implementations:
                if (kind, name) not in self._used:
                    yield kind, name

    # -- values ---------------------------------------------------------------------------------

    def value(self, given: Any, what: str, params: Value | None = None) -> Value:
        """A constant, or what a function computes."""
        if callable(given):
            refuse_async(given, what)
            return Value(None, adapt(given, PURE, what), params)
        return Value(given)

    def optional(self, given: Any, what: str, params: Value | None = None) -> Value | None:
        """As ``value``, or nothing."""
        return None if given is None else self.value(given, what, params)

    def delay(self, given: Any, what: str, params: Value | None = None) -> Value | None:
        """Milliseconds: a number, a timedelta, a name, or a function that gives one of these."""
        if given is None:
            return None
        if isinstance(given, str):
            if given not in self._delays:
                self.missing.append(("delay", given, what))
                return Value(None, _no_delay(given), None)
            self._used.add(("delay", given))
            return self.delay(self._delays[given], f"delay {given!r}", params)
        if callable(given):
            refuse_async(given, what)
            function = adapt(given, PURE, what)

            def computed(context: Any, event: Any, parameters: Any) -> float:
                return milliseconds(function(context, event, parameters), what)

            return Value(None, computed, params)
        return Value(milliseconds(given, what))

    # -- guards ---------------------------------------------------------------------------------

    def guard(self, given: Any, what: str, depth: int = INDIRECTIONS_MAX) -> Guard:
        """The guard that ``given`` means: a name, a function, or a combination of guards.

        Raises:
            UsageError: It has no such form, or names go in a circle.
        """
        if depth == 0:
            raise UsageError(f"{what}: guards refer to each other in a cycle")
        if isinstance(given, str):
            return self._named(given, None, what, depth)
        if isinstance(given, composed.And):
            return composed.All(tuple(self.guard(each, what, depth - 1) for each in given.guards))
        if isinstance(given, composed.Or):
            return composed.Some(tuple(self.guard(each, what, depth - 1) for each in given.guards))
        if isinstance(given, composed.Not):
            return composed.Opposite(self.guard(given.guard, what, depth - 1))
        if isinstance(given, composed.StateIn):
            return self._state_in(given.state, what)
        if isinstance(given, Mapping):
            return self._written(cast("Mapping[str, Any]", given), what, depth)
        if callable(given):
            refuse_async(given, what)
            name = getattr(given, "__name__", "(function)")
            return composed.Named(name, adapt(given, PURE, what))
        raise UsageError(f"{what}: {given!r} is not a guard")

    def _named(self, name: str, params: Any, what: str, depth: int) -> Guard:
        computed = None
        if callable(params):
            computed, params = adapt(params, PURE, f"params of guard {name!r}"), None
        if name not in self._guards:
            self.missing.append(("guard", name, what))
            return composed.Named(name, None)
        self._used.add(("guard", name))
        found = self._guards[name]
        if callable(found):
            refuse_async(found, f"guard {name!r}")
            return composed.Named(name, adapt(found, PURE, f"guard {name!r}"), params, computed)
        return self.guard(found, what, depth - 1)

    def _written(self, given: Mapping[str, Any], what: str, depth: int) -> Guard:
        name = str(given.get("type", "")).removeprefix("xstate.")
        if name in _COMBINATIONS and str(given.get("type")) not in self._guards:
            parts = _listed(given.get("guards"))
            if "guard" in given:
                parts.append(given["guard"])
            if name == "stateIn":
                return self._state_in(_state_of(given), what)
            if name == "not":
                if not parts:
                    raise UsageError(f"{what}: 'not' needs a 'guard'")
                return composed.Opposite(self.guard(parts[0], what, depth - 1))
            bound = tuple(self.guard(each, what, depth - 1) for each in parts)
            return composed.All(bound) if name == "and" else composed.Some(bound)
        if not isinstance(given.get("type"), str):
            raise UsageError(f"{what}: a guard needs a 'type'")
        return self._named(given["type"], given.get("params"), what, depth)

    def _state_in(self, state: str | Mapping[str, Any], what: str) -> Guard:
        if isinstance(state, str) and state.startswith("#"):
            order = self._find_node(state)
            if order is None:
                raise UsageError(f"{what}: the chart has no state {state!r}")
            return composed.Active(state, order)
        if not isinstance(cast("object", state), (str, Mapping)):
            raise UsageError(f"{what}: stateIn needs a state or its id, not {state!r}")
        return composed.Active(state)

    # -- actions --------------------------------------------------------------------------------

    def actions(self, given: Any, what: str) -> tuple[Operation, ...]:
        """The operations that ``given`` means: one action or a list of them."""
        return tuple(self._each(given, what, None, INDIRECTIONS_MAX))

    def _each(self, given: Any, what: str, params: Value | None, depth: int) -> list[Operation]:
        if given is None:
            return []
        if depth == 0:
            raise UsageError(f"{what}: actions refer to each other in a cycle")
        if isinstance(given, (list, tuple)):
            listed = cast("list[Any]", given)
            return [each for one in listed for each in self._each(one, what, params, depth)]
        if isinstance(given, str):
            return self._action(given, what, params, depth)
        if isinstance(given, Mapping):
            written = cast("Mapping[str, Any]", given)
            name = written.get("type")
            if not isinstance(name, str):
                raise UsageError(f"{what}: an action needs a 'type'")
            own = self.optional(written.get("params"), f"params of action {name!r}")
            return self._action(name, what, own, depth)
        if isinstance(given, described.Description):
            return [self._described(given, what, params, depth)]
        if callable(given):
            return [self._function(getattr(given, "__name__", "(function)"), given, params)]
        raise UsageError(f"{what}: {given!r} is not an action")

    def _action(self, name: str, what: str, params: Value | None, depth: int) -> list[Operation]:
        if name in self._actions:
            self._used.add(("action", name))
            found = self._actions[name]
            if callable(found) and not isinstance(found, described.Description):
                return [self._function(name, found, params)]
            return self._each(found, f"action {name!r}", params, depth - 1)
        if name.startswith("xstate.") and params is not None and params.function is None:
            return [self._described(written_out(name, params.constant, what), what, None, depth)]
        self.missing.append(("action", name, what))
        return [Run(name, None, False, params)]

    def _function(self, name: str, found: Callable[..., Any], params: Value | None) -> Operation:
        what = f"action {name!r}"
        if "enqueue" in parameters_of(found):
            refuse_async(found, f"{what} has a parameter enqueue and")
            return Decide(name, adapt(found, ACTION, what), params, self)
        return Run(name, adapt(found, ACTION[:4], what), is_async(found), params)

    def _described(
        self, given: described.Description, what: str, params: Value | None, depth: int
    ) -> Operation:
        match given:
            case described.Assign(updates):
                return self._assign(updates, what, params)
            case described.Raise(event, delay, name):
                return RaiseEvent(
                    self.value(event, what, params),
                    self.delay(delay, what, params),
                    self.optional(name, what, params),
                )
            case described.SendTo(target, event, delay, name, scope):
                return SendEvent(
                    self.value(target, what, params),
                    self.value(event, what, params),
                    self.delay(delay, what, params),
                    self.optional(name, what, params),
                    scope,
                )
            case described.Cancel(name):
                return CancelTimer(self.value(name, what, params))
            case described.EmitEvent(event):
                return Tell(self.value(event, what, params))
            case described.LogValue(value, label):
                return Write(self.value(value, what, params), label)
            case described.Spawn(src, name, system_id, given_input, watched):
                self.spawns = True
                return Start(
                    src,
                    self.optional(name, what, params),
                    system_id,
                    self.value(given_input, what, params),
                    watched,
                )
            case described.StopChildNamed(name):
                return Stop(self.value(name, what, params))
            case described.Choose(branches):
                return Branch(
                    tuple(
                        (
                            None if guard is None else self.guard(guard, what),
                            tuple(self._each(chosen, what, params, depth - 1)),
                        )
                        for guard, chosen in branches
                    )
                )

    def _assign(self, updates: Any, what: str, params: Value | None) -> Operation:
        if callable(updates):
            return AssignAll(self.value(updates, what, params))
        if not isinstance(updates, Mapping):
            raise UsageError(f"{what}: an assign must be a mapping of changes, not {updates!r}")
        given = cast("Mapping[str, Any]", updates)
        constants = {key: value for key, value in given.items() if not callable(value)}
        computed = tuple(
            (key, self.value(value, f"{what}, assign of {key!r}", params))
            for key, value in given.items()
            if callable(value)
        )
        return AssignParts(constants, computed)


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(cast("list[Any]", given)) if isinstance(given, (list, tuple)) else [given]


def _state_of(given: Mapping[str, Any]) -> Any:
    params: Any = given.get("params")
    if "state" in given:
        return given["state"]
    if not isinstance(params, Mapping):
        return params
    inside = cast("Mapping[str, Any]", params)
    return inside.get("state", inside.get("stateValue"))


def milliseconds(value: Any, what: str) -> float:
    """``value`` in milliseconds.

    Raises:
        UsageError: It is no number or timedelta, or not finite.
    """
    if isinstance(value, timedelta):
        return value.total_seconds() * 1000
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_finite(value):
        raise UsageError(f"{what} must be a delay in milliseconds or a timedelta, not {value!r}")
    return value


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _no_delay(name: str) -> Callable[[Any, Any, Any], Any]:
    def missing(_context: Any, _event: Any, _params: Any) -> float:
        raise ChartError(f"delay {name!r} is not implemented; give it to Chart.load")

    return missing


def written_out(name: str, params: Any, what: str) -> Description:
    """The action that ``name`` and ``params`` write out, as ``{"type": "xstate.raise", …}``.

    Only constants: what would have to be computed needs an implementation in the program.

    Raises:
        UsageError: There is no such action, or it lacks what it needs.
    """
    if name not in _KNOWN:
        raise UsageError(f"{what}: unknown built-in action {name!r}")
    given: Params = cast("Any", params) if isinstance(params, Mapping) else {}
    for key in _TEXTS & given.keys() if name != "xstate.assign" else ():
        if not isinstance(given[key], str) and not callable(given[key]):
            raise UsageError(f"{what}: {key!r} of {name} must be text, not {given[key]!r}")
    if "event" in given and name != "xstate.assign" and not callable(given["event"]):
        as_event(given["event"], f"{what}: the event of {name}")
    try:
        return _KNOWN[name](given)
    except KeyError as error:
        raise UsageError(f"{what}: {name} needs {error.args[0]!r} in its params") from error
