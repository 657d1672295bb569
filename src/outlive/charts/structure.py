"""What a chart's structure says against it: states nobody can reach, circles without an end.

Judges compiled nodes. A circle of eventless transitions without guards can never come to rest and
is an error; what merely looks unintended is a warning.
"""

from __future__ import annotations

from outlive.charts.microsteps import default_targets
from outlive.charts.nodes import Node, Transition
from outlive.charts.operations import AssignAll, AssignParts
from outlive.charts.problems import Problems, at

# History states that stand for each other, one after another. Two already puzzle a reader, and
# every one is a level of recursion.
HISTORIES_MAX = 32


def judge(nodes: list[Node], problems: Problems) -> None:
    """Add what the structure of ``nodes`` says against the chart."""
    if not problems.errors:
        for node in nodes:
            if node.kind == "history":
                _judge_history(node, problems)
    if not problems.errors:
        # Targets that lead nowhere would make everything behind them look unreachable.
        _judge_reach(nodes, problems)
    _judge_circles(nodes, problems)
    for node in nodes:
        for transition in (*node.always, *(t for ts in node.transitions.values() for t in ts)):
            _judge_targets(transition, problems)
        if node.kind in ("final", "history") and (node.transitions or node.always):
            problems.warn(node.pointer, f"a {node.kind} state must not have transitions")


def _judge_history(start: Node, problems: Problems) -> None:
    """A history state that remembers nothing must lead to a state, and not back to itself."""
    histories = 1
    waiting = list(default_targets(start))
    seen: set[Node] = set()
    while waiting:
        node = waiting.pop()
        if node is start:
            problems.add(start.pointer, "this history state leads back to itself; give it a target")
            return
        if node in seen:
            continue
        seen.add(node)
        if node.kind == "history":
            histories += 1
            if histories > HISTORIES_MAX:
                problems.add(
                    start.pointer, "this history state leads through too many history states"
                )
                return
            waiting += default_targets(node)
        elif node.kind == "parallel":
            waiting += node.children
        elif node.initial is not None:
            waiting.append(node.initial)


def _judge_targets(transition: Transition, problems: Problems) -> None:
    """Several targets must lie in different regions, or no configuration could hold them."""
    targets = transition.targets or ()
    for index, first in enumerate(targets):
        for second in targets[index + 1 :]:
            above = next((node for node in first.ancestors() if second.within(node)), None)
            if above is None or above.kind != "parallel" or first is second:
                problems.add(
                    transition.pointer,
                    f"{first.id!r} and {second.id!r} cannot be active together",
                )


class _Reach:
    """The states that can become active, as far as the document shows."""

    def __init__(self) -> None:
        self.found: set[Node] = set()
        self._waiting: list[Node] = []

    def all_from(self, root: Node) -> set[Node]:
        self._enter(root)
        while self._waiting:
            node = self._waiting.pop()
            for transition in (*node.always, *(t for ts in node.transitions.values() for t in ts)):
                for target in transition.targets or ():
                    self._enter(target)
        return self.found

    def _enter(self, node: Node) -> None:
        if not self._add(node):
            return
        if node.kind == "history":
            for target in default_targets(node):
                self._enter(target)
        elif node.kind == "parallel":
            for child in node.children:
                self._enter(child)
        elif node.initial is not None:
            self._enter(node.initial)

    def _add(self, node: Node) -> bool:
        if node in self.found:
            # It may have been found as an ancestor alone; its own initial state comes now.
            return node.initial is not None and node.initial not in self.found
        self.found.add(node)
        self._waiting.append(node)
        if node.parent is not None:
            known = node.parent in self.found
            self.found.add(node.parent)
            if not known:
                self._waiting.append(node.parent)
                self._surround(node.parent)
        return True

    def _surround(self, node: Node) -> None:
        """An ancestor that is active only because something inside is."""
        if node.kind == "parallel":
            for child in node.children:
                self._enter(child)
        if node.parent is not None and node.parent not in self.found:
            self.found.add(node.parent)
            self._waiting.append(node.parent)
            self._surround(node.parent)


def _judge_reach(nodes: list[Node], problems: Problems) -> None:
    reached = _Reach().all_from(nodes[0])
    for node in nodes:
        parent = node.parent
        if node not in reached and parent is not None and parent in reached:
            problems.warn(node.pointer, f"no transition leads to state {node.id!r}")


def _certain(node: Node) -> Transition | None:
    """The eventless transition that is always taken in ``node``, if there is one."""
    if node.always and node.always[0].guard is None:
        return node.always[0]
    return None


def _judge_circles(nodes: list[Node], problems: Problems) -> None:
    judged: set[Node] = set()
    for start in nodes:
        way: dict[Node, None] = {}
        node: Node | None = start
        while node is not None and node not in judged and node not in way:
            way[node] = None
            node = _follow(node, problems)
        if node is not None and node in way:
            _report_circle(list(way)[list(way).index(node) :], problems)
        judged.update(way)


def _follow(node: Node, problems: Problems) -> Node | None:
    """Where ``node`` leads by itself, if it certainly does."""
    transition = _certain(node)
    if transition is None:
        return None
    if not transition.targets:
        if any(isinstance(each, (AssignAll, AssignParts)) for each in transition.actions):
            problems.add(
                transition.pointer, "this eventless transition repeats without end: add a guard"
            )
        return None
    return _next_certain(transition.targets[0])


def _report_circle(circle: list[Node], problems: Problems) -> None:
    if len(circle) == 1:
        # Taken once: it changes nothing.
        return
    first = circle.index(min(circle, key=lambda node: node.order))
    turned = [*circle[first:], *circle[: first + 1]]
    problems.add(
        at(turned[0].pointer, "always"),
        "a cycle of eventless transitions without guards: "
        + " -> ".join(node.id for node in turned),
    )


def _next_certain(target: Node) -> Node | None:
    """The state that moves on by itself once ``target`` is entered by default."""
    node: Node | None = target
    line: list[Node] = []
    while node is not None:
        line.append(node)
        if node.kind == "parallel":
            break
        node = node.initial
    for each in reversed(line):
        if _certain(each) is not None:
            return each
        if each.always:
            return None
    return None
