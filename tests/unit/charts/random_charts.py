"""Random charts and events, in the format of the conformance scenarios.

Owns what such a chart may contain. Draws from ``Dice``, so that Hypothesis can shrink what it finds
and a plain seed can drive a long run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

EVENTS = ("A", "B", "C", "D.x", "D.y")
DESCRIPTORS = (*EVENTS, "A", "B", "C", "*", "D.*")
DEPTH_MAX = 3


class Dice(Protocol):
    """Where the choices come from."""

    def number(self, least: int, most: int) -> int: ...

    def choice(self, options: Sequence[Any]) -> Any: ...

    def chance(self, percent: int) -> bool: ...


class Maker:
    """Makes one chart."""

    def __init__(self, dice: Dice) -> None:
        self.dice = dice
        self.paths: list[tuple[str, ...]] = []
        self.regions: list[tuple[str, ...]] = []
        self.actions: dict[str, Any] = {}
        self.states = 0

    def scenario(self) -> dict[str, Any]:
        machine = self._state((), 0)
        self._behave(machine, ())
        machine["id"] = "m"
        machine["context"] = {"n": 0}
        steps = [
            {"send": {"type": self.dice.choice(EVENTS)}} for _ in range(self.dice.number(1, 8))
        ]
        guards = {
            "even": {"expr": ["eq", ["mod", ["ctx", "n"], 2], 0]},
            "small": {"expr": ["lt", ["ctx", "n"], 4]},
            "isA": {"expr": ["eq", ["event", "type"], "A"]},
            "both": {"and": ["even", "small"]},
            "odd": {"not": "even"},
            "either": {"or": ["isA", "odd"]},
        }
        for name in ("in0", "in1", "in2"):
            path = self.dice.choice(self.paths)
            guards[name] = {"stateIn": _reference(path)}
        return {
            "format": 1,
            "machine": machine,
            "impl": {"actions": self.actions, "guards": guards},
            "steps": steps,
        }

    def _state(self, path: tuple[str, ...], depth: int) -> dict[str, Any]:
        self.paths.append(path)
        nested = depth == 0 or (depth < DEPTH_MAX and self.dice.chance(45))
        if not nested:
            return {}
        parallel = self.dice.chance(35)
        state: dict[str, Any] = {"states": {}}
        if parallel:
            state["type"] = "parallel"
            self.regions.append(path)
        names = [f"s{self.states + index}" for index in range(self.dice.number(1, 3))]
        self.states += len(names)
        for name in names:
            child = self._state((*path, name), depth + 1)
            if not child and not parallel and self.dice.chance(20):
                child["type"] = "final"
            state["states"][name] = child
        if not parallel:
            state["initial"] = names[0]
            first = state["states"][names[0]]
            if first.get("type") == "final" and self.dice.chance(80):
                del first["type"]
        if self.dice.chance(25):
            kind = self.dice.choice(("shallow", "deep"))
            name = f"h{self.states}"
            history: dict[str, Any] = {"type": "history", "history": kind}
            if self.dice.chance(30):
                history["target"] = self.dice.choice(names)
            state["states"][name] = history
            self.paths.append((*path, name))
        return state

    def _behave(self, state: dict[str, Any], path: tuple[str, ...]) -> None:
        if state.get("type") == "history":
            return
        name = "_".join(path) or "root"
        state["entry"] = self._actions(f"in_{name}")
        state["exit"] = self._actions(f"out_{name}")
        if state.get("type") != "final":
            on = {}
            for _ in range(self.dice.number(0, 3)):
                many = [self._transition(path, guard=35) for _ in range(self.dice.number(1, 2))]
                on[self.dice.choice(DESCRIPTORS)] = many
            if on:
                state["on"] = on
            if self.dice.chance(20):
                state["always"] = [self._always(path) for _ in range(self.dice.number(1, 2))]
            if "states" in state and self.dice.chance(40):
                state["onDone"] = [self._transition(path, guard=20)]
        for key, child in state.get("states", {}).items():
            self._behave(child, (*path, key))

    def _actions(self, name: str) -> list[str]:
        if self.dice.chance(50):
            self._define(name)
            return [name]
        return []

    def _define(self, name: str) -> None:
        if self.dice.chance(15):
            self.actions[name] = [{"assign": {"n": ["add", ["ctx", "n"], 1]}}]
        elif self.dice.chance(8):
            event = self.dice.choice(EVENTS)
            # Raised only while the counter is small, so that no chart raises for ever.
            self.actions[name] = [
                {
                    "if": {"expr": ["lt", ["ctx", "n"], 6]},
                    "then": [{"assign": {"n": ["add", ["ctx", "n"], 1]}}, {"raise": event}],
                    "else": [],
                }
            ]

    def _transition(self, path: tuple[str, ...], *, guard: int) -> dict[str, Any]:
        transition: dict[str, Any] = {}
        if self.dice.chance(80):
            transition["target"] = self._targets()
            if self.dice.chance(25):
                transition["reenter"] = True
        if self.dice.chance(guard):
            names = ("even", "small", "isA", "both", "odd", "either", "in0", "in1", "in2")
            transition["guard"] = self.dice.choice(names)
        if self.dice.chance(60):
            name = f"do_{'_'.join(path) or 'root'}_{self.dice.number(0, 99)}"
            if name not in self.actions:
                self._define(name)
            transition["actions"] = [name]
        return transition

    def _targets(self) -> str | list[str]:
        if self.regions and self.dice.chance(8):
            # Several targets can be active together only in different regions.
            parent = self.dice.choice(self.regions)
            inside = [path for path in self.paths if path[: len(parent)] == parent]
            by_region: dict[str, list[tuple[str, ...]]] = {}
            for path in inside:
                if len(path) > len(parent) and not path[len(parent)].startswith("h"):
                    by_region.setdefault(path[len(parent)], []).append(path)
            return [_reference(self.dice.choice(paths)) for paths in by_region.values()]
        return _reference(self.dice.choice(self.paths))

    def _always(self, path: tuple[str, ...]) -> dict[str, Any]:
        """An eventless transition that counts up to its guard, so that no chart loops for ever."""
        transition = self._transition(path, guard=0)
        name = f"count_{'_'.join(path) or 'root'}_{self.dice.number(0, 99)}"
        self.actions[name] = [{"assign": {"n": ["add", ["ctx", "n"], 1]}}]
        transition["guard"] = "small"
        transition["actions"] = [name]
        return transition


def _reference(path: tuple[str, ...]) -> str:
    return "#" + ".".join(("m", *path))


def scenario(dice: Dice) -> dict[str, Any]:
    """One random chart and the events that it gets."""
    return Maker(dice).scenario()
