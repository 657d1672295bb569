"""Ways through a chart, what a test has seen of it, and drawings."""

from __future__ import annotations

import pytest

from outlive.charts import Actor, Chart, Coverage, Environment, assign

DOOR = {
    "id": "door",
    "initial": "closed",
    "context": {"knocks": 0},
    "states": {
        "closed": {
            "on": {
                "OPEN": {"target": "open", "guard": "unlocked", "actions": "creak"},
                "KNOCK": {"actions": "count"},
            }
        },
        "open": {"after": {"1000": "closed"}, "on": {"BREAK": "broken"}},
        "broken": {"type": "final"},
    },
}


def door(*, unlocked: bool = True) -> Chart:
    return Chart.load(
        DOOR,
        guards={"unlocked": lambda: unlocked},
        actions={
            "count": assign(knocks=lambda context: (context["knocks"] + 1) % 3),
            "creak": print,
        },
    )


def test_the_shortest_way_to_every_place():
    found = door().paths()
    assert found.complete
    ways = {str(path.value): [event.type for event in path.events] for path in found.paths}
    assert ways == {"closed": [], "open": ["OPEN"], "broken": ["OPEN", "BREAK"]}
    way = found.to("broken")
    assert way is not None
    assert str(way) == 'OPEN -> BREAK => "broken"'
    assert found.to("nowhere") is None


def test_guards_close_ways():
    assert [path.value for path in door(unlocked=False).paths().paths] == ["closed"]


def test_an_endless_search_ends():
    chart = Chart.load(
        {"id": "m", "context": {"n": 0}, "on": {"UP": {"actions": "up"}}},
        actions={"up": assign(n=lambda context: context["n"] + 1)},
    )
    found = chart.paths(places_max=50)
    assert not found.complete
    assert len(found.paths) == 1


def test_given_events_may_carry_data():
    chart = Chart.load(
        {
            "id": "m",
            "initial": "a",
            "states": {"a": {"on": {"*": {"target": "b", "guard": "big"}}}, "b": {}},
        },
        guards={"big": lambda event: event["n"] > 1},
    )
    assert len(chart.paths().paths) == 1
    found = chart.paths(events=["X", {"type": "X", "n": 2}])
    assert [path.value for path in found.paths] == ["a", "b"]


def test_coverage_tells_what_no_test_has_seen():
    chart = door()
    coverage = Coverage(chart)
    assert (coverage.states, coverage.transitions) == (0, 0)
    actor = Actor(chart, environment=Environment(inspect=coverage.inspect)).start()
    actor.send("KNOCK")
    assert coverage.states == 0.5
    assert [node.id for node in coverage.unvisited] == ["door.open", "door.broken"]
    assert [transition.descriptor for transition in coverage.untaken] == [
        "OPEN", "BREAK", "xstate.after.1000.door.open"
    ]  # fmt: skip
    for path in chart.paths().paths:
        snapshot, _ = chart.begin()
        for event in path.events:
            trace = []
            snapshot, _ = chart.step(snapshot, event, trace)
            coverage.add(trace)
    assert coverage.states == 1
    assert coverage.transitions == pytest.approx(0.75)


def test_a_mermaid_diagram():
    chart = door()
    drawn = chart.to_mermaid(chart.begin()[0])
    assert drawn.splitlines() == [
        "stateDiagram-v2",
        '  state "closed" as s1',
        '  state "open" as s2',
        '  state "broken" as s3',
        "  s3 --> [*]",
        "  [*] --> s1",
        "  s1 --> s2: OPEN [unlocked] / creak",
        "  s1 --> s1: KNOCK",
        "  s2 --> s3: BREAK",
        "  s2 --> s1: after 1000",
        "  classDef active font-weight:bold,stroke-width:3px",
        "  class s1 active",
    ]


def test_hostile_names_do_not_break_a_diagram():
    chart = Chart.load(
        {
            "id": "m",
            "type": "parallel",
            "states": {'a"; x': {}, "b\nc": {"on": {"E: --> F": {"actions": []}}}},
        }
    )
    drawn = chart.to_mermaid()
    assert 'state "a#quot;#59; x" as s1' in drawn
    assert 'state "b c" as s2' in drawn
    assert "s2 --> s2: E#58; --> F" in drawn


def test_boxes_lie_inside_each_other_and_do_not_overlap():
    chart = Chart.load(
        {
            "id": "m",
            "initial": "p",
            "states": {
                "p": {
                    "type": "parallel",
                    "on": {"E": "q"},
                    "states": {"l": {"initial": "x", "states": {"x": {}, "y": {}}}, "r": {}},
                },
                "q": {"on": {"F": "q", "G": "#m.p.l.y"}},
            },
        }
    )
    layout = chart.layout()
    boxes = {box.id: box for box in layout.boxes}
    for box in layout.boxes:
        if box.parent is None:
            continue
        outer = boxes[box.parent]
        assert outer.x <= box.x
        assert outer.y < box.y
        assert box.x + box.width <= outer.x + outer.width
        assert box.y + box.height <= outer.y + outer.height
        for other in layout.boxes:
            if other.parent == box.parent and other is not box:
                apart = (
                    other.x >= box.x + box.width
                    or box.x >= other.x + other.width
                    or other.y >= box.y + box.height
                    or box.y >= other.y + other.height
                )
                assert apart
    assert [(line.source, line.target, line.label) for line in layout.lines] == [
        ("m.p", "m.q", "E"), ("m.q", "m.q", "F"), ("m.q", "m.p.l.y", "G")
    ]  # fmt: skip
    assert layout.to_json()["boxes"][0]["id"] == "m"
