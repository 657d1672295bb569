"""The small language in which conformance scenarios say what actions, guards and services do.

Turns the ``impl`` of a scenario into implementations for ``Chart.load``. Knows nothing of any
single scenario. The format is described in ``tests/golden/charts/README.md``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from outlive.charts import (
    Chart,
    Event,
    and_,
    assign,
    cancel,
    choose,
    emit,
    not_,
    or_,
    raise_,
    send_parent,
    send_self,
    send_to,
    spawn,
    state_in,
    stop_child,
)
from outlive.charts.stepping import MICROSTEPS_MAX


class ScenarioError(Exception):
    """What a scenario throws on purpose."""


class Recorder:
    """What happened during one step, and the handles by which steps drive services."""

    def __init__(self) -> None:
        self.log: list[list[Any]] = []
        self.services: list[list[Any]] = []
        self.emitted: list[dict[str, Any]] = []
        self.promises: dict[str, asyncio.Future[Any]] = {}
        self.senders: dict[str, Callable[[Any], None]] = {}
        self.streams: dict[str, asyncio.Queue[tuple[str, Any]]] = {}

    def reset(self) -> None:
        self.log, self.services, self.emitted = [], [], []


def look_up(value: Any, path: list[Any]) -> Any:
    for key in path:
        if isinstance(value, BaseException):
            value = str(value) if key == "message" else getattr(value, key, None)
        elif isinstance(value, Event):
            value = value.type if key == "type" else value.get(key)
        elif isinstance(value, list):
            value = value[key] if isinstance(key, int) and key < len(value) else None
        elif hasattr(value, "get"):
            value = value.get(key)
        else:
            return None
    return value


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "mod": lambda a, b: a % b,
    "eq": lambda a, b: type(a) is type(b) and a == b if isinstance(a, bool) else a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "append": lambda a, b: [*(a or []), b],
    "in": lambda a, b: a in b,
}


def evaluate(expression: Any, scope: dict[str, Any]) -> Any:  # noqa: C901 - one case for each word
    if isinstance(expression, dict):
        return {key: evaluate(item, scope) for key, item in expression.items()}
    if not isinstance(expression, list):
        return expression
    operator, *rest = expression
    if operator in ("ctx", "event", "param", "input"):
        return look_up(scope.get(operator), [evaluate(key, scope) for key in rest])
    if operator == "if":
        return evaluate(rest[1] if evaluate(rest[0], scope) else rest[2], scope)
    if operator in ("and", "or"):
        answers = [evaluate(each, scope) for each in rest]
        return all(answers) if operator == "and" else any(answers)
    values = [evaluate(each, scope) for each in rest]
    match operator:
        case "list":
            return values
        case "not":
            return not values[0]
        case "len":
            return len(values[0])
        case "concat":
            return "".join(said(value) for value in values)
        case "add" if any(isinstance(value, str) for value in values):
            return "".join(said(value) for value in values)
        case _:
            result = values[0]
            for value in values[1:]:
                result = BINARY[operator](result, value)
            return result


def said(value: Any) -> str:
    """A value as JavaScript joins it to a text."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return str(value)


def computed(expression: Any) -> Any:
    """A constant, or a function of context, event and params."""
    if not isinstance(expression, (list, dict)):
        return expression

    def compute(context: Any, event: Any, params: Any) -> Any:
        return evaluate(
            expression,
            {"ctx": context, "event": event, "param": params, "input": event.get("input")},
        )

    return compute


def throwing(message: str) -> Callable[..., Any]:
    def throw() -> Any:
        raise ScenarioError(message)

    return throw


class Meanings:
    """The implementations of one machine of a scenario."""

    def __init__(self, impl: dict[str, Any], recorder: Recorder, prefix: str) -> None:
        self.impl = impl
        self.recorder = recorder
        self.prefix = prefix

    def chart(self, machine: dict[str, Any], microsteps_max: int = MICROSTEPS_MAX) -> Chart:
        document = self._functions(machine)
        if "context" in self.impl:
            made = self.impl["context"]
            document["context"] = lambda given: evaluate(made, {"input": given})
        return Chart.load(
            document,
            actions=_Always(self.action),
            guards={name: self.guard(given) for name, given in self._of("guards").items()},
            delays={name: computed(given) for name, given in self._of("delays").items()},
            services={name: self.service(given) for name, given in self._of("actors").items()},
            missing=True,
            microsteps_max=microsteps_max,
        )

    def _of(self, kind: str) -> dict[str, Any]:
        return self.impl.get(kind) or {}

    def _functions(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._functions(item) for item in value]
        if not isinstance(value, dict):
            return value
        if set(value) == {"$expr"}:
            return self._function(value["$expr"])
        return {key: self._functions(item) for key, item in value.items()}

    def _function(self, expression: Any) -> Callable[..., Any]:
        return lambda context, event: evaluate(
            expression, {"ctx": context, "event": event, "input": event.get("input")}
        )

    def action(self, name: str) -> list[Any]:
        def note(enqueue: Any, event: Event, params: Any) -> None:
            entry = [f"{self.prefix}{name}", event.type]
            self.recorder.log.append(entry if params is None else [*entry, params])

        given = self._of("actions").get(name) or []
        return [note, *self.operations(given)]

    def operations(self, given: Any) -> list[Any]:
        listed = given if isinstance(given, list) else [given]
        return [self.operation(each) for each in listed]

    def operation(self, given: dict[str, Any]) -> Any:  # noqa: C901 - one case for each word
        late = {"delay": self._delay(given.get("delay")), "id": given.get("id")}
        match given:
            case {"assign": updates}:
                return assign({key: computed(value) for key, value in updates.items()})
            case {"raise": event}:
                return raise_(computed(event), **late)
            case {"sendTo": "$self", "event": event}:
                return send_self(computed(event), **late)
            case {"sendTo": target, "event": event}:
                scope = "system" if given.get("system") else "child"
                return send_to(target, computed(event), **late, scope=scope)
            case {"sendParent": event}:
                return send_parent(computed(event), **late)
            case {"cancel": name}:
                return cancel(name)
            case {"emit": event}:
                return emit(computed(event))
            case {"spawn": src}:
                return spawn(
                    src,
                    id=given.get("id"),
                    system_id=given.get("systemId"),
                    input=computed(given.get("input")),
                )
            case {"stopChild": name}:
                return stop_child(name)
            case {"if": guard, "then": then}:
                return choose(
                    (self.guard(guard), self.operations(then)),
                    (None, self.operations(given.get("else", []))),
                )
            case {"actions": names}:
                return list(names)
            case {"throw": message}:
                return self._thrower(message)
        raise AssertionError(f"the format has no operation {given!r}")

    def _thrower(self, message: str) -> Callable[..., Any]:
        def throw(enqueue: Any) -> None:
            raise ScenarioError(message)

        return throw

    def _delay(self, given: Any) -> Any:
        return computed(given) if isinstance(given, (list, dict)) else given

    def guard(self, given: Any) -> Any:
        match given:
            case str():
                return given
            case {"expr": expression}:
                found = computed(expression)
                return found if callable(found) else lambda: expression
            case {"and": parts}:
                return and_(*(self.guard(part) for part in parts))
            case {"or": parts}:
                return or_(*(self.guard(part) for part in parts))
            case {"not": part}:
                return not_(self.guard(part))
            case {"stateIn": state}:
                return state_in(state)
            case {"throw": message}:
                return throwing(message)
        raise AssertionError(f"the format has no guard {given!r}")

    def service(self, given: dict[str, Any]) -> Any:
        match given["kind"]:
            case "promise":
                return self._promise(given)
            case "callback":
                return self._callback(given)
            case "observable":
                return self._observable()
            case "machine":
                machine = given["machine"]
                prefix = f"{machine.get('id', '(machine)')}/"
                return Meanings(given.get("impl", {}), self.recorder, prefix).chart(machine)
        raise AssertionError(f"the format has no service {given!r}")

    def _started(self, child: str, given: Any) -> None:
        entry = ["start", child]
        self.recorder.services.append(entry if given is None else [*entry, given])

    def _promise(self, given: dict[str, Any]) -> Any:
        def promise(input: Any, id: str) -> Any:  # noqa: A002
            self._started(id, input)
            waiting = _Promise(id, self.recorder)
            self.recorder.promises[id] = waiting
            if "resolve" in given:
                waiting.set_result(evaluate(given["resolve"], {"input": input}))
            if "reject" in given:
                reason = evaluate(given["reject"], {"input": input})
                waiting.set_exception(ScenarioError(reason))
            return waiting

        return promise

    def _callback(self, given: dict[str, Any]) -> Any:
        def callback(input: Any, id: str, send: Any, receive: Any) -> Any:  # noqa: A002
            self._started(id, input)
            self.recorder.senders[id] = send
            if "throw" in given:
                raise ScenarioError(given["throw"])

            def hear(event: Event) -> None:
                self.recorder.services.append(["recv", id, event.type])
                for answer in given.get("on", {}).get(event.type, ()):
                    send(evaluate(answer, {"event": event, "input": input}))

            receive(hear)
            for event in given.get("onStart", ()):
                send(evaluate(event, {"input": input}))
            return lambda: self.recorder.services.append(["stop", id])

        return callback

    def _observable(self) -> Any:
        def observable(input: Any, id: str) -> Any:  # noqa: A002
            self._started(id, input)
            queue = self.recorder.streams[id] = asyncio.Queue()
            return _stream(queue, id, self.recorder)

        return observable


class _Always(dict[str, Any]):
    """Every name means something: at least a line in the log."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        super().__init__()
        self._make = make

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> Any:
        return self._make(name)


class _Promise(asyncio.Future[Any]):
    """A future that says when it is given up, at once."""

    def __init__(self, child: str, recorder: Recorder) -> None:
        super().__init__()
        self._child = child
        self._recorder = recorder

    def cancel(self, msg: Any = None) -> bool:
        if not self.done():
            self._recorder.services.append(["stop", self._child])
        return super().cancel(msg)


async def _stream(queue: asyncio.Queue[tuple[str, Any]], child: str, recorder: Recorder) -> Any:
    try:
        while True:
            kind, value = await queue.get()
            if kind == "complete":
                return
            if kind == "error":
                raise ScenarioError(value)
            yield value
    except asyncio.CancelledError:
        recorder.services.append(["stop", child])
        raise
