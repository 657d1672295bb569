"""Where a machine stands: the set of active states, shared by all machines that stand there.

Owns the interning of configurations and their caches. A configuration answers everything that
depends on nothing else (value, tags, which events can matter) once, for all machines of a chart.
The caches are bounded; losing them costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from outlive.charts.events import matches
from outlive.charts.nodes import Node

if TYPE_CHECKING:
    from outlive.charts.selection import Plan
    from outlive.charts.snapshot import Snapshot

StateValue = str | dict[str, Any]
"""``"a"``, ``{"a": "b"}``, ``{"left": "x", "right": {"y": "z"}}``: as XState writes it."""

# A chart with many parallel regions has more configurations than memory. Those in use come back
# at once, so that forgetting all of them now and then is cheaper than keeping an order of age.
CONFIGURATIONS_MAX = 4096


def path_of(text: str) -> list[str]:
    r"""The keys in a path with dots; ``\.`` is a dot inside a key."""
    keys: list[str] = []
    key: list[str] = []
    characters = iter(text)
    for character in characters:
        if character == "\\":
            key.append(next(characters, ""))
        elif character == ".":
            keys.append("".join(key))
            key.clear()
        else:
            key.append(character)
    keys.append("".join(key))
    return keys


def value_matches(wanted: str | Mapping[str, Any], actual: StateValue) -> bool:
    """Whether ``actual`` is in the state that ``wanted`` describes, perhaps less precisely."""
    if isinstance(wanted, str):
        keys = path_of(wanted)
        if len(keys) > 1:
            nested: Any = keys[-1]
            for key in reversed(keys[:-1]):
                nested = {key: nested}
            return value_matches(cast("dict[str, Any]", nested), actual)
        return actual == keys[0] if isinstance(actual, str) else keys[0] in actual
    if isinstance(actual, str):
        return False
    return all(key in actual and value_matches(wanted[key], actual[key]) for key in wanted)


class Tables:
    """The nodes of one chart, what its transitions listen to, and the known configurations."""

    def __init__(self, nodes: tuple[Node, ...], *, chart_id: str) -> None:
        self.nodes = nodes
        self.root = nodes[0]
        self.chart_id = chart_id
        heard = {name for node in nodes for name in node.transitions}
        self.exact = frozenset(name for name in heard if not name.endswith("*"))
        partial = [name for name in heard if name.endswith("*")]
        self.partial = tuple(sorted(partial, key=lambda name: (-len(name), name)))
        self.eventless = any(node.always for node in nodes)
        # XState tries eventless transitions in the order in which states became active. That can
        # only be seen where two regions have some; everywhere else the document's order serves,
        # and far fewer configurations have to be told apart.
        self.ordered = any(_eventless_regions(node) > 1 for node in nodes)
        self._known: dict[tuple[int, ...], Configuration] = {}

    def configuration(self, orders: tuple[int, ...]) -> Configuration:
        """The one configuration of these nodes."""
        key = orders if self.ordered else tuple(sorted(orders))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= CONFIGURATIONS_MAX:
                self._forget()
            found = self._known[key] = Configuration(self, key)
        return found

    def _forget(self) -> None:
        # They refer to each other by their plans; without those, what nobody uses is freed. A list,
        # because another thread may add one meanwhile.
        for configuration in list(self._known.values()):
            configuration.plans.clear()
        self._known.clear()

    def descriptors(self, event_type: str) -> tuple[str, ...]:
        """What a transition may be written under to take the event, most precise first."""
        covering = tuple(name for name in self.partial if matches(event_type, name))
        return (event_type, *covering) if event_type in self.exact else covering


def _eventless_regions(node: Node) -> int:
    if node.kind != "parallel":
        return 0
    return sum(1 for child in node.children if _has_always(child))


def _has_always(node: Node) -> bool:
    return bool(node.always) or any(_has_always(child) for child in node.children)


class Configuration:
    """One set of active states of one chart."""

    def __init__(self, tables: Tables, orders: tuple[int, ...]) -> None:
        self.tables = tables
        self.orders = orders
        self.active = frozenset(orders)
        self.plans: dict[str, Plan] = {}
        # The snapshot of a machine that stands here and has no data at all.
        self.bare: Snapshot | None = None

    def __repr__(self) -> str:
        return f"<Configuration {self.value!r}>"

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The active nodes, in the order that matters for eventless transitions."""
        return tuple(self.tables.nodes[order] for order in self.orders)

    @cached_property
    def in_order(self) -> tuple[Node, ...]:
        """The active nodes in document order."""
        return tuple(self.tables.nodes[order] for order in sorted(self.orders))

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The ids of the active nodes in document order."""
        return tuple(node.id for node in self.in_order)

    @cached_property
    def value(self) -> StateValue:
        """The state value, as XState writes it. Shared: do not change it."""
        return self._value_of(self.tables.root)

    def _value_of(self, node: Node) -> StateValue:
        inner = [child for child in node.children if child.order in self.active]
        if node.kind == "compound" and not inner and node.initial is not None:
            # A machine whose start failed has entered nothing yet.
            inner = [node.initial]
        if node.kind == "compound" and inner and inner[0].is_leaf:
            return inner[0].key
        return {child.key: self._value_of(child) for child in inner}

    @cached_property
    def tags(self) -> frozenset[str]:
        """The tags of all active nodes."""
        return frozenset(tag for node in self.nodes for tag in node.tags)

    @cached_property
    def meta(self) -> dict[str, Any]:
        """The meta data of the active nodes, by id."""
        return {node.id: node.meta for node in self.in_order if node.meta is not None}

    @cached_property
    def next_events(self) -> tuple[str, ...]:
        """The descriptors that some active node listens to, without those that only forbid."""
        heard: dict[str, None] = {}
        for node in self.in_order:
            for name, transitions in node.transitions.items():
                if any(not each.inert for each in transitions):
                    heard[name] = None
        return tuple(heard)

    def matches(self, wanted: str | Mapping[str, Any]) -> bool:
        """Whether the machine is in the state that ``wanted`` describes."""
        return value_matches(wanted, self.value)


def is_final(node: Node, active: frozenset[int] | set[int]) -> bool:
    """Whether ``node`` has come to its end when ``active`` are the active nodes."""
    if node.kind == "compound":
        return any(child.kind == "final" and child.order in active for child in node.children)
    if node.kind == "parallel":
        return all(is_final(child, active) for child in node.children)
    return node.kind == "final"
