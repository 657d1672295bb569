"""The compiled form of a document: states, transitions and services as a tree of numbered nodes.

Owns the shape. Nodes are numbered in document order, so that the descendants of a node are one
range of numbers. Filled by ``compiling`` and never changed afterwards; shared by all machines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from outlive.charts.guards import Guard
    from outlive.charts.operations import Operation

Kind = Literal["atomic", "compound", "parallel", "final", "history"]


class Transition:
    """One way out of a state. ``targets`` is ``None`` where the state does not change."""

    __slots__ = (
        "actions",
        "descriptor",
        "guard",
        "number",
        "pointer",
        "reenter",
        "source",
        "targets",
    )

    def __init__(self, source: Node, descriptor: str, pointer: str, number: int) -> None:
        self.source = source
        self.descriptor = descriptor
        self.pointer = pointer
        self.number = number
        self.targets: tuple[Node, ...] | None = None
        self.reenter = False
        self.guard: Guard | None = None
        self.actions: tuple[Operation, ...] = ()

    @property
    def inert(self) -> bool:
        """Whether it only forbids: it takes the event and does nothing."""
        return self.targets is None and not self.actions

    def __repr__(self) -> str:
        targets = "" if self.targets is None else ",".join(target.id for target in self.targets)
        return f"<Transition {self.source.id} {self.descriptor!r} -> {targets or '(stay)'}>"


class Invoke:
    """A service that lives as long as its state is active."""

    __slots__ = ("id", "input", "src", "system_id", "watched")

    def __init__(self, child: str, src: str) -> None:
        self.id = child
        self.src = src
        self.input: Any = None
        self.system_id: str | None = None
        self.watched = False


class Node:
    """One state."""

    __slots__ = (
        "always",
        "children",
        "description",
        "end",
        "entry",
        "exit",
        "histories",
        "history",
        "history_targets",
        "id",
        "initial",
        "initial_actions",
        "invokes",
        "key",
        "kind",
        "meta",
        "order",
        "output",
        "parent",
        "path",
        "pointer",
        "states",
        "tags",
        "transitions",
    )

    def __init__(self, key: str, parent: Node | None, order: int, pointer: str) -> None:
        self.key = key
        self.parent = parent
        self.order = order
        self.end = order + 1
        self.pointer = pointer
        self.path: tuple[str, ...] = () if parent is None else (*parent.path, key)
        self.id = key
        self.kind: Kind = "atomic"
        self.states: dict[str, Node] = {}
        self.children: tuple[Node, ...] = ()
        self.histories: tuple[Node, ...] = ()
        self.history: Literal["shallow", "deep"] = "shallow"
        self.history_targets: tuple[Node, ...] | None = None
        self.initial: Node | None = None
        self.initial_actions: tuple[Operation, ...] = ()
        self.entry: tuple[Operation, ...] = ()
        self.exit: tuple[Operation, ...] = ()
        self.invokes: tuple[Invoke, ...] = ()
        self.transitions: dict[str, list[Transition]] = {}
        self.always: tuple[Transition, ...] = ()
        self.tags: tuple[str, ...] = ()
        self.meta: Any = None
        self.output: Any = None
        self.description: str | None = None

    def __repr__(self) -> str:
        return f"<Node {self.id} {self.kind}>"

    def within(self, other: Node | None) -> bool:
        """Whether it lies strictly inside ``other``; everything lies inside ``None``."""
        return other is None or other.order < self.order < other.end

    def ancestors(self, up_to: Node | None = None) -> list[Node]:
        """Its parent, the parent of that, and so on, before ``up_to``; none if it is that."""
        found: list[Node] = []
        node = None if self is up_to else self.parent
        while node is not None and node is not up_to:
            found.append(node)
            node = node.parent
        return found

    @property
    def is_leaf(self) -> bool:
        """Whether a configuration can end in it."""
        return self.kind in ("atomic", "final")

    def candidates(self, descriptors: tuple[str, ...]) -> list[Transition]:
        """Its transitions for an event that ``descriptors`` cover, in the order of trial."""
        return [each for name in descriptors for each in self.transitions.get(name, ())]
