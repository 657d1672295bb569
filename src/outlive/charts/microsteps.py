"""From a set of transitions to what they do: which states are left and entered, in which order.

Pure, and computed once for each configuration and set of transitions: the result is a flat list of
operations and the configuration that follows. Follows the algorithm of SCXML with XState's rules
for domains and re-entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from outlive.charts.configuration import Configuration, Tables, is_final
from outlive.charts.events import done_state
from outlive.charts.nodes import Node, Transition
from outlive.charts.operations import Complete, Operation, RaiseDone, Value
from outlive.charts.programs import entering, leaving

HistoryValue = tuple[int, ...]


class Microstep:
    """What a set of transitions does in one configuration.

    ``quiet`` ones do nothing but move. ``moved`` tells whether the set of states changes, or a
    history is recorded.
    """

    __slots__ = ("moved", "operations", "quiet", "records", "target", "transitions")

    def __init__(
        self,
        transitions: tuple[Transition, ...],
        operations: tuple[Operation, ...],
        target: Configuration,
        records: tuple[tuple[str, HistoryValue], ...],
        *,
        moved: bool,
    ) -> None:
        self.transitions = transitions
        self.operations = operations
        self.target = target
        self.records = records
        self.moved = moved
        self.quiet = not operations and not records


class Histories:
    """What history states remember, and which of them were asked: the result depends on those."""

    def __init__(self, recorded: Mapping[str, HistoryValue], tables: Tables) -> None:
        self._recorded = recorded
        self._tables = tables
        self._fresh: dict[str, HistoryValue] = {}
        self.asked: dict[str, None] = {}

    def record(self, records: Iterable[tuple[str, HistoryValue]]) -> None:
        """Remember what is being left: what is entered in the same step recalls that already."""
        self._fresh.update(records)

    def of(self, node: Node) -> list[Node] | None:
        """The nodes that ``node`` remembers, or ``None`` if it was never left."""
        orders = self._fresh.get(node.id)
        if orders is None:
            self.asked[node.id] = None
            orders = self._recorded.get(node.id)
        return None if orders is None else [self._tables.nodes[order] for order in orders]


def default_targets(history: Node) -> tuple[Node, ...]:
    """Where a history state leads that remembers nothing."""
    parent = history.parent
    assert parent is not None
    if history.history_targets is not None:
        return history.history_targets
    if parent.kind == "parallel":
        return (parent,)
    return (parent.initial,) if parent.initial is not None else ()


def effective_targets(targets: Iterable[Node], histories: Histories) -> list[Node]:
    """``targets`` with history states replaced by what they stand for."""
    found: dict[Node, None] = {}
    for target in targets:
        if target.kind != "history":
            found[target] = None
            continue
        remembered = histories.of(target)
        if remembered is None:
            remembered = effective_targets(default_targets(target), histories)
        found.update(dict.fromkeys(remembered))
    return list(found)


def domain_of(transition: Transition, histories: Histories) -> Node | None:
    """The state inside which a transition happens; ``None`` is outside of the root."""
    source = transition.source
    targets = effective_targets(transition.targets or (), histories)
    if not transition.reenter and all(
        target is source or target.within(source) for target in targets
    ):
        return source
    others = [*targets[1:], source]
    for ancestor in (targets[0] if targets else source).ancestors():
        if all(other.within(ancestor) for other in others):
            return ancestor
    if transition.reenter:
        return None
    root = source
    while root.parent is not None:
        root = root.parent
    return root


def exit_set(transition: Transition, active: Iterable[Node], histories: Histories) -> set[Node]:
    """The active states that ``transition`` leaves."""
    if not transition.targets:
        return set()
    domain = domain_of(transition, histories)
    left = {node for node in active if node.within(domain)}
    if transition.reenter and transition.source is domain and domain is not None:
        left.add(domain)
    return left


def without_conflicts(
    transitions: Iterable[Transition], active: Iterable[Node], histories: Histories
) -> list[Transition]:
    """Those that can happen together: an inner source wins over an outer, then the earlier."""
    nodes = list(active)
    kept: dict[Transition, set[Node]] = {}
    for transition in transitions:
        left = exit_set(transition, nodes, histories)
        rivals = [other for other, others in kept.items() if left & others]
        if any(not transition.source.within(other.source) for other in rivals):
            continue
        for other in rivals:
            del kept[other]
        kept[transition] = left
    return list(kept)


class _Entry:
    """The states to be entered, and those among them that are entered by default."""

    def __init__(self, histories: Histories) -> None:
        self._histories = histories
        self.states: dict[Node, None] = {}
        self.defaults: set[Node] = set()

    def add(self, transition: Transition, domain: Node | None) -> None:
        targets = transition.targets or ()
        source = transition.source
        for target in targets:
            if target.kind != "history" and (
                source is not target or source is not domain or transition.reenter
            ):
                self.states[target] = None
                self.defaults.add(target)
            self._descend(target)
        whole = source.parent is None and transition.reenter
        for target in effective_targets(targets, self._histories):
            ancestors = target.ancestors(domain)
            if domain is not None and domain.kind == "parallel":
                ancestors.append(domain)
            self._ascend(ancestors, None if whole else domain)

    def _descend(self, node: Node) -> None:
        if node.kind == "history":
            self._recall(node)
        elif node.kind == "compound":
            initial = node.initial
            assert initial is not None
            if initial.kind != "history":
                self.states[initial] = None
                self.defaults.add(initial)
            self._descend(initial)
            self._ascend(initial.ancestors(node), None)
        elif node.kind == "parallel":
            for child in node.children:
                if not self._begun(child):
                    self.states[child] = None
                    self.defaults.add(child)
                    self._descend(child)

    def _recall(self, history: Node) -> None:
        parent = history.parent
        assert parent is not None
        targets = self._histories.of(history)
        if targets is None:
            targets = list(default_targets(history))
            if history.history_targets is None and parent.kind != "parallel":
                self.defaults.add(parent)
        for node in targets:
            self.states[node] = None
            self._descend(node)
        for node in targets:
            self._ascend(node.ancestors(parent), None)

    def _ascend(self, ancestors: list[Node], domain: Node | None) -> None:
        for node in ancestors:
            if node.within(domain):
                self.states[node] = None
            if node.kind == "parallel":
                for child in node.children:
                    if not self._begun(child):
                        self.states[child] = None
                        self._descend(child)

    def _begun(self, node: Node) -> bool:
        return any(state.within(node) for state in self.states)


def compute(
    configuration: Configuration,
    transitions: tuple[Transition, ...],
    histories: Histories,
    *,
    initial: bool = False,
) -> Microstep:
    """What ``transitions`` do together in ``configuration``."""
    active = configuration.nodes
    chosen = without_conflicts(transitions, active, histories)
    operations: list[Operation] = []
    left: set[Node] = set()
    if not initial:
        for transition in chosen:
            left |= exit_set(transition, active, histories)
    leave_order = sorted(left, key=lambda node: -node.order)
    records = tuple(
        (history.id, _remembered(history, node, active))
        for node in leave_order
        for history in node.histories
    )
    # Before anything is recorded: what a step leaves and what it enters must have one domain, or
    # a state in between would be left and not entered again.
    domains = [domain_of(transition, histories) for transition in chosen]
    histories.record(records)
    for node in leave_order:
        operations += leaving(node)
    for transition in chosen:
        operations += transition.actions
    entry = _Entry(histories)
    for transition, domain in zip(chosen, domains, strict=True):
        # One that stays inside a state which another one leaves has nothing left to enter.
        if domain not in left:
            entry.add(transition, domain)
    if initial:
        entry.defaults.add(configuration.tables.root)
    remaining = [node.order for node in active if node not in left]
    orders = _enter(operations, entry, remaining, configuration.tables)
    same = configuration.active == frozenset(orders)
    target = configuration if same else configuration.tables.configuration(tuple(orders))
    return Microstep(
        tuple(chosen), tuple(operations), target, records, moved=not same or bool(records)
    )


def _remembered(history: Node, parent: Node, active: Iterable[Node]) -> HistoryValue:
    if history.history == "deep":
        return tuple(node.order for node in active if node.is_leaf and node.within(parent))
    return tuple(node.order for node in active if node.parent is parent)


def _enter(
    operations: list[Operation], entry: _Entry, orders: list[int], tables: Tables
) -> list[int]:
    present = dict.fromkeys(orders)
    completed: set[Node] = set()
    done = False
    for node in sorted(entry.states, key=lambda state: state.order):
        present[node.order] = None
        operations += entering(node, by_default=node in entry.defaults)
        if node.kind == "final":
            done |= _finish(operations, node, set(present), completed)
    if done:
        for order in sorted(present, reverse=True):
            operations += tables.nodes[order].exit
    return list(present)


def _finish(
    operations: list[Operation], node: Node, active: set[int], completed: set[Node]
) -> bool:
    """What the arrival in a final state sets off; true if the whole machine has ended."""
    parent = node.parent
    marker = parent
    if parent is not None and parent.kind != "parallel":
        marker = parent.parent
    reached = marker or node
    if parent is not None and parent.kind == "compound":
        operations.append(RaiseDone(done_state(parent.id), node.output))
    while (
        marker is not None
        and marker.kind == "parallel"
        and marker not in completed
        and is_final(marker, active)
    ):
        completed.add(marker)
        operations.append(RaiseDone(done_state(marker.id), None))
        reached = marker
        marker = marker.parent
    if marker is not None:
        return False
    root = node
    while root.parent is not None:
        root = root.parent
    reached_output: Value | None = reached.output if reached.parent is not None else None
    operations.append(Complete(root.output, done_state(reached.id), reached_output))
    return True
