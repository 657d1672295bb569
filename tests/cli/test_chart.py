"""``outlive chart``: checking, drawing, exploring and walking through a document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

LAMP = {
    "id": "lamp",
    "initial": "off",
    "states": {
        "off": {"on": {"TURN": {"target": "on", "guard": "power", "actions": "click"}}},
        "on": {
            "after": {"5000": "off", "soon": "off"},
            "invoke": {"src": "hum", "id": "hum", "onDone": "off"},
            "on": {"TURN": "off"},
        },
    },
}


@pytest.fixture
def lamp(tmp_path: Path) -> Path:
    path = tmp_path / "lamp.json"
    path.write_text(json.dumps(LAMP))
    return path


def test_a_valid_chart_is_said_to_be_one(outlive, lamp):
    done = outlive("chart", "validate", str(lamp))
    assert (done.code, done.stdout) == (0, "")
    assert "lamp.json is a valid chart" in done.stderr


def test_every_problem_is_listed(shell, tmp_path):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({"initial": "x", "colour": 1, "states": {"a": {"on": {"E": "b"}}}}))
    done = shell("chart", "validate", str(path), "-o", "json")
    assert done.code == 2
    pointers = [problem["pointer"] for problem in done.document["problems"]]
    assert pointers == ["/colour", "/initial", "/states/a/on/E"]
    shown = shell("chart", "show", str(path))
    assert (shown.code, shown.stdout) == (2, "")


def test_a_file_that_is_not_there(shell):
    done = shell("chart", "validate", "nothing.json")
    assert (done.code, done.stdout) == (2, "")
    assert "cannot be read" in done.stderr


def test_show_as_table_diagram_and_layout(shell, lamp):
    rows = shell("chart", "show", str(lamp), "-o", "json").document["transitions"]
    assert rows[0] == {
        "state": "lamp.off", "event": "TURN", "guard": "power", "target": "lamp.on",
        "actions": "click",
    }  # fmt: skip
    assert [row["event"] for row in rows[1:]] == ["TURN", "done hum", "after 5000", "after soon"]
    diagram = shell("chart", "show", str(lamp), "--format", "mermaid").stdout
    assert diagram.startswith("stateDiagram-v2\n")
    layout = shell("chart", "show", str(lamp), "--format", "layout").document
    assert {box["id"] for box in layout["boxes"]} == {"lamp", "lamp.off", "lamp.on"}


def test_paths_by_what_guards_answer(shell, lamp):
    found = shell("chart", "paths", str(lamp), "-o", "json").document
    assert found == {
        "paths": [{"value": "off", "events": []}, {"value": "on", "events": ["TURN"]}],
        "complete": True,
    }
    dark = shell("chart", "paths", str(lamp), "--guard", "power=no", "-o", "json").document
    assert [path["value"] for path in dark["paths"]] == ["off"]
    assert shell("chart", "paths", str(lamp), "--guard", "power").code == 2


def test_simulate_answers_each_line(shell, lamp):
    lines = ["TURN", ":advance 1", "NO", "TURN {", ":dance", "xstate.done.actor.hum", ":quit", "X"]
    done = shell("chart", "simulate", str(lamp), stdin="\n".join(lines))
    assert done.code == 0
    moves = [line for line in done.stdout.splitlines() if "=>" in line]
    assert moves == [
        'xstate.init => "off" active',
        'TURN => "on" active  did click',
        '1 s => "off" active',
        'NO => "off" active',
        'xstate.done.actor.hum => "off" active',
    ]
    assert "no transition for 'NO' in this state" in done.stderr
    assert "JSON object" in done.stderr
    assert "unknown command :dance" in done.stderr
