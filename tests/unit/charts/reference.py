"""A naive interpreter of charts, written straight from the algorithm, to compare the engine with.

Works on the document itself: no tables, no numbers, no caches. States are paths, sets are computed
anew for each question. Follows the algorithm in appendix D of the SCXML recommendation, with the
domains and the re-entry of XState. Understands what ``random_charts`` makes, and nothing else.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.chart_language import evaluate

Path = tuple[str, ...]
Step = dict[str, Any]


class Endless(Exception):
    """The chart does not come to rest."""


class Reference:
    """One machine."""

    def __init__(self, scenario: dict[str, Any], limit: int) -> None:
        self.limit = limit
        self.machine: dict[str, Any] = scenario["machine"]
        self.impl: dict[str, Any] = scenario["impl"]
        self.context: dict[str, Any] = dict(self.machine.get("context", {}))
        self.active: list[Path] = []
        self.history: dict[Path, list[Path]] = {}
        self.queue: list[str] = []
        self.status = "active"
        self.log: list[list[str]] = []
        self.event = "xstate.init"
        self.changed = False
        self.order = list(self._document((), self.machine))

    # -- the document ---------------------------------------------------------------------------

    def _document(self, path: Path, state: dict[str, Any]) -> Any:
        yield path
        for key, child in state.get("states", {}).items():
            yield from self._document((*path, key), child)

    def state(self, path: Path) -> dict[str, Any]:
        found = self.machine
        for key in path:
            found = found["states"][key]
        return found

    def kind(self, path: Path) -> str:
        state = self.state(path)
        return state.get("type") or ("compound" if state.get("states") else "atomic")

    def children(self, path: Path) -> list[Path]:
        inside = [(*path, key) for key in self.state(path).get("states", {})]
        return [child for child in inside if self.kind(child) != "history"]

    def named(self, reference: str) -> Path:
        return tuple(reference.removeprefix("#").split(".")[1:])

    def position(self, path: Path) -> int:
        return self.order.index(path)

    # -- transitions ----------------------------------------------------------------------------

    def candidates(self, path: Path, event: str) -> list[Step]:
        on = {**self.state(path).get("on", {})}
        done = self.state(path).get("onDone")
        if done is not None:
            on[f"xstate.done.state.{self.name(path)}"] = done
        matching = [key for key in on if key != event and covers(key, event)]
        matching.sort(key=len, reverse=True)
        keys = [event, *matching] if event in on else matching
        return [self._step(path, each) for key in keys for each in on[key]]

    def _step(self, path: Path, given: dict[str, Any]) -> Step:
        target = given.get("target")
        names = [target] if isinstance(target, str) else target
        return {
            "source": path,
            "targets": None if names is None else [self.named(name) for name in names],
            "reenter": given.get("reenter", False),
            "guard": given.get("guard"),
            "actions": given.get("actions", []),
            "key": id(given),
        }

    def name(self, path: Path) -> str:
        return ".".join((self.machine["id"], *path))

    def passes(self, guard: Any) -> bool:
        if guard is None:
            return True
        if isinstance(guard, str):
            return self.passes(self.impl["guards"][guard])
        match guard:
            case {"expr": expression}:
                scope = {"ctx": self.context, "event": {"type": self.event}}
                return bool(evaluate(expression, scope))
            case {"and": parts}:
                return all(self.passes(part) for part in parts)
            case {"or": parts}:
                return any(self.passes(part) for part in parts)
            case {"not": part}:
                return not self.passes(part)
            case {"stateIn": reference}:
                return self.named(reference) in self.active
        raise AssertionError(guard)

    def select(self, path: Path = ()) -> list[Step]:
        inner: list[Step] = []
        for child in self.children(path):
            if child in self.active:
                inner += self.select(child)
        if inner:
            return inner
        for step in self.candidates(path, self.event):
            if self.passes(step["guard"]):
                return [step]
        return []

    def select_eventless(self) -> list[Step]:
        found: list[Step] = []
        for leaf in self.active:
            if self.kind(leaf) not in ("atomic", "final"):
                continue
            line = [leaf[:length] for length in range(len(leaf), -1, -1)]
            steps = [
                self._step(path, each)
                for path in line
                for each in self.state(path).get("always", ())
            ]
            first = next((step for step in steps if self.passes(step["guard"])), None)
            if first is not None and all(first["key"] != other["key"] for other in found):
                found.append(first)
        return found

    # -- sets -----------------------------------------------------------------------------------

    def default(self, history: Path) -> list[Path]:
        target = self.state(history).get("target")
        parent = history[:-1]
        if target is not None:
            return [(*parent, target)]
        if self.kind(parent) == "parallel":
            return [parent]
        return [(*parent, self.state(parent)["initial"])]

    def effective(self, targets: list[Path]) -> list[Path]:
        found: list[Path] = []
        for target in targets:
            if self.kind(target) != "history":
                stands_for = [target]
            elif target in self.history:
                stands_for = self.history[target]
            else:
                stands_for = self.effective(self.default(target))
            found += [path for path in stands_for if path not in found]
        return found

    def domain(self, step: Step) -> Path | None:
        source = step["source"]
        targets = self.effective(step["targets"] or [])
        if not step["reenter"] and all(target[: len(source)] == source for target in targets):
            return source
        everyone = [*targets, source]
        for length in range(len(everyone[0]) - 1, -1, -1):
            ancestor = everyone[0][:length]
            if all(inside(path, ancestor) for path in everyone[1:]):
                return ancestor
        return None if step["reenter"] else ()

    def exits(self, step: Step) -> list[Path]:
        if not step["targets"]:
            return []
        domain = self.domain(step)
        left = [path for path in self.active if domain is None or inside(path, domain)]
        if step["reenter"] and step["source"] == domain and domain not in left:
            left.append(domain)
        return left

    def compatible(self, steps: list[Step]) -> list[Step]:
        kept: list[Step] = []
        for step in steps:
            removed: list[Step] = []
            preempted = False
            for other in kept:
                if set(self.exits(step)) & set(self.exits(other)):
                    if inside(step["source"], other["source"]):
                        removed.append(other)
                    else:
                        preempted = True
                        break
            if not preempted:
                kept = [other for other in kept if other not in removed]
                kept.append(step)
        return kept

    # -- a microstep ----------------------------------------------------------------------------

    def microstep(self, steps: list[Step], *, initial: bool = False) -> None:
        chosen = self.compatible(steps)
        before = list(self.active)
        left: list[Path] = []
        if not initial:
            for step in chosen:
                left += [path for path in self.exits(step) if path not in left]
        domains = [self.domain(step) for step in chosen]
        left.sort(key=self.position, reverse=True)
        for path in left:
            for key, child in self.state(path).get("states", {}).items():
                if child.get("type") == "history":
                    self.history[*path, key] = self.remembered(path, child["history"])
                    self.changed = True
        for path in left:
            self.run(self.state(path).get("exit", []))
            self.active.remove(path)
        for step in chosen:
            self.run(step["actions"])
        # A domain that another transition leaves is entered by that one alone.
        places = list(zip(chosen, domains, strict=True))
        self.enter([(step, domain) for step, domain in places if domain not in left])
        if set(self.active) != set(before):
            self.changed = True
        else:
            # XState keeps its old list then, and with it the order of eventless transitions.
            self.active = before

    def remembered(self, parent: Path, kind: str) -> list[Path]:
        if kind == "deep":
            leaves = [path for path in self.active if self.kind(path) in ("atomic", "final")]
            return [path for path in leaves if inside(path, parent)]
        return [path for path in self.active if path[:-1] == parent and path != ()]

    def enter(self, places: list[tuple[Step, Path | None]]) -> None:
        entered: list[Path] = []
        for step, domain in places:
            for target in step["targets"] or []:
                itself = step["source"] == target == domain and not step["reenter"]
                if self.kind(target) != "history" and not itself:
                    add(entered, target)
                self.descend(target, entered)
            whole = step["source"] == () and step["reenter"]
            for target in self.effective(step["targets"] or []):
                above = ancestors(target, domain)
                if domain is not None and self.kind(domain) == "parallel":
                    above.append(domain)
                self.ascend(above, None if whole else domain, entered)
        completed: list[Path] = []
        done = False
        for path in sorted(entered, key=self.position):
            add(self.active, path)
            self.run(self.state(path).get("entry", []))
            if self.kind(path) == "final":
                done = self.finish(path, completed) or done
        if done:
            for path in sorted(self.active, key=self.position, reverse=True):
                self.run(self.state(path).get("exit", []))

    def descend(self, path: Path, entered: list[Path]) -> None:
        kind = self.kind(path)
        if kind == "history":
            targets = self.history.get(path) or self.default(path)
            for target in targets:
                add(entered, target)
                self.descend(target, entered)
            for target in targets:
                self.ascend(ancestors(target, path[:-1]), None, entered)
        elif kind == "compound":
            initial = (*path, self.state(path)["initial"])
            add(entered, initial)
            self.descend(initial, entered)
        elif kind == "parallel":
            self.fill(path, entered)

    def ascend(self, above: list[Path], domain: Path | None, entered: list[Path]) -> None:
        for path in above:
            if domain is None or inside(path, domain):
                add(entered, path)
            if self.kind(path) == "parallel":
                self.fill(path, entered)

    def fill(self, path: Path, entered: list[Path]) -> None:
        for child in self.children(path):
            if not any(inside(other, child) for other in entered):
                add(entered, child)
                self.descend(child, entered)

    def finish(self, path: Path, completed: list[Path]) -> bool:
        parent = path[:-1]
        marker: Path | None = parent if self.kind(parent) == "parallel" else above(parent)
        if self.kind(parent) == "compound":
            self.queue.append(f"xstate.done.state.{self.name(parent)}")
        while (
            marker is not None
            and self.kind(marker) == "parallel"
            and marker not in completed
            and self.final(marker)
        ):
            completed.append(marker)
            self.queue.append(f"xstate.done.state.{self.name(marker)}")
            marker = above(marker)
        if marker is None:
            self.status = "done"
        return marker is None

    def final(self, path: Path) -> bool:
        kind = self.kind(path)
        if kind == "compound":
            return any(self.kind(c) == "final" and c in self.active for c in self.children(path))
        if kind == "parallel":
            return all(self.final(child) for child in self.children(path))
        return kind == "final"

    # -- actions and the macrostep --------------------------------------------------------------

    def run(self, names: list[str]) -> None:
        for name in names:
            self.log.append([name, self.event])
            for operation in self.impl["actions"].get(name, []):
                self.do(operation)

    def do(self, operation: dict[str, Any]) -> None:
        scope = {"ctx": self.context, "event": {"type": self.event}}
        match operation:
            case {"assign": updates}:
                new = {key: evaluate(value, scope) for key, value in updates.items()}
                self.context = {**self.context, **new}
                self.changed = True
            case {"raise": event}:
                self.queue.append(event)
            case {"if": guard, "then": then, "else": otherwise}:
                for inner in then if self.passes(guard) else otherwise:
                    self.do(inner)
            case _:
                raise AssertionError(operation)

    def rest(self) -> None:
        seek = True
        for _ in range(self.limit):
            if self.status != "active":
                return
            steps = self.select_eventless() if seek else []
            eventless = bool(steps)
            if not steps:
                if not self.queue:
                    return
                self.event = self.queue.pop(0)
                steps = self.select()
            self.changed = False
            self.microstep(steps)
            seek = self.changed or not eventless
        raise Endless

    def start(self) -> dict[str, Any]:
        everything: list[Path] = [()]
        for path in everything:
            if self.kind(path) == "compound":
                everything.append((*path, self.state(path)["initial"]))
            elif self.kind(path) == "parallel":
                everything += self.children(path)
        self.active = [()]
        start: Step = {"source": (), "targets": everything, "reenter": True, "actions": []}
        self.microstep([start], initial=True)
        self.rest()
        return self.entry()

    def send(self, event: str) -> dict[str, Any]:
        self.log = []
        self.queue = []
        if self.status == "active":
            self.event = event
            self.microstep(self.select())
            self.rest()
        return self.entry()

    def entry(self) -> dict[str, Any]:
        return {
            "configuration": sorted(self.name(path) for path in self.active),
            "status": self.status,
            "context": dict(self.context),
            "log": list(self.log),
        }


def covers(descriptor: str, event: str) -> bool:
    if descriptor == "*":
        return True
    prefix = descriptor.removesuffix("*")
    return descriptor.endswith(".*") and (event + ".").startswith(prefix)


def inside(path: Path, other: Path) -> bool:
    return len(path) > len(other) and path[: len(other)] == other


def above(path: Path) -> Path | None:
    return path[:-1] if path else None


def ancestors(path: Path, up_to: Path | None) -> list[Path]:
    found: list[Path] = []
    current = None if path == up_to else above(path)
    while current is not None and current != up_to:
        found.append(current)
        current = above(current)
    return found


def add(paths: list[Path], path: Path) -> None:
    if path not in paths:
        paths.append(path)
