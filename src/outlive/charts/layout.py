"""Where to draw the states of a chart: boxes in boxes, and the lines between them.

Pure geometry, ready to be written as SVG by whoever shows it. Children of a compound state stand
in columns by their distance from the initial state; regions stand below each other.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from outlive.charts.drawing import drawn_targets, label_of
from outlive.charts.nodes import Node

if TYPE_CHECKING:
    from outlive.charts.chart import Chart

# Pixels. A title fits in the head of a box; a letter is about this wide at 13 px.
GAP = 32.0
HEAD = 28.0
LETTER = 8.0
LEAF_WIDTH_MIN = 96.0
LEAF_HEIGHT = 44.0


@dataclass(slots=True)
class Box:
    """One state. Coordinates are absolute; ``x`` and ``y`` are its upper left corner."""

    id: str
    label: str
    kind: str
    parent: str | None
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Line:
    """One arrow, from the edge of a box to the edge of another; a loop has the same ones."""

    source: str
    target: str
    label: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A chart, ready to be drawn."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def lay_out(chart: Chart) -> Layout:
    """Where everything of ``chart`` stands."""
    boxes: dict[Node, Box] = {}
    root = _measure(chart.nodes[0], boxes)
    _place(chart.nodes[0], boxes, 0.0, 0.0)
    lines = tuple(
        Line(node.id, target.id, label_of(transition), _points(boxes[node], boxes[target]))
        for node in chart.nodes
        for transition in (*(t for ts in node.transitions.values() for t in ts), *node.always)
        for target in drawn_targets(transition)
    )
    return Layout(root.width, root.height, tuple(boxes.values()), lines)


def _measure(node: Node, boxes: dict[Node, Box]) -> Box:
    parent = None if node.parent is None else node.parent.id
    width = max(LEAF_WIDTH_MIN, LETTER * len(node.key) + GAP)
    box = boxes[node] = Box(node.id, node.key, node.kind, parent, 0, 0, width, LEAF_HEIGHT)
    if not node.states:
        return box
    columns = [[_measure(child, boxes) for child in column] for column in _columns(node)]
    widths = [max(inner.width for inner in column) for column in columns]
    heights = [sum(inner.height + GAP for inner in column) for column in columns]
    box.width = max(width, sum(widths) + GAP * (len(columns) + 1))
    box.height = HEAD + max(heights) + GAP
    return box


def _columns(node: Node) -> list[list[Node]]:
    if node.kind == "parallel":
        return [list(node.states.values())]
    distance = {node.initial: 0} if node.initial is not None else {}
    waiting = list(distance)
    for state in waiting:
        for target in _leads_to(state, node):
            if target not in distance:
                distance[target] = distance[state] + 1
                waiting.append(target)
    last = max(distance.values(), default=-1) + 1
    columns: dict[int, list[Node]] = {}
    for child in node.states.values():
        columns.setdefault(distance.get(child, last), []).append(child)
    return [columns[number] for number in sorted(columns)]


def _leads_to(state: Node, parent: Node) -> list[Node]:
    """The siblings of ``state`` that something inside it leads to."""
    found: list[Node] = []
    inside = [state]
    for node in inside:
        inside += node.states.values()
        for transition in (*(t for ts in node.transitions.values() for t in ts), *node.always):
            for target in transition.targets or ():
                line = [target, *target.ancestors()]
                found += [each for each in line if each.parent is parent and each is not state]
    return found


def _place(node: Node, boxes: dict[Node, Box], x: float, y: float) -> None:
    box = boxes[node]
    box.x, box.y = x, y
    left = x + GAP
    for column in _columns(node) if node.states else ():
        top = y + HEAD
        for child in column:
            _place(child, boxes, left, top)
            top += boxes[child].height + GAP
        left += max(boxes[child].width for child in column) + GAP


def _points(source: Box, target: Box) -> tuple[tuple[float, float], ...]:
    if source is target:
        right, middle = source.x + source.width, source.y + source.height / 2
        return ((right, middle - 8), (right + 20, middle), (right, middle + 8))
    start = (source.x + source.width / 2, source.y + source.height / 2)
    end = (target.x + target.width / 2, target.y + target.height / 2)
    return (_edge(source, start, end), _edge(target, end, start))


def _edge(
    box: Box, centre: tuple[float, float], towards: tuple[float, float]
) -> tuple[float, float]:
    """Where the line from the centre leaves the box."""
    across, down = towards[0] - centre[0], towards[1] - centre[1]
    if across == 0 and down == 0:
        return centre
    scale = min(
        box.width / 2 / abs(across) if across else float("inf"),
        box.height / 2 / abs(down) if down else float("inf"),
    )
    scale = min(scale, 1.0)
    return (centre[0] + across * scale, centre[1] + down * scale)
