"""A chart as a Mermaid state diagram, for pages that draw those.

States get short names of their own, so that no id or key of a document can break the syntax.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from outlive.charts.drawing import drawn_targets, label_of
from outlive.charts.nodes import Node

if TYPE_CHECKING:
    from outlive.charts.chart import Chart
    from outlive.charts.snapshot import Snapshot

_ESCAPES = {'"': "#quot;", "\n": " ", "\r": " ", ":": "#58;", ";": "#59;", "#": "#35;"}


def safe(text: str) -> str:
    """``text`` without anything that Mermaid would read as syntax."""
    return "".join(_ESCAPES.get(character, character) for character in text)


def to_mermaid(chart: Chart, snapshot: Snapshot | None = None) -> str:
    """The diagram; the active states of ``snapshot`` are highlighted."""
    root = chart.nodes[0]
    lines = ["stateDiagram-v2"]
    if root.kind == "compound":
        _inside(root, lines, 1)
    else:
        # Regions need a box around them, and a lone state is one.
        _state(root, lines, 1)
    for node in chart.nodes:
        for transition in (*(t for ts in node.transitions.values() for t in ts), *node.always):
            for target in drawn_targets(transition):
                source, aim = _name(_shown(node)), _name(_shown(target))
                lines.append(f"  {source} --> {aim}: {safe(label_of(transition))}")
    active: Collection[int] = () if snapshot is None else snapshot.configuration.active
    marked = [_name(node) for node in chart.nodes if node.order in active and node.is_leaf]
    if marked:
        lines += ["  classDef active font-weight:bold,stroke-width:3px"]
        lines += [f"  class {name} active" for name in marked]
    return "\n".join(lines) + "\n"


def _shown(node: Node) -> Node:
    """What stands for ``node``: there is no box around a compound root."""
    return node.initial if node.parent is None and node.initial is not None else node


def _name(node: Node) -> str:
    return f"s{node.order}"


def _inside(node: Node, lines: list[str], depth: int) -> None:
    indent = "  " * depth
    for number, child in enumerate(node.states.values()):
        if node.kind == "parallel" and child.kind != "history" and number:
            lines.append(f"{indent}--")
        _state(child, lines, depth)
        if child.kind == "final":
            lines.append(f"{indent}{_name(child)} --> [*]")
    if node.initial is not None:
        lines.append(f"{indent}[*] --> {_name(node.initial)}")


def _state(node: Node, lines: list[str], depth: int) -> None:
    indent = "  " * depth
    label = safe(node.key if node.kind != "history" else f"{node.key} ({node.history} history)")
    if not node.states:
        lines.append(f'{indent}state "{label}" as {_name(node)}')
        return
    lines.append(f'{indent}state "{label}" as {_name(node)} {{')
    _inside(node, lines, depth + 1)
    lines.append(f"{indent}}}")
